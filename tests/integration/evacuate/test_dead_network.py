# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network that drops packets: nothing refuses a connection, and nothing says that a host cannot be reached."""

from __future__ import annotations

import datetime
import pathlib
import time

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

# Ansible waits this long for a host to open a connection; then libvirt takes 23 s. The probes have 5 s, and the rest is for a machine that is busy:
# docs/benchmarks.md has the seconds of an idle one.
OPENING_SECONDS, JUDGED_WITHIN_SECONDS = 60, 60


def note_fencing(site: Site, folder: pathlib.Path) -> pathlib.Path:
    """Let the fence agent of the first host note when it is told to switch that host off; return the note."""
    note = folder / "fenced-at"
    script = f'input=$(cat)\necho "$input" | grep -q action=off && date +%s > {note}\necho "$input" | \'{COMMAND.with_name("fence_lab")}\''
    site.fencing(1, site.agent(1, agents.write(folder, "fence_noted", script)))
    return note


def test_a_host_behind_a_dead_network_is_judged_in_seconds_and_a_silent_survivor_is_named(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    """The limit of the user, for other hosts, does not apply to the one that is probably dead. The third host is silent too, and could run the guests."""
    names = [guest(f"web{number}") for number in range(2)]
    site.protect()
    fenced_at = note_fencing(site, tmp_path)
    for number in (1, 3):
        site.lab("cut", site.lab.host(number), "--in")

    code, text = site.playbook("evacuate", source=site.name(1))
    assert code != 0, text
    assert f"accept_silent: [{site.name(3)}]" in " ".join(text.split())
    assert not fenced_at.exists()
    assert site.records() == []

    site.lab("heal", site.lab.host(3))
    begun = time.time()
    code, text = site.playbook("evacuate", source=site.name(1), ansible_timeout=OPENING_SECONDS)
    assert code == 0, text
    assert int(fenced_at.read_text()) - begun < JUDGED_WITHIN_SECONDS
    # Recent facts are not gathered again.
    assert "Query the domains and the capacity of the host" not in text
    there = site.fleet()
    assert sorted([*there[2], *there[3]]) == names
    assert {line[:2] for line in site.record_summaries()} == {(name, "done") for name in names}
    for record in site.records():
        kinds = [one["kind"] for one in record["evidence"]]
        assert kinds[:2] == ["fence_agent", "silence"], kinds
        silent_at = datetime.datetime.fromisoformat(record["evidence"][1]["at"])
        assert silent_at.timestamp() > int(fenced_at.read_text())
    site.verify_audit()


@pytest.mark.long
def test_a_silent_survivor_that_is_accepted_gets_no_share(site: Site, guest: Make) -> None:
    names = [guest(f"web{number}") for number in range(2)]
    site.protect()
    for number in (1, 3):
        site.lab("cut", site.lab.host(number), "--in")
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_accept_silent=[site.name(3)])
    assert code == 0, text
    site.lab("heal", site.lab.host(3))
    there = site.fleet()
    assert (sorted(there[2]), there.get(3, set())) == (names, set())
    assert {line[:2] for line in site.record_summaries()} == {(name, "done") for name in names}
    site.verify_audit()
