# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import adopt_host_id, read_host_id
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument

ID, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


def test_a_lost_identity_is_written_again_idempotently(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "host-id"
    adopt_host_id(ID, str(path))
    adopt_host_id(ID, str(path))
    assert read_host_id(str(path)) == ID
    assert [one.name for one in path.parent.iterdir()] == ["host-id"]


def test_another_identity_is_never_overwritten(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "host-id"
    adopt_host_id(OTHER, str(path))
    with pytest.raises(Conflict, match="not overwritten"):
        adopt_host_id(ID, str(path))
    assert read_host_id(str(path)) == OTHER
    assert [one.name for one in tmp_path.iterdir()] == ["host-id"]


def test_an_invalid_host_id_is_not_written(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument):
        adopt_host_id("kvm1", str(tmp_path / "host-id"))
    assert not list(tmp_path.iterdir())
