# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import tokens

HOST = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
OTHER = "2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"


def test_a_token_is_left_once_and_stays(tmp_path: pathlib.Path) -> None:
    nonces, problems = tokens.leave([str(tmp_path), str(tmp_path)], HOST)
    assert problems == {}
    assert list(nonces) == [str(tmp_path)]
    assert tokens.leave([str(tmp_path)], HOST) == (nonces, {})
    assert os.listdir(tmp_path) == [f".kvmfleet-host-{HOST}"]
    assert (tmp_path / f".kvmfleet-host-{HOST}").stat().st_mode & 0o777 == 0o644


def test_another_host_sees_it_in_the_same_store_alone(tmp_path: pathlib.Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    nonces, _problems = tokens.leave([str(shared)], HOST)
    nonce = nonces[str(shared)]
    assert tokens.seen({HOST: nonces}) == {HOST: nonces}
    assert tokens.is_seen(str(shared), HOST, nonce)
    assert not tokens.is_seen(str(own), HOST, nonce)
    assert not tokens.is_seen(str(shared), OTHER, nonce)
    assert not tokens.is_seen(str(shared), HOST, OTHER)
    assert tokens.seen({HOST: {str(own): nonce}}) == {}


def test_two_hosts_leave_one_each(tmp_path: pathlib.Path) -> None:
    first, _problems = tokens.leave([str(tmp_path)], HOST)
    second, _problems = tokens.leave([str(tmp_path)], OTHER)
    assert first != second
    assert tokens.seen({HOST: first, OTHER: second}) == {HOST: first, OTHER: second}


@pytest.mark.parametrize(
    "content", ["[" * 4000, "", "{", "[]", "null", '{"host_id": 1}', json.dumps({"host_id": HOST}), json.dumps({"host_id": HOST, "nonce": "x"})]
)
def test_a_damaged_token_proves_nothing_and_is_made_anew(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / f".kvmfleet-host-{HOST}"
    path.write_text(content)
    assert tokens.seen({HOST: {str(tmp_path): OTHER}}) == {}
    nonces, problems = tokens.leave([str(tmp_path)], HOST)
    assert problems == {}
    assert tokens.seen({HOST: nonces}) == {HOST: nonces}


def test_a_link_in_place_of_a_token_is_not_followed(tmp_path: pathlib.Path) -> None:
    folder, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text(json.dumps({"host_id": HOST, "nonce": OTHER}))
    (folder / f".kvmfleet-host-{HOST}").symlink_to(elsewhere)
    assert not tokens.is_seen(str(folder), HOST, OTHER)
    _nonces, problems = tokens.leave([str(folder)], HOST)
    assert list(problems) == [str(folder)]
    assert elsewhere.read_text() == json.dumps({"host_id": HOST, "nonce": OTHER})


def test_a_folder_that_cannot_hold_one_is_named(tmp_path: pathlib.Path) -> None:
    missing = str(tmp_path / "missing")
    nonces, problems = tokens.leave([missing, "images", str(tmp_path)], HOST)
    assert list(nonces) == [str(tmp_path)]
    assert sorted(problems) == sorted([missing, "images"])


@pytest.mark.parametrize("host_id", ["", "..", "../../etc/x", HOST.upper(), HOST + "\n"])
def test_what_is_no_host_id_becomes_no_path(tmp_path: pathlib.Path, host_id: str) -> None:
    nonces, problems = tokens.leave([str(tmp_path)], host_id)
    assert nonces == {}
    assert list(problems) == [str(tmp_path)]
    assert os.listdir(tmp_path) == []
