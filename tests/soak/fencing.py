# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's fence agent, with a list of whom it has killed: a guest that dies by it is accounted for by the device, not by the product."""

from __future__ import annotations

import os
import pathlib

from ansible_collections.kvmfleet.migration.tests.integration.support import agents

_SCRIPT = """\
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
input=$(cat)
plug=$(printf '%s\\n' "$input" | sed -nE 's/^(plug|port)=//p')
case "$input" in *action=off*|*action=reboot*)
    for pid in $(ip netns pids "$plug"); do
        tr '\\0' '\\n' < "/proc/$pid/cmdline" | sed -nE "s/^guest=([^,]+).*/$plug \\1/p"
    done >> '{log}' 2> /dev/null
esac
printf '%s\\n' "$input" | '{agent}'"""


class Device:
    """:arg folder: for the agent and its list."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._log = folder / "fenced"
        self._log.touch()
        self._read = 0
        real = agents.of_the_lab(folder)
        self.agent = agents.write(folder, "fence_soak", _SCRIPT.format(log=self._log, agent=real))
        os.chmod(self._log, 0o600)

    def new_victims(self) -> list[tuple[str, str]]:
        """Return who was on a host when that was switched off since the last call: host and guest."""
        with open(self._log, encoding="utf-8") as stream:
            stream.seek(self._read)
            text = stream.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        return [(host, guest) for host, _space, guest in (line.partition(" ") for line in whole.splitlines())]
