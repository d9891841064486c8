# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet takes its ledger from a folder into etcd and back, and guests move before, between and after."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.ledger.conftest import Node
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
Etcd = t.Callable[..., str]


def on_control_node(node: Node, module: str, *options: str, **arguments: t.Any) -> Outcome:
    """Run a module ad hoc on the control node, as a person does."""
    command = ["ansible", "localhost", "-i", node.inventory, "-m", f"kvmfleet.migration.{module}", "-a", json.dumps(arguments), "-e", "@variables.json"]
    return Running(node.popen([*command, *options])).wait()


def verified(node: Node, ledger: str) -> int:
    """Return how many closed records a ledger has that verifies."""
    outcome = on_control_node(node, "ledger_info", ledger=ledger, verify=True)
    assert outcome.code == 0, outcome.text
    assert outcome.result["intact"]
    return int(outcome.result["counts"]["closed"])


def move(lab: Lab, node: Node, name: str, to: int, ledger: str) -> Outcome:
    """Move the guest between the first two hosts."""
    return node.task(3 - to, "live_migrate", {"name": name, "destination": lab.host(to), "ledger": ledger})


@pytest.mark.long
def test_a_ledger_is_copied_from_a_folder_into_etcd_and_back(lab: Lab, etcd: Etcd, guest: Make, tmp_path: pathlib.Path) -> None:
    node = Node(lab, tmp_path / "one")
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    web = guest("web", "--mib", "32", "--dirty-mib", "8", "--rate", "200", "--integrity")
    assert move(lab, node, web, 2, old).ended() == ("completed", None)

    planned = on_control_node(node, "ledger_copy", "--check", ledger=old, to=node.where)
    assert planned.changed, planned.text
    moved = on_control_node(node, "ledger_copy", ledger=old, to=node.where)
    assert (moved.code, moved.changed) == (0, True), moved.text
    refused = move(lab, node, web, 1, old)
    assert refused.refused() == "invalid_state", refused.text
    assert node.where in refused.msg
    assert lab.places(web) == {2: "running"}

    assert move(lab, node, web, 1, node.where).ended() == ("completed", None)
    assert verified(node, node.where) == 2
    assert not on_control_node(node, "ledger_copy", ledger=old, to=node.where).changed

    back = on_control_node(node, "ledger_copy", ledger=node.where, to=new)
    assert (back.code, back.changed) == (0, True), back.text
    assert move(lab, node, web, 2, new).ended() == ("completed", None)
    assert verified(node, new) == 3
    assert {verified(node, place) for place in (old, node.where)} == {1, 2}
    assert lab.places(web) == {2: "running"}
    assert lab.check(web)["intact"]
