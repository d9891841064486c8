# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Old records of a ledger in etcd are archived while a guest moves, and the hosts that remember those moves are not told that the ledger was set back."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.clocks import Clock
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.moments import PROBE
from ansible_collections.kvmfleet.migration.tests.integration.ledger.conftest import Node
from ansible_collections.kvmfleet.migration.tests.integration.ledger.test_moving import Etcd, Make, move, on_control_node, verified
from ansible_collections.kvmfleet.migration.tests.integration.ledger.test_on_etcd import HELD, SLOW, SMALL, check_arrived
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

DAYS = 86_400


def archive(node: Node, to: str, *options: str) -> Outcome:
    """Archive with the default age."""
    return on_control_node(node, "ledger_archive", *options, ledger=node.where, to=to)


def test_old_moves_are_archived_while_a_guest_moves(lab: Lab, etcd: Etcd, guest: Make, tmp_path: pathlib.Path) -> None:
    node, later, to = Node(lab, tmp_path / "now"), Node(lab, tmp_path / "later"), str(tmp_path / "archive")
    clock = Clock(tmp_path / "clock")
    later.environment.update(clock.environment, PYTHONPATH=f"{PROBE}:{later.environment.get('PYTHONPATH', '')}")
    web, slow = guest("web", *SMALL), guest("slow", *SLOW)
    for destination in (2, 1, 2):
        assert move(lab, node, web, destination, node.where).ended() == ("completed", None)
    nothing = archive(later, to)
    assert (nothing.code, nothing.changed, nothing.result["records"]) == (0, False, 0), nothing.text

    clock.jump(100 * DAYS)
    moving = node.begin_move(slow, **HELD)
    lab.under_way(lab.uuid(slow))
    predicted = archive(later, to, "--check")
    assert predicted.changed, predicted.text
    done = archive(later, to)
    assert (done.code, done.changed) == (0, True), done.text
    assert {key: done.result[key] for key in ("records", "kept")} == {key: predicted.result[key] for key in ("records", "kept")}
    assert (done.result["records"], done.result["kept"]["newest_of_domain"]) == (2, 1)
    assert done.result["lines"] > 10
    lab.hurry(slow)
    assert moving.wait().ended() == ("completed", None)
    check_arrived(lab, slow, 2)

    assert (verified(node, node.where), verified(node, to)) == (2, 2)
    listed = on_control_node(node, "ledger_info", ledger=node.where)
    assert [one["to"] for one in listed.result["archives"]] == [to], listed.text
    for number in (1, 2):
        protected = node.task(number, "protect", {"ledger": node.where})
        assert (protected.code, protected.result.get("missing_records")) == (0, []), protected.text
    assert move(lab, node, web, 1, node.where).ended() == ("completed", None)
    refused = move(lab, node, web, 2, to)
    assert refused.refused() == "invalid_state", refused.text
    assert "can only be read" in refused.msg

    again = archive(later, to)
    assert again.result["records"] == 1, again.text
    assert (verified(node, node.where), verified(node, to)) == (2, 3)
    report = on_control_node(node, "report", ledger=to, dest=str(tmp_path / "report"), formats=["json"])
    assert (report.code, t.cast("dict[str, t.Any]", report.result["counts"])["completed"]) == (0, 3), report.text
    assert lab.places(web) == {1: "running"}
