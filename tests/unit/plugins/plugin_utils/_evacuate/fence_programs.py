# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fence agents as real programs that the tests write."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FenceDevice, FencingConfig, parse_fencing

SECRET = "S3cret/of+the BMC's"

# By the convention; its "BMC" is a file with the host's power, and it keeps a list of what it was asked for.
GOOD = """
while IFS='=' read -r name value; do case "$name" in action) action=$value;; esac; done
echo "$action" >> "$0.asked"
case "$action" in
off) echo off > "$0.power"; echo "Success: Powered OFF";;
status) if grep -q on "$0.power"; then echo "Status: ON"; exit 0; else echo "Status: OFF"; exit 2; fi;;
*) exit 1;;
esac
"""


class Agent:
    """A fence agent in a folder of the test's own."""

    def __init__(self, folder: pathlib.Path, body: str = GOOD, power: str = "on", shell: str = "/bin/sh", name: str = "fence_test") -> None:
        self.path = folder / name
        self.write(body, shell)
        self.switch(power)

    def write(self, body: str, shell: str = "/bin/sh") -> None:
        """Give the agent this program from now on."""
        self.path.write_text(f"#!{shell}\n{body}")
        self.path.chmod(0o755)

    def switch(self, power: str) -> None:
        self.file("power").write_text(f"{power}\n")

    def file(self, name: str) -> pathlib.Path:
        return self.path.with_name(f"{self.path.name}.{name}")

    def asked(self) -> list[str]:
        """Return the actions that it was asked for."""
        return self.file("asked").read_text().split() if self.file("asked").exists() else []

    def config(self, options: dict[str, t.Any] | None = None, **more: t.Any) -> FencingConfig:
        given = {"agent": str(self.path), "options": options or {"plug": "kvm1", "password": SECRET}, **more}
        config = parse_fencing(given, "kvm1")
        assert config is not None
        return config

    def device(self, options: dict[str, t.Any] | None = None, **more: t.Any) -> FenceDevice:
        """Return it as the only device of a host."""
        return self.config(options, **more).levels[0][0]

    def entry(self, **more: t.Any) -> dict[str, t.Any]:
        """Return it as a device of a level."""
        return {"agent": str(self.path), "options": {"plug": "kvm1", "password": SECRET}, **more}


def leveled(*levels: list[Agent], **more: t.Any) -> FencingConfig:
    """Return a host that is fenced by these levels of agents."""
    config = parse_fencing({"levels": [[agent.entry() for agent in level] for level in levels], **more}, "kvm1")
    assert config is not None
    return config
