# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a report on disk: whole or not at all, and nobody else's to read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import check_report_name, write_report


def test_files_and_folder_of_a_report_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    write_report(str(folder), {"x.html": b"1", "x.json": b"2"}, 0o600)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"x.html": b"1", "x.json": b"2"}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "x.html")] == [0o700, 0o600]


def test_an_existing_file_is_replaced_with_the_requested_mode(tmp_path: Path) -> None:
    (tmp_path / "x.html").write_bytes(b"old")
    (tmp_path / "x.html").chmod(0o666)
    write_report(str(tmp_path), {"x.html": b"new"}, 0o640)
    assert (tmp_path / "x.html").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "x.html").stat().st_mode) == 0o640


def test_a_link_is_replaced_and_its_target_is_kept(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"kept")
    (tmp_path / "x.html").symlink_to(tmp_path / "other")
    write_report(str(tmp_path), {"x.html": b"new"}, 0o600)
    assert (tmp_path / "other").read_bytes() == b"kept"
    assert not (tmp_path / "x.html").is_symlink()


def test_a_failed_write_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.html").mkdir()
    with pytest.raises(Internal, match=f"cannot be written to {tmp_path}: Is a directory"):
        write_report(str(tmp_path), {"x.html": b"new"}, 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\0"])
def test_an_invalid_name_of_a_report_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        check_report_name(name)
