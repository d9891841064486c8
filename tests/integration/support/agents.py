# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fence agents: the lab's, and some that are not as they should be."""

from __future__ import annotations

import os
import pathlib

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND

PASSWORD = "hunter2 'of' the BMC"

HANGS = "sleep 3600 & sleep 3600"
# It tells its input to the world, and then whatever the lab says.
TALKS = 'input=$(cat)\necho "$input"\necho "$input" >&2\necho "$input" | '
SAYS_ON = "cat > /dev/null; echo 'Status: ON'"
SAYS_OFF = "cat > /dev/null; echo 'Status: OFF'; exit 2"


def write(folder: pathlib.Path, name: str, script: str) -> str:
    """Write an agent and return its path. An agent does not see our environment, which says where this lab is."""
    agent = folder / name
    agent.write_text(f"#!/bin/sh\nexport KVMFLEET_LAB_STATE='{os.environ.get('KVMFLEET_LAB_STATE', '')}'\n{script}\n")
    agent.chmod(0o755)
    return str(agent)


def of_the_lab(folder: pathlib.Path) -> str:
    return write(folder, "fence_lab", f"exec '{COMMAND.with_name('fence_lab')}'")


def that_talks(folder: pathlib.Path) -> str:
    return write(folder, "fence_talks", f"{TALKS}'{COMMAND.with_name('fence_lab')}'")
