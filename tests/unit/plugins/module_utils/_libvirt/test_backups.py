# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The jobs that libvirt reports of a domain, and its checkpoints, with a driver that answers as libvirt does."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import Opened
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Checkpoint

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
UNDER_WAY, NONE = 2, 0
SAVE, INCOMING, OUTGOING, BACKUP, LATER = 2, 4, 5, 9, 99


class Driver:
    """A connection with one domain, whose disks are C(sda), an empty drive, and C(vda)."""

    libvirtError = RuntimeError

    def __init__(self, version: int = 9000000, active: bool = True, job: tuple[int, int] = (NONE, 0), block_job: int = 0) -> None:
        self.version, self.active, self.job, self.block_job = version, active, job, block_job
        self.asked: list[tuple[str, int]] = []

    def lookupByUUIDString(self, uuid: str) -> Driver:
        assert uuid == UUID
        return self

    def getLibVersion(self) -> int:
        return self.version

    def isActive(self) -> bool:
        return self.active

    def jobStats(self) -> dict[str, int]:
        return {"type": self.job[0], "operation": self.job[1]}

    def XMLDesc(self, flags: int) -> str:
        return "<domain><devices><disk><target dev='sda'/></disk><disk><target dev='vda'/></disk></devices></domain>"

    def blockJobInfo(self, target: str) -> dict[str, int]:
        if target == "sda":
            raise RuntimeError("disk 'sda' is empty")
        return {"type": self.block_job, "cur": 1, "end": 2} if self.block_job else {}

    def listAllCheckpoints(self, flags: int) -> list[Driver]:
        self.asked.append(("list", flags))
        return [self]

    def getName(self) -> str:
        return "monday"

    def getXMLDesc(self, flags: int) -> str:
        return f"<domaincheckpoint flags='{flags}'/>"

    def checkpointCreateXML(self, xml: str, flags: int) -> None:
        self.asked.append((xml, flags))


@pytest.fixture(autouse=True)
def binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", Driver)


def host(driver: Driver) -> LibvirtHost:
    return LibvirtHost("qemu:///system", Opened(t.cast(t.Any, driver)))


@pytest.mark.parametrize(
    ("state", "job"),
    [
        ({}, ""),
        ({"job": (UNDER_WAY, BACKUP)}, "a backup"),
        ({"job": (UNDER_WAY, SAVE)}, "a save of its memory"),
        ({"job": (UNDER_WAY, LATER)}, "another job"),
        ({"job": (NONE, BACKUP)}, ""),
        ({"job": (UNDER_WAY, OUTGOING), "block_job": 2}, ""),
        ({"job": (UNDER_WAY, INCOMING), "block_job": 2}, ""),
        ({"block_job": 2}, "a copy of disk vda"),
        ({"block_job": 1}, "a pull of disk vda"),
        ({"block_job": 4}, "a commit of disk vda"),
        ({"block_job": 42}, "another job of disk vda"),
        ({"active": False, "block_job": 2}, ""),
    ],
)
def test_a_job_other_than_a_migration_is_named(state: dict[str, t.Any], job: str) -> None:
    assert host(Driver(**state)).find_other_job(UUID) == job


def test_checkpoints_are_listed_after_their_parents_and_without_the_definition_of_the_domain() -> None:
    driver = Driver()
    assert host(driver).list_checkpoints(UUID) == (Checkpoint("monday", "<domaincheckpoint flags='2'/>"),)
    assert driver.asked == [("list", 2)]


@pytest.mark.parametrize(("version", "active", "flags"), [(9000000, True, 5), (6009000, True, 1), (9000000, False, 1)])
def test_a_checkpoint_is_compared_with_the_images_where_libvirt_can(version: int, active: bool, flags: int) -> None:
    driver = Driver(version, active)
    host(driver).redefine_checkpoint(UUID, Checkpoint("monday", "<domaincheckpoint/>"))
    assert driver.asked == [("<domaincheckpoint/>", flags)]
