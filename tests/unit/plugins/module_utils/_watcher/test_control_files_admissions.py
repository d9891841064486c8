# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the control node tells a watcher: admissions, and the sources that share a link."""

from __future__ import annotations

import errno
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import admissions_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import Admissions

RUN = "0c0f6f0e-0000-4000-8000-000000000001"
TO_3 = "qemu+tcp://kvm3/system"


def read(folder: pathlib.Path, *contents: str) -> Admissions:
    """Return the reader after it has read each of these contents."""
    admissions = Admissions(RUN, str(folder))
    for content in contents:
        pathlib.Path(admissions_path(RUN, str(folder))).write_text(content, encoding="utf-8")
        admissions.read_file()
    return admissions


def test_sources_are_told_beside_admissions(tmp_path: pathlib.Path) -> None:
    found = read(tmp_path, json.dumps({"given": {"r1": "It had waited."}, "ended": {"r2": "Too late."}, "sources": {TO_3: 2}}))
    assert (found.admission_of("r1"), found.cancellation_of("r2"), found.sources) == ("It had waited.", "Too late.", {TO_3: 2})


def test_without_news_there_are_no_other_sources_and_the_last_news_hold(tmp_path: pathlib.Path) -> None:
    assert Admissions(RUN, str(tmp_path)).sources == {}
    assert read(tmp_path, json.dumps({"sources": {TO_3: 3}}), "").sources == {TO_3: 3}
    assert read(tmp_path, json.dumps({"sources": {TO_3: 3}}), '{"sources": {"qemu').sources == {TO_3: 3}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2", None, 10**9, [2], {}])
def test_a_number_that_cannot_be_is_ignored(tmp_path: pathlib.Path, wrong: t.Any) -> None:
    assert read(tmp_path, json.dumps({"sources": {TO_3: wrong, "qemu+tcp://kvm4/system": 2}})).sources == {"qemu+tcp://kvm4/system": 2}
    assert read(tmp_path, json.dumps({"sources": wrong})).sources == {}


def test_news_that_cannot_be_read_now_change_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_files(*arguments: t.Any, **options: t.Any) -> t.NoReturn:
        raise OSError(errno.ENFILE, "Too many open files in system")

    found = read(tmp_path, json.dumps({"given": {"r1": "It had waited."}}))
    monkeypatch.setattr("builtins.open", refuse_files)
    found.read_file()
    assert found.admission_of("r1") == "It had waited."
