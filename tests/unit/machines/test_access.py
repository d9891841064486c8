# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How SSH logs in to whole machines, as the client itself reads its configuration."""

from __future__ import annotations

import pathlib
import subprocess

from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import access
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import Fleet


def test_a_login_may_take_a_minute_before_the_client_gives_up(tmp_path: pathlib.Path) -> None:
    """An emulated machine that starts the systemd manager of a user answers nothing meanwhile, on a busy machine for 25 s and more."""
    fleet = Fleet("kvf", tmp_path)
    access.create_keys(fleet)
    command = ["ssh", "-G", "-F", str(access.config_file(fleet)), "m1"]
    told = dict(line.split(" ", 1) for line in subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines())
    assert int(told["serveraliveinterval"]) * int(told["serveralivecountmax"]) >= 60
