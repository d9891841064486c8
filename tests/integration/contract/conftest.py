# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each case of the contract runs on fake hosts and on a lab's libvirt hosts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.contract.stages import FakeStage, LabStage, Stage, lab, lab_addresses


@pytest.fixture(scope="session")
def addresses() -> t.Iterator[t.List[str]]:
    lab("down")
    lab("up", "--hosts", "2")
    yield lab_addresses()
    lab("down")


@pytest.fixture(params=["fake", "libvirt"])
def stage(request: pytest.FixtureRequest) -> t.Iterator[Stage]:
    made: Stage = FakeStage() if request.param == "fake" else LabStage(request.getfixturevalue("addresses"))
    yield made
    made.close()
