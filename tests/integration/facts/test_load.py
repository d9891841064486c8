# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The load of real hosts and guests. All hosts of the lab have one kernel, so their pressure is that of the machine; libvirt makes no control groups here."""

from __future__ import annotations

import json
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Facts, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
FOLDER = "/run/kvmfleet/load"
# What the kernel of a host does not have to have.
OPTIONAL = {"load.cpu_pressure", "load.memory_pressure", "load.io_pressure", "load.ksm_saved_mib"}
MEANS = ("cpu_used_share", "cpu_steal_share", "disk_bytes_per_second")


@pytest.fixture(autouse=True)
def clean(lab: Lab) -> t.Iterator[None]:
    """Let no reading of another test be there."""
    yield
    lab.on(1, "rm", "-rf", FOLDER)


def load_of(facts: Facts, name: str) -> Facts:
    return t.cast("Facts", next(domain for domain in facts["domains"] if domain["name"] == name)["load"])


def readings(lab: Lab) -> list[str]:
    return lab.on(1, "ls", FOLDER).split()


def test_a_second_task_reports_the_mean_since_the_first(lab: Lab, control: Control, guest: Make) -> None:
    guest("busy", "--mib", "96", "--dirty-mib", "64", "--rate", "200000")
    guest("idle", "--mib", "32")
    guest("off", "--mib", "32", "--off")
    first = control.facts(1, load_seconds=300)
    assert [first["load"][name] for name in MEANS] == [None] * 3
    assert (first["load"]["memory_used_mib"] > 0, {*first["unverified"]} <= OPTIONAL) == (True, True)
    assert (load_of(first, "busy")["cpu_cores_used"], load_of(first, "busy")["memory_used_mib"] > 60) == (None, True)
    (stored,) = readings(lab)
    assert lab.on(1, "stat", "-c", "%a %U", FOLDER, f"{FOLDER}/{stored}").split() == ["700", "root", "600", "root"]
    time.sleep(6)
    second = control.facts(1, load_seconds=300)
    load, busy, idle = second["load"], load_of(second, "busy"), load_of(second, "idle")
    assert load["interval_seconds"] >= 5
    assert all(0 <= load[name] <= 1 for name in MEANS[:2])
    assert load["cpu_used_share"] > 0
    assert busy["cpu_cores_used"] > idle["cpu_cores_used"] >= 0
    assert (busy["cpu_cores_waiting"] >= 0, idle["disk_bytes_per_second"], idle["network_bytes_per_second"]) == (True, 0, 0)
    assert "period" in busy["unknown"]["available_in_guest_mib"]
    assert "control group" in busy["unknown"]["cpu_pressure"]
    assert [domain["name"] for domain in second["domains"] if "load" not in domain] == ["off"]


@pytest.mark.long
def test_a_domain_that_was_restarted_has_no_mean(lab: Lab, control: Control, guest: Make) -> None:
    guest("web", "--mib", "32")
    control.facts(1, load_seconds=300)
    lab.virsh(1, "destroy", "web")
    lab.virsh(1, "start", "web")
    time.sleep(6)
    load = load_of(control.facts(1, load_seconds=300), "web")
    assert (load["cpu_cores_used"], "after the earlier reading" in load["unknown"]["cpu_cores_used"]) == (None, True)


@pytest.mark.long
def test_stored_readings_are_limited_and_damaged_ones_are_skipped(lab: Lab, control: Control, guest: Make) -> None:
    guest("web", "--mib", "32")
    control.facts(1, load_seconds=300)
    (stored,) = readings(lab)
    number = int(stored.partition(".")[0])
    reading = json.loads(lab.on(1, "cat", f"{FOLDER}/{stored}"))
    # The names are seconds since the boot of the machine, which may have been minutes ago.
    damaged = " ".join(f"{number - 101 - back}.json" for back in range(60))
    lab.on(1, "sh", "-c", f"cd {FOLDER} && for name in {damaged}; do head -c 200 /dev/urandom >$name; done; mkdir {number - 1}.json")
    older = {**reading, "at": {**reading["at"], "seconds": reading["at"]["seconds"] - 100}}
    lab.on(1, "sh", "-c", f"mv {FOLDER}/{stored} /tmp/{stored}.kept; echo '{json.dumps(older)}' >{FOLDER}/{number - 100}.json")
    facts = control.facts(1, load_seconds=300)
    lab.on(1, "rm", f"/tmp/{stored}.kept")
    assert 100 <= facts["load"]["interval_seconds"] < 400
    assert load_of(facts, "web")["cpu_cores_used"] is not None
    assert len(readings(lab)) == 32


@pytest.mark.long
def test_without_the_option_and_in_check_mode_nothing_is_stored(lab: Lab, control: Control, guest: Make) -> None:
    guest("web", "--mib", "32")
    facts = control.facts(1)
    assert ("load" in facts, [domain for domain in facts["domains"] if "load" in domain]) == (False, [])
    command = control.ad_hoc_command(1, "host_facts", {"load_seconds": 300}, ledger=False)
    checked = Running(control.popen([*command, "--check"])).wait().result["ansible_facts"]["kvmfleet_host"]
    assert checked["load"]["memory_used_mib"] > 0
    assert lab.on(1, "sh", "-c", f"ls -d {FOLDER} 2>/dev/null || echo none").strip() == "none"


@pytest.mark.long
def test_a_user_has_what_the_kernel_averages_and_the_reason_for_the_rest(lab: Lab, control: Control, guest: Make) -> None:
    guest("web", "--mib", "32")
    control.facts(1, load_seconds=300)
    facts = Control(lab, control.folder, "--user", "operator").facts(1, load_seconds=300)
    assert "only root can read it" in facts["unverified_reasons"]["load.cpu_used_share"]
    assert {name for name in facts["unverified_reasons"] if name.startswith("load.")} <= {f"load.{name}" for name in facts["load"]}
    assert facts["load"]["memory_used_mib"] > 0
    assert len(readings(lab)) == 1


@pytest.mark.long
def test_a_time_out_of_range_is_refused(lab: Lab, control: Control) -> None:
    for seconds in (-1, 86401):
        module = ["-m", "kvmfleet.migration.host_facts", "-a", f"load_seconds={seconds}"]
        assert Running(control.popen(["ansible", "-i", control.inventory, lab.host(1), *module])).wait().refused() == "invalid_argument"
