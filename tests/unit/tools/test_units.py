# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the temporary files of unit tests are: in memory if it has room for them, and gone after the run."""

from __future__ import annotations

import os
import pathlib

import pytest
from suites import units


def test_temporary_files_are_kept_in_memory_and_removed(tmp_path: pathlib.Path) -> None:
    with units.temporary_files(tmp_path, least_bytes=1) as folder:
        pathlib.Path(folder["TMPDIR"], "left").write_text("by a test", encoding="utf-8")
        assert os.listdir(tmp_path) == [pathlib.Path(folder["TMPDIR"]).name]
    assert os.listdir(tmp_path) == []


def test_temporary_files_are_removed_when_the_run_is_ended(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SystemExit), units.temporary_files(tmp_path, least_bytes=1):
        raise SystemExit(143)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "least_bytes"), [("missing", 1), ("", 2**62)])
def test_without_room_in_memory_they_stay_where_they_were(tmp_path: pathlib.Path, name: str, least_bytes: int) -> None:
    with units.temporary_files(tmp_path / name, least_bytes) as folder:
        assert folder == {}
    assert os.listdir(tmp_path) == []
