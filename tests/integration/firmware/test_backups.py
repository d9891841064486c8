# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups and moves: a move waits for a backup or refuses because of it, and checkpoints follow the guest, so that incremental backups continue."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.firmware.conftest import Backups
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually


@pytest.mark.long
def test_an_incremental_backup_at_the_destination_has_exactly_what_changed(lab: Lab, control: Desk, backups: Backups) -> None:
    backups.write(1, 1)
    backups.checkpoint(1, "monday")
    backups.write(1, 3)
    backups.checkpoint(1, "tuesday")
    backups.write(1, 5)
    done = control.move(backups.name, 2, transport="tcp")
    assert done.ended() == ("completed", None), done.text
    assert [one["name"] for one in done.record["before"]["checkpoints"]] == ["monday", "tuesday"]
    assert backups.checkpoints(2) == ["monday", "tuesday"]
    backups.write(2, 7)
    assert backups.changed_since(2, "tuesday") == [5, 7]
    assert backups.changed_since(2, "monday") == [3, 5, 7]


@pytest.mark.long
def test_a_move_waits_for_a_backup_or_refuses_and_names_it(lab: Lab, control: Desk, backups: Backups) -> None:
    uuid = lab.uuid(backups.name)
    backups.begin(1)
    (verdict,) = control.task(1, "scheduler_check", {"name": backups.name, "destination": lab.host(2), "transport": "tcp"}).result["verdicts"]
    assert [text for text in verdict["warnings"] if "has a job in progress (a backup)" in text], verdict
    refused = control.move(backups.name, 2, transport="tcp")
    assert refused.refused() == "invalid_state"
    assert "has a job in progress (a backup)" in refused.msg
    assert control.records() == []
    late = control.move(backups.name, 2, transport="tcp", busy_wait_seconds=3)
    assert late.refused() == "invalid_state"
    assert late.ended() == ("cancelled", "busy")
    assert "still has a backup after" in late.msg
    waiting = control.begin_move(backups.name, 2, transport="tcp", busy_wait_seconds=600)
    eventually(lambda: "waits for a backup" in str((lab.state_file(uuid) or {}).get("waits_for")), "the move waits")
    assert lab.places(backups.name) == {1: "running"}
    backups.end(1)
    done = waiting.wait()
    assert done.ended() == ("completed", None), done.text
    assert lab.places(backups.name) == {2: "running"}


@pytest.mark.long
def test_a_move_waits_for_the_copy_of_a_disk(lab: Lab, control: Desk, backups: Backups) -> None:
    target = "/var/lib/libvirt/images/copy.qcow2"
    lab("virsh", lab.host(1), "blockcopy", backups.name, "vda", target, "--transient-job")
    refused = control.move(backups.name, 2, transport="tcp")
    assert refused.refused() == "invalid_state"
    assert "has a job in progress (a copy of disk vda)" in refused.msg
    uuid = lab.uuid(backups.name)
    waiting = control.begin_move(backups.name, 2, transport="tcp", busy_wait_seconds=600)
    eventually(lambda: "waits for a copy of disk vda" in str((lab.state_file(uuid) or {}).get("waits_for")), "the move waits")
    lab.virsh(1, "blockjob", backups.name, "vda", "--abort")
    assert waiting.wait().ended() == ("completed", None)
    lab.on(1, "rm", "-f", target)


@pytest.mark.long
def test_checkpoints_survive_the_way_back_and_a_restart_of_libvirtd(lab: Lab, control: Desk, backups: Backups) -> None:
    backups.checkpoint(1, "monday")
    backups.write(1, 3)
    assert control.move(backups.name, 2, transport="tcp").ended() == ("completed", None)
    lab("libvirtd", lab.host(2), "restart")
    eventually(lambda: lab.places(backups.name).get(2) == "running", "libvirtd of the second host answers")
    assert backups.checkpoints(2) == ["monday"]
    home = control.task(2, "live_migrate", {"name": backups.name, "destination": lab.host(1), "transport": "tcp"})
    assert home.ended() == ("completed", None), home.text
    assert backups.checkpoints(1) == ["monday"]
    assert backups.changed_since(1, "monday") == [3]


@pytest.mark.long
def test_a_chain_that_was_broken_before_the_move_is_named(lab: Lab, control: Desk, backups: Backups) -> None:
    backups.checkpoint(1, "monday")
    remove = {"execute": "block-dirty-bitmap-remove", "arguments": {"node": "libvirt-1-format", "name": "monday"}}
    lab.virsh(1, "qemu-monitor-command", backups.name, json.dumps(remove))
    done = control.move(backups.name, 2, transport="tcp")
    assert done.ended() == ("completed", "checkpoints_lost"), done.text
    assert "monday cannot be used at the destination" in str(done.record["history"])
    assert f"Not all checkpoints of domain {backups.name} can be used" in done.warnings
    assert lab.places(backups.name) == {2: "running"}


@pytest.mark.long
def test_a_move_that_was_aborted_leaves_the_chain_as_it_was(lab: Lab, control: Desk, guest: t.Callable[..., str]) -> None:
    name = guest("kept", "--mib", "64", "--dirty-mib", "40", "--storage", "bindfs")
    backups = Backups(lab, name)
    backups.checkpoint(1, "monday")
    running = control.begin_move(name, 2, transport="tcp", **HELD)
    lab.under_way(lab.uuid(name))
    backups.write(1, 3)
    aborted = control.task(1, "migration_abort", {"name": name})
    assert aborted.code == 0, aborted.text
    assert running.wait().ended() == ("cancelled", "operator")
    assert backups.checkpoints(1) == ["monday"]
    assert backups.changed_since(1, "monday") == [3]


@pytest.mark.long
@pytest.mark.parametrize("options", [{"post_copy": True, "bandwidth_mib": 1}, {"copy_storage": "full"}], ids=["post-copy", "copied disk"])
def test_checkpoints_follow_other_kinds_of_moves(lab: Lab, control: Desk, guest: t.Callable[..., str], options: dict[str, t.Any]) -> None:
    name = guest("kinds", "--mib", "48", "--storage", "local" if "copy_storage" in options else "bindfs")
    backups = Backups(lab, name)
    backups.checkpoint(1, "monday")
    backups.write(1, 3)
    done = control.move(name, 2, transport="tcp", on_timeout="force_complete", timeout_seconds=5, **options)
    assert done.ended() == ("completed", None), done.record["history"][-2]["detail"]
    assert backups.checkpoints(2) == ["monday"]
    backups.write(2, 7)
    assert backups.changed_since(2, "monday") == [3, 7]
