# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import write_sights
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.inferred_sights import infer_sights, keep_folder_names
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import FOLDER, ID1, ID2, ID3

ID4 = "4b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a04"
DISK, WWN = "/dev/sdb", "wwn:0x5000c500a1b2c3d4"
Items = Mapping[str, str]


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def add_host(ledger: FileLedger, host_id: str, folders: Items, devices: Items | None = None, **sees: Items) -> None:
    """Add a host, and what it has read: the tokens and devices of others by the name of each, such as C(host1)."""
    entry = {"name": f"host{host_id[-1]}", "host_id": host_id, "host_uuid": None, "state": "enabled", "reason": None}
    ledger.put_host(host_entry({**entry, "folders": folders, "devices": devices or {}}), None)
    by_name = {"host1": ID1, "host2": ID2, "host3": ID3, "host4": ID4}
    write_sights(ledger, host_id, {by_name[name]: dict(seen) for name, seen in sees.items()})


def infer(ledger: FileLedger, names_here: t.Callable[[HostEntry], Mapping[str, str]] = keep_folder_names) -> dict[str, dict[str, t.Any]]:
    """Return what others see of the first host, without hosts that see nothing."""
    return {other: dict(seen) for other, seen in infer_sights(ledger, list_entries(ledger), ID1, names_here).items() if seen}


def test_a_new_token_is_seen_by_those_who_see_the_same_token_of_a_third_host(ledger: FileLedger) -> None:
    add_host(ledger, ID1, {FOLDER: "one"}, host2={FOLDER: "two"})
    add_host(ledger, ID2, {FOLDER: "two"})
    add_host(ledger, ID3, {}, host2={FOLDER: "two"})
    add_host(ledger, ID4, {}, host2={FOLDER: "older"})
    assert infer(ledger) == {ID2: {FOLDER: "one"}, ID3: {FOLDER: "one"}}


def test_what_a_host_has_read_itself_needs_no_third_host(ledger: FileLedger) -> None:
    add_host(ledger, ID1, {FOLDER: "one"})
    add_host(ledger, ID2, {FOLDER: "two"}, host1={FOLDER: "one"})
    add_host(ledger, ID3, {FOLDER: "three"}, host2={FOLDER: "two"})
    assert infer(ledger) == {ID2: {FOLDER: "one"}}


@pytest.mark.parametrize("seen", [{}, {FOLDER: "older"}, {"/srv/other": "two"}])
def test_a_token_that_the_host_does_not_see_now_in_that_folder_proves_nothing(ledger: FileLedger, seen: Items) -> None:
    add_host(ledger, ID1, {FOLDER: "one"}, host2=seen)
    add_host(ledger, ID2, {FOLDER: "two", "/srv/other": "two"})
    add_host(ledger, ID3, {}, host2={FOLDER: "two", "/srv/other": "two"})
    assert infer(ledger) == {}


def test_a_folder_is_the_same_by_the_names_of_each_host(ledger: FileLedger) -> None:
    add_host(ledger, ID1, {"/data": "one", "/srv/fast": "slow"}, host2={"/srv/fast": "two"})
    add_host(ledger, ID2, {"/srv/fast": "two"})
    add_host(ledger, ID3, {}, host2={"/srv/fast": "two"})
    assert infer(ledger, lambda _peer: {"/srv/fast": "/data"}) == {ID2: {"/data": "one"}, ID3: {"/data": "one"}}


def test_a_device_is_the_same_by_its_identity(ledger: FileLedger) -> None:
    add_host(ledger, ID1, {}, {DISK: WWN, "/dev/sdc": "wwn:0x1"}, host2={DISK: WWN, "/dev/sdc": "wwn:0x2"})
    add_host(ledger, ID2, {}, {DISK: WWN, "/dev/sdc": "wwn:0x2"})
    add_host(ledger, ID3, {}, host2={DISK: WWN, "/dev/sdc": "wwn:0x2"})
    assert infer(ledger) == {ID2: {DISK: WWN}, ID3: {DISK: WWN}}


def test_without_a_ledger_or_an_entry_nothing_is_seen(ledger: FileLedger) -> None:
    add_host(ledger, ID2, {FOLDER: "two"})
    assert infer(ledger) == {}
    assert infer_sights(None, (), ID1, keep_folder_names) == {}
