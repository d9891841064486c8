# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of the load timer on a real host. No systemd runs there, so nothing starts it at intervals."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
FOLDER, PROGRAM = "/run/kvmfleet/load", "/usr/local/lib/kvmfleet/kvmfleet-load.pyz"


def run_module(control: Control, *options: str, **arguments: t.Any) -> Outcome:
    return Running(control.popen([*control.ad_hoc_command(1, "load_timer", arguments, ledger=False), *options])).wait()


@pytest.fixture
def without_timer(lab: Lab, control: Control) -> t.Iterator[None]:
    yield
    run_module(control, state="absent")
    lab.on(1, "rm", "-rf", FOLDER)


@pytest.mark.usefixtures("without_timer")
def test_the_program_stores_a_reading_when_it_is_installed_and_can_be_removed(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("web", "--mib", "32")
    installed = run_module(control, interval_seconds=300)
    assert (installed.result["changed"], installed.result["systemd"], PROGRAM in installed.result["files"]) == (True, False, True)
    (stored,) = lab.on(1, "ls", FOLDER).split()
    assert lab.uuid(name) in json.loads(lab.on(1, "cat", f"{FOLDER}/{stored}"))["domains"]
    again = run_module(control, interval_seconds=300)
    assert (again.result["changed"], again.result["files"]) == (False, [])
    removed = run_module(control, state="absent")
    assert sorted(removed.result["files"]) == sorted(installed.result["files"])
    assert "kvmfleet-load" not in lab.on(1, "sh", "-c", "ls -R /usr/local/lib/kvmfleet /etc/systemd/system")


@pytest.mark.long
def test_a_user_and_a_wrong_interval_change_nothing(lab: Lab, control: Control) -> None:
    assert run_module(Control(lab, control.folder, "--user", "operator"), state="present").refused() == "forbidden"
    assert run_module(control, interval_seconds=0).refused() == "invalid_argument"
    checked = run_module(control, "--check", state="present")
    assert checked.result["changed"] is True
    assert "kvmfleet-load" not in lab.on(1, "sh", "-c", "ls -R /usr/local/lib /etc/systemd/system")
