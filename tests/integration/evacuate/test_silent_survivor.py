# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A survivor dies while it starts its share, and the SSH client of the control node is configured as most are: it waits for TCP, which is silent for hours."""

from __future__ import annotations

import pathlib
import re
import time

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import BEFORE, Hooks
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site


@pytest.mark.long
def test_a_survivor_that_dies_does_not_hold_the_evacuation(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    guest("web")
    given = pathlib.Path(re.findall(r"-F (\S+)", pathlib.Path(site.inventory, "hosts.yml").read_text())[0]).read_text()
    plain = tmp_path / "ssh_config"
    plain.write_text("".join(line for line in given.splitlines(keepends=True) if "ServerAlive" not in line))
    # Without a connection of an earlier task that is still open.
    site.variable(2, "ansible_ssh_common_args", f"-F {plain}")
    site.variable(2, "ansible_ssh_args", "-o ControlPath=none")
    site.protect()
    hooks = Hooks(site.lab, 2)
    hooks.hold(BEFORE, "web")
    site.lose(1)
    running = site.begin_evacuation(2)
    hooks.wait_for(BEFORE, "web")
    # A power cut in the lab closes connections, unless the cable is cut first.
    site.lab("cut", site.lab.host(2))
    site.lose(2)
    begun = time.monotonic()
    done = running.wait()
    # The keepalive of the collection needs 90 s; without it, the task would be waiting for hours.
    assert time.monotonic() - begun < 300
    assert done.code != 0
    assert "cannot be reached" in done.text
    assert site.record_summaries()[0][:2] == ("web", "pre-migrating")
    hooks.let_go(BEFORE, "web")
    site.lab("heal", site.lab.host(2))
    site.bring_back(2)
    again = site.evacuate(2)
    assert again.code == 0, again.text
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
