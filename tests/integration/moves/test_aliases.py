# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of virsh for options: a move by them is the move by the names of the options, and two names of one option move nothing."""

from __future__ import annotations

import typing as t
import urllib.parse

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


@pytest.mark.long
def test_a_move_by_the_words_of_virsh_is_the_move_by_the_own_names(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("virsh")
    uri = control.move(name, 2, "--check").record["connection"]["destination_uri"]
    memory = f"tcp://{urllib.parse.urlsplit(uri).hostname}"
    own = {"name": name, "destination_uri": uri, "migrate_uri": memory, "timeout_seconds": 120, "downtime_ms": 300, "post_copy": True}
    first = control.task(1, "live_migrate", {**own, "bandwidth_mib": 900, "post_copy_bandwidth_mib": 800, "copy_storage": "full"})
    assert (first.code, first.ended()) == (0, ("completed", None)), first.text
    back = control.task(2, "live_migrate", {"guest": name, "destination": lab.host(1)})
    assert (back.code, lab.places(name)) == (0, {1: "running"}), back.text
    words = {"guest": name, "desturi": uri, "migrateuri": memory, "timeout": 120, "downtime": 300, "postcopy": True}
    second = control.task(1, "live_migrate", {**words, "bandwidth": 900, "postcopy_bandwidth": 800, "copy_storage": "all"})
    assert (second.code, second.ended()) == (0, ("completed", None)), second.text
    assert lab.places(name) == {2: "running"}
    assert second.record["policy"] == first.record["policy"]
    assert second.record["policy"]["timeout_seconds"] == {"value": 120, "source": "task"}
    assert second.record["policy"]["downtime_ms"] == {"value": 300, "source": "task"}
    assert second.record["connection"] == first.record["connection"]
    assert (second.record["connection"]["destination_uri"], second.record["connection"]["bandwidth_mib"]) == (uri, 900)


@pytest.mark.long
def test_two_names_of_one_option_move_nothing(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("doubled")
    done = control.move(name, 2, timeout=60, timeout_seconds=600)
    assert done.refused() == "invalid_argument"
    assert "names of one option" in done.msg
    assert lab.places(name) == {1: "running"}
    assert lab.state_file(lab.uuid(name)) is None


def test_a_drain_takes_the_words_of_virsh_for_its_moves(lab: Lab, control: Control) -> None:
    plan = {"sources": [lab.host(1)], "candidates": [lab.host(2)]}
    refused = control.task(1, "drain_plan", {**plan, "options": {"timeout": 60, "timeout_seconds": 600}})
    assert refused.refused() == "invalid_argument"
    assert "names of one option" in refused.msg
