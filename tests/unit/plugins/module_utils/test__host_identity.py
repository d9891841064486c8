# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _host_identity
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal

_RACE = """
import sys
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import create_host_id
sys.stdin.readline()
print(*create_host_id(sys.argv[1]))
"""


def test_a_host_without_a_file_has_no_id(tmp_path: pathlib.Path) -> None:
    assert _host_identity.read_host_id(str(tmp_path / "host-id")) is None


def test_the_host_id_is_created_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kvmfleet" / "host-id"
    made, new = _host_identity.create_host_id(str(path))
    assert new
    assert str(uuid.UUID(made)) == made
    assert _host_identity.create_host_id(str(path)) == (made, False)
    assert _host_identity.read_host_id(str(path)) == made
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["host-id"]


def test_concurrent_processes_agree_on_one_host_id(tmp_path: pathlib.Path) -> None:
    racers = [_racer(tmp_path / "host-id") for _racer_number in range(6)]
    for racer in racers:
        t.cast(t.IO[str], racer.stdin).write("go\n")
        t.cast(t.IO[str], racer.stdin).flush()
    answers = [racer.communicate(timeout=300)[0].split() for racer in racers]
    assert len({answer[0] for answer in answers}) == 1
    assert sorted(answer[1] for answer in answers) == ["False"] * 5 + ["True"]
    assert os.listdir(tmp_path) == ["host-id"]


def _racer(path: pathlib.Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", _RACE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.parametrize("content", ["", "kvm1\n", "x" * 10000])
def test_a_damaged_file_is_named_and_not_replaced(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / "host-id"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(Internal, match="host-id holds"):
        _host_identity.create_host_id(str(path))
    assert path.read_text(encoding="utf-8") == content


def test_a_host_id_that_cannot_be_written_is_forbidden(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(Forbidden, match="become"):
        _host_identity.create_host_id(str(tmp_path / "file" / "host-id"))


def test_an_empty_or_missing_machine_id_is_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "machine-id").write_text("\n", encoding="utf-8")
    assert _host_identity.read_machine_id(str(tmp_path / "machine-id")) is None
    assert _host_identity.read_machine_id(str(tmp_path / "none")) is None


def test_the_ledger_of_a_host_is_not_known_without_a_readable_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ledger-id"
    assert _host_identity.find_ledger_id(str(path)) is None
    path.write_text("damaged")
    assert _host_identity.find_ledger_id(str(path)) is None
    path.write_text("1B0C7A52-4a5f-4e0f-9a3f-8c7d1d0e5a01\n")
    assert _host_identity.find_ledger_id(str(path)) == "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
