# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An ssh for Ansible that runs the real one, but for one command, which takes its time, or whose connection breaks, so that Ansible sends it again."""

from __future__ import annotations

import dataclasses
import pathlib

# What happens instead of the command, as lines of a shell: the connection breaks before it has begun, when it has ended, or a moment after it has begun; or its
# way takes long.
BREAKS_BEFORE = "code=255"
BREAKS_AFTERWARDS = 'ssh "$@"; code=255'
BREAKS_MEANWHILE = 'ssh "$@" < "$input" > /dev/null 2>&1 & sleep 3; code=255'
IS_SLOW = 'sleep 20; ssh "$@"; code=$?'

_SCRIPT = """#!/bin/sh
input=$(mktemp)
case "$*" in
*python*) cat > "$input"; exec < "$input";;
esac
grep -q '{text}' "$input" || printf %s "$*" | grep -q '{text}'
if [ $? -ne 0 ]; then rm -f "$input"; exec ssh "$@"; fi
echo command >> {log}
if [ $(wc -l < {log}) -ne 1 ]; then rm -f "$input"; exec ssh "$@"; fi
{instead}
rm -f "$input"
exit $code
"""


@dataclasses.dataclass
class BrokenSsh:
    """C(options) are those of Ansible with which it uses this ssh.

    :arg folder: where the program is written.
    :arg text: a pattern in the arguments of the command, or in the module that it gets as its input.
    :arg instead: what happens instead of the first such command.
    """

    folder: pathlib.Path
    text: str
    instead: str

    def __post_init__(self) -> None:
        self._log = self.folder / "ssh.log"
        program = self.folder / "ssh"
        program.write_text(_SCRIPT.format(text=self.text, log=self._log, instead=self.instead), encoding="utf-8")
        program.chmod(0o755)
        self.options = ["-e", f"ansible_ssh_executable={program}", "-e", "ansible_ssh_retries=1"]

    def count_commands(self) -> int:
        """Return how often the command was sent."""
        return len(self._log.read_text(encoding="utf-8").splitlines()) if self._log.exists() else 0
