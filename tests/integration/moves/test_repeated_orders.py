# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible repeats a command whose SSH connection broke before the answer. The move that the first one has started is followed, and not refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
# Runs the real ssh. Once, after the command with this text in its arguments, or in the module that it gets as its input, it says that the connection broke.
SSH = """#!/bin/sh
input=$(mktemp)
case "$*" in
*python*) cat > "$input"; ssh "$@" < "$input";;
*) ssh "$@";;
esac
code=$?
if [ ! -e {mark} ] && {{ grep -q '{text}' "$input" || printf %s "$*" | grep -q '{text}'; }}; then touch {mark}; code=255; fi
rm -f "$input"
exit $code
"""


@pytest.mark.parametrize(
    ("module", "made", "options", "text", "ends"),
    [
        pytest.param("live_migrate", ["--mib", "64"], {}, "[.]orders", "running", id="live"),
        pytest.param("cold_migrate", ["--off"], {"method": "offline"}, '"phase": "move"', "shut off", id="cold"),
    ],
)
def test_a_command_that_was_repeated_starts_nothing_twice(
    lab: Lab, control: Control, guest: Make, module: str, made: list[str], options: dict[str, t.Any], text: str, ends: str
) -> None:
    ssh, mark = control.folder / "ssh", control.folder / "broken"
    ssh.write_text(SSH.format(mark=mark, text=text), encoding="utf-8")
    ssh.chmod(0o755)
    name = guest("web", *made)
    broken = ["-e", f"ansible_ssh_executable={ssh}", "-e", "ansible_ssh_retries=1"]
    done = control.task(1, module, {"name": name, "destination": lab.host(2), **options}, *broken)
    assert mark.exists()
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert lab.places(name) == {2: ends}
    assert control.only_record() == done.record
