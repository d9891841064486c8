# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose libvirt accepts connections and leaves calls unanswered."""

from __future__ import annotations

import contextlib
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _time_limits

from .fleet import FakeFleet
from .host import FakeHost


@contextlib.contextmanager
def hung_libvirt(monkeypatch: pytest.MonkeyPatch, call: str, attempt: str) -> t.Iterator[t.Callable[[str], FakeHost]]:
    """Give what opens such a host, on which this call does not end. Queries have a short time limit meanwhile.

    :arg attempt: what is not done, as an error says it.
    """
    fleet, end = FakeFleet(), threading.Event()

    class HungHost(FakeHost):
        def __getattribute__(self, name: str) -> t.Any:
            if name == call:
                with _time_limits.timed_question(attempt):
                    end.wait(10)
            return super().__getattribute__(name)

    for name, seconds in (("QUESTION_SECONDS", 0.2), ("_CHECK_SECONDS", 0.05), ("_END_SECONDS", 3600.0)):
        monkeypatch.setattr(_time_limits, name, seconds)
    try:
        yield lambda uri: HungHost(fleet, fleet.machine_of(uri), uri)
    finally:
        end.set()
