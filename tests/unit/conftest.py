# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for all unit tests: properties are judged by what they find, not by the pace of a busy machine, and the machine is no host of a fleet."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import HealthCheck, settings

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import read_host_id

settings.register_profile("kvmfleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kvmfleet")


@pytest.fixture(scope="session", autouse=True)
def own_machine(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[None]:
    """Keep tests from what the collection keeps on this machine: by default, its identity is read and its quarantine is written in a folder of the tests."""
    folder = tmp_path_factory.mktemp("own-machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_host_id, "__defaults__", (str(folder / "host-id"),))
        dummy, *others = t.cast("tuple[t.Any, ...]", Quarantine.__init__.__defaults__)
        patch.setattr(Quarantine.__init__, "__defaults__", (str(folder / "quarantine"), *others))
        yield
