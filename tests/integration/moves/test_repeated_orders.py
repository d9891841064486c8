# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible repeats a command whose SSH connection broke before the answer. The move that the first one has started is followed, and not refused."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.run import LOCK_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.broken_ssh import BREAKS_AFTERWARDS, BREAKS_BEFORE, BREAKS_MEANWHILE, BrokenSsh
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
COLD_ORDER = '"phase": "move"'
# Memory that takes longer than a cold move waits for a lock.
SLOW_MBIT, LONG = 8, ["--mib", "128", "--dirty-mib", "80"]


@pytest.mark.parametrize(
    ("module", "made", "options", "text", "ends"),
    [
        pytest.param("live_migrate", ["--mib", "64"], {}, "[.]orders", "running", id="live"),
        pytest.param("cold_migrate", ["--off"], {"method": "offline"}, COLD_ORDER, "shut off", id="cold", marks=pytest.mark.long),
    ],
)
def test_a_command_that_was_repeated_starts_nothing_twice(
    lab: Lab, control: Control, guest: Make, module: str, made: list[str], options: dict[str, t.Any], text: str, ends: str
) -> None:
    name = guest("web", *made)
    ssh = BrokenSsh(control.folder, text, BREAKS_AFTERWARDS)
    done = control.task(1, module, {"name": name, "destination": lab.host(2), **options}, *ssh.options)
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert (ssh.count_commands(), lab.places(name)) == (2, {2: ends})
    assert control.only_record() == done.record


def test_orders_that_did_not_arrive_are_sent_again_by_the_task_itself(lab: Lab, control: Control, guest: Make) -> None:
    """Without C(ansible_ssh_retries), Ansible reports a broken connection at once."""
    name = guest("web", "--mib", "64")
    ssh = BrokenSsh(control.folder, "[.]orders", BREAKS_BEFORE)
    done = control.move(name, 2, *ssh.options, "-e", "ansible_ssh_retries=0")
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert (ssh.count_commands(), lab.places(name)) == (2, {2: "running"})
    assert control.only_record() == done.record


@pytest.mark.long
def test_a_cold_move_that_is_repeated_while_it_works_is_followed(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("web", *LONG)
    lab.virsh(1, "managedsave", name)
    slow_hosts = [lab.host(number) for number in (1, 2)]
    for host in slow_hosts:
        lab("slow", host, "--mbit", str(SLOW_MBIT))
    ssh = BrokenSsh(control.folder, COLD_ORDER, BREAKS_MEANWHILE)
    done = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "offline"}, *ssh.options)
    for host in slow_hosts:
        lab("heal", host)
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert (ssh.count_commands(), lab.places(name), lab.info(name, 2)["Managed save"]) == (2, {2: "shut off"}, "yes")
    record = control.only_record()
    assert record == done.record
    begun, ended = (datetime.datetime.fromisoformat(record["history"][at]["at"]) for at in (0, -1))
    assert (ended - begun).total_seconds() > LOCK_SECONDS
