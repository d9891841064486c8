# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.hardware import list_pools
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_image_users import Binding, Pool

LUN = "/dev/disk/by-path/ip-10.0.0.9:3260-iscsi-iqn.2026-01.org.example:a-lun-1"


class Volume:
    def __init__(self, path: t.Optional[str]) -> None:
        self._path = path

    def name(self) -> str:
        return "unit:0:0:1" if self._path else "unit:0:0:2"

    def path(self) -> str:
        if not self._path:
            raise LibvirtError(50)
        return self._path


class VolumePool(Pool):
    def listAllVolumes(self, flags: int) -> t.List[Volume]:
        return [Volume(LUN), Volume(None)]


class Connection:
    def __init__(self, *pools: Pool) -> None:
        self._pools = pools

    def listAllStoragePools(self, flags: int) -> t.Sequence[Pool]:
        return self._pools


def test_pools_whose_volumes_have_other_names_than_their_devices_list_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", Binding)
    by_path = "/dev/disk/by-path"
    pools = VolumePool("a", by_path, "iscsi"), VolumePool("b", by_path, "scsi", state=0), Pool("c", "/dev/vg0", "logical")
    found = list_pools(t.cast(t.Any, Connection(*pools)))
    assert [pool.volumes for pool in found] == [{"unit:0:0:1": LUN}, ABSENT, ABSENT]
