# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the lease: numbers that are never used twice, and the state of one boot."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import state as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal

from .conftest import OWN


def make_state(**changes: t.Any) -> m.LeaseState:
    known = {
        "at": encode(boot_moment()),
        "host_id": OWN,
        "count": 7,
        "reserved": 100,
        "held_until": 0.0,
        "runs_until": 0.0,
        "held_since": 0,
        "fleets": [[OWN]],
        "acknowledged_revision": 0,
        "path": "",
        "problem": "",
    }
    return decode(m.LeaseState, {**known, **changes})


def test_each_block_of_numbers_lies_above_all_that_were_reserved(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "kept/lease-count")
    assert m.read_reserved_count(path) is None
    first = m.reserve_counts(0, path)
    assert (first, m.read_reserved_count(path)) == (m.BLOCK, m.BLOCK)
    assert m.reserve_counts(0, path) == 2 * m.BLOCK
    # The host has lost its file, and the ledger remembers a renewal.
    pathlib.Path(path).unlink()
    assert m.reserve_counts(777, path) == 777 + m.BLOCK


@pytest.mark.parametrize("content", ["", "seven", "-1", "1" * 30, "1.5", "\0\0\0\0"])
def test_a_count_that_is_damaged_is_not_guessed(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / "lease-count"
    path.write_text(content)
    for ask in (m.read_reserved_count, lambda path: m.reserve_counts(0, path)):
        with pytest.raises(Internal, match="is not a number"):
            ask(str(path))
    assert path.read_text() == content


def test_the_state_is_of_one_boot(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "lease.json")
    assert m.read_lease_state(path) is None
    state = make_state()
    m.write_lease_state(state, path)
    assert m.read_lease_state(path) == state
    m.write_lease_state(make_state(at={"boot_id": "another", "seconds": 1.0}), path)
    assert m.read_lease_state(path) is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", json.dumps({**encode(make_state()), "count": "seven"})], ids=["empty", "cut", "list", "no keys", "no number"]
)
def test_a_state_that_is_damaged_is_an_error(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / "lease.json"
    path.write_text(content)
    with pytest.raises(Internal, match="cannot be read"):
        m.read_lease_state(str(path))


def test_a_state_of_a_later_version_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text(json.dumps({**encode(make_state()), "later": [1]}))
    state = m.read_lease_state(str(path))
    assert state is not None
    assert state.count == 7


def test_a_second_change_of_the_etcd_keeps_what_was_promised_in_the_first_one_until_that_cannot_arrive_any_more() -> None:
    fleets = ((OWN,),)
    second = dataclasses.replace(make_state(store="first").change_store("second", 100.0), fleets=fleets)
    third = second.change_store("third", 200.0)
    assert third.promises == (m.Promise("first", fleets, 100.0 + m.LATEST_SECONDS), m.Promise("second", fleets, 200.0 + m.LATEST_SECONDS))


@pytest.mark.parametrize("was_held", [True, False])
def test_a_change_of_the_etcd_ends_a_lease_and_invents_none(was_held: bool) -> None:
    """A host that never had a lease must not be reset for the want of one."""
    changed = make_state(store="first", held_until=50.0 if was_held else 0.0).change_store("second", 10.0)
    assert (changed.view.was_held, changed.view.is_held(10.0)) == (was_held, False)
