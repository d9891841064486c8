# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Aborting on a host whose libvirt hangs."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI
from ansible_collections.kvmfleet.migration.tests.unit.fakes.hung import hung_libvirt


def test_the_first_query_of_an_abort_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervene, "require_root", lambda: None)
    with hung_libvirt(monkeypatch, "find_domain", "call find_domain") as open_hung:
        monkeypatch.setattr(intervene, "open_host", open_hung)
        with pytest.raises(Unreachable, match=r"Failed to call find_domain: libvirt did not answer .*Nothing was changed"):
            intervene.look_at_move(LOCAL_URI, {"act": "abort", "name": "web1", "uuid": None})
