# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible repeats a command whose SSH connection broke before the answer. The move that the first one has started is followed, and not refused."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.run import LOCK_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
# Runs the real ssh. Once, for the command with this text in its arguments, or in the module that it gets as its input, it says that the connection broke.
SSH = """#!/bin/sh
input=$(mktemp)
case "$*" in
*python*) cat > "$input"; exec < "$input";;
esac
grep -q '{text}' "$input" || printf %s "$*" | grep -q '{text}'
if [ $? -ne 0 ] || [ -e {mark} ]; then rm -f "$input"; exec ssh "$@"; fi
touch {mark}
{once}
rm -f "$input"
exit 255
"""
# The connection breaks when the command has ended, or a moment after it has begun.
AFTERWARDS, MEANWHILE = 'ssh "$@"', 'ssh "$@" < "$input" > /dev/null 2>&1 & sleep 3'
ORDER = '"phase": "move"'
# Memory that takes longer than a cold move waits for a lock.
SLOW_MBIT, LONG = 8, ["--mib", "128", "--dirty-mib", "80"]


@pytest.mark.parametrize(
    ("module", "made", "options", "text", "ends"),
    [
        pytest.param("live_migrate", ["--mib", "64"], {}, "[.]orders", "running", id="live"),
        pytest.param("cold_migrate", ["--off"], {"method": "offline"}, ORDER, "shut off", id="cold"),
    ],
)
def test_a_command_that_was_repeated_starts_nothing_twice(
    lab: Lab, control: Control, guest: Make, module: str, made: list[str], options: dict[str, t.Any], text: str, ends: str
) -> None:
    name = guest("web", *made)
    done = _repeat(control, module, {"name": name, "destination": lab.host(2), **options}, text, AFTERWARDS)
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert lab.places(name) == {2: ends}
    assert control.only_record() == done.record


@pytest.mark.long
def test_a_cold_move_that_is_repeated_while_it_works_is_followed(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("web", *LONG)
    lab.virsh(1, "managedsave", name)
    slow_hosts = [lab.host(number) for number in (1, 2)]
    for host in slow_hosts:
        lab("slow", host, "--mbit", str(SLOW_MBIT))
    done = _repeat(control, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "offline"}, ORDER, MEANWHILE)
    for host in slow_hosts:
        lab("heal", host)
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert (lab.places(name), lab.info(name, 2)["Managed save"]) == ({2: "shut off"}, "yes")
    record = control.only_record()
    assert record == done.record
    begun, ended = (datetime.datetime.fromisoformat(record["history"][at]["at"]) for at in (0, -1))
    assert (ended - begun).total_seconds() > LOCK_SECONDS


def _repeat(control: Control, module: str, options: dict[str, t.Any], text: str, once: str) -> Outcome:
    """Run the module with an ssh whose connection breaks once."""
    ssh, mark = control.folder / "ssh", control.folder / "broken"
    ssh.write_text(SSH.format(mark=mark, text=text, once=once), encoding="utf-8")
    ssh.chmod(0o755)
    done = control.task(1, module, options, "-e", f"ansible_ssh_executable={ssh}", "-e", "ansible_ssh_retries=1")
    assert mark.exists()
    return done
