# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Dirty rates that become known while the first moves run."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.dirty_rates import MEASURED_WITHIN_SECONDS, DirtyRates
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock


class MeasuringHost:
    """A host whose measurements end one after another; it refuses connections while C(silent)."""

    def __init__(self) -> None:
        self.rates: t.Dict[str, int] = {}
        self.asked: t.List[t.List[str]] = []
        self.silent = False

    def open(self) -> t.Any:
        if self.silent:
            raise Unreachable("kvm1 does not answer.")
        return self

    def recent_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        self.asked.append(list(uuids))
        return {uuid: rate for uuid, rate in self.rates.items() if uuid in uuids}

    def close(self) -> None:
        pass


def test_only_what_is_not_known_is_asked_again() -> None:
    host = MeasuringHost()
    rates = DirtyRates(["a", "b"], host.open, FakeClock())
    assert rates.rate_of("a") is None
    host.rates = {"a": 7}
    rates.read_new()
    assert (rates.rate_of("a"), rates.rate_of("b")) == (7, None)
    host.rates = {"a": 9, "b": 8}
    rates.read_new()
    rates.read_new()
    assert (rates.rate_of("a"), rates.rate_of("b"), host.asked) == (7, 8, [["a", "b"], ["b"]])


def test_a_measurement_that_never_ends_is_not_waited_for() -> None:
    clock = FakeClock()
    host = MeasuringHost()
    rates = DirtyRates(["a"], host.open, clock)
    rates.read_new()
    assert rates.rate_of("a") is None
    clock.sleep(MEASURED_WITHIN_SECONDS)
    rates.read_new()
    rates.read_new()
    assert (rates.rate_of("a"), len(host.asked)) == (0, 2)


def test_a_host_that_does_not_answer_is_asked_again() -> None:
    host = MeasuringHost()
    rates = DirtyRates(["a"], host.open, FakeClock())
    host.silent = True
    rates.read_new()
    host.silent, host.rates = False, {"a": 7}
    rates.read_new()
    assert rates.rate_of("a") == 7
