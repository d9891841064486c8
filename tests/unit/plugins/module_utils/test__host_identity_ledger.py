# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _host_identity
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, Internal

ONE = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
OTHER = "2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"


def test_a_host_belongs_to_the_ledger_that_came_first(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "kvmfleet" / "ledger-id")
    assert _host_identity.read_ledger_id(path) is None
    assert _host_identity.remember_ledger_id(ONE, path)
    assert not _host_identity.remember_ledger_id(ONE, path)
    assert _host_identity.read_ledger_id(path) == ONE
    assert os.listdir(os.path.dirname(path)) == ["ledger-id"]


@pytest.mark.parametrize("ledger_id", [OTHER, None])
def test_another_or_a_new_ledger_is_refused_with_the_next_step(tmp_path: pathlib.Path, ledger_id: str) -> None:
    path = str(tmp_path / "ledger-id")
    _host_identity.remember_ledger_id(ONE, path)
    with pytest.raises(Conflict, match=ONE) as caught:
        _host_identity.check_ledger_id(ledger_id, path)
    assert path in str(caught.value)
    assert _host_identity.read_ledger_id(path) == ONE


@pytest.mark.parametrize("content", ["", "nothing", "\x00" * 40, f"{ONE} {OTHER}"])
def test_an_invalid_ledger_id_file_is_an_error_and_kept(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / "ledger-id"
    path.write_text(content)
    with pytest.raises(Internal, match="ledger-id"):
        _host_identity.remember_ledger_id(ONE, str(path))
    assert path.read_text() == content


def test_a_folder_that_cannot_be_created_is_forbidden(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Forbidden, match="root"):
        _host_identity.remember_ledger_id(ONE, str(tmp_path / "file" / "ledger-id"))
