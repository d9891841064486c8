# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(recover_host) on hosts that were drained, and on hosts that were dead."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]

SECONDS = 300


def names(entries: list[dict[str, t.Any]]) -> list[str]:
    return sorted(entry["name"] for entry in entries)


def boot_elsewhere(lab: Lab, name: str, xml: str, number: int) -> None:
    """Do what an evacuation does to a domain, by the lab's own means."""
    lab("virsh", lab.host(number), "define", "/dev/stdin", stdin=xml)
    lab.virsh(number, "start", name)


@pytest.mark.long
def test_a_drained_and_rebooted_host_is_recovered_with_all_its_guests(lab: Lab, operator: Operator, guest: Make) -> None:
    moved, stopped, off = guest("moved", "--autostart"), guest("stopped", "--acpi", "--autostart"), guest("off", "--off")
    operator.stop_on_drain(1, stopped)
    operator.protect()
    operator.drain(1)
    operator.power_cycle(1)
    assert list(lab.places(moved).values()) == ["running"]
    assert (1 in lab.places(moved), lab.places(stopped)) == (False, {1: "shut off"})

    predicted, own = operator.recover(1, "--check", recover_host_bring_home=True)
    assert (predicted.code, own["enabled"], own["released"]) == (0, True, True), predicted.text
    assert names(own["brought_home"]) == [moved]
    assert (operator.entry(1)["state"], lab.places(stopped)) == ("maintenance", {1: "shut off"})

    decided = operator.task(1, "boot_guard", {}).result
    run, own = operator.recover(1, recover_host_bring_home=True)
    assert (run.code, own["failed"], own["error"]) == (0, [], ""), run.text
    assert (names(own["started"]), names(own["brought_home"])) == ([stopped], [moved])
    assert (own["released"], own["enabled"], operator.entry(1)["state"]) == (True, True, "enabled")
    assert (lab.places(moved), lab.places(stopped), lab.places(off)) == ({1: "running"}, {1: "running"}, {1: "shut off"})

    lab.virsh(1, "destroy", stopped)
    # A recovery that was suspended after its decision, before the other one carried it out.
    work = {"boot_id": decided["guard"]["boot_id"]}
    for noted, why in ((decided["to_start"][0], "somebody has started it"), (None, "it was stopped (destroyed)")):
        command = operator.ad_hoc_command(1, "domain_start", {"name": stopped, "_work": {**work, "noted": noted}}, ledger=False)
        late = Running(operator.popen(command)).wait()
        assert (late.refused(), why in late.text) == ("invalid_state", True), late.text
    again, own = operator.recover(1, recover_host_bring_home=True)
    assert (again.code, own["started"], own["brought_home"]) == (0, [], []), again.text
    assert lab.places(stopped) == {1: "shut off"}


def test_a_drain_in_which_a_move_fails_publishes_what_is_left(lab: Lab, operator: Operator, guest: Make, slow: str) -> None:
    guest("web")
    lab("slow", lab.host(1), "--mbit", "8")
    run = operator.playbook("drain", target=lab.host(1), drain_host_options={"timeout_seconds": 5})
    lab("heal", lab.host(1))
    own = run.stats["drain_host_result"][lab.host(1)]
    assert (run.code, own["safe_to_reboot"], names(own["failed"]), names(own["moved"])) == (2, False, [slow], ["web"]), run.text


@pytest.mark.long
def test_a_guest_that_was_drained_twice_is_moved_back_to_its_origin_only(lab: Lab, operator: Operator, guest: Make) -> None:
    far = guest("far")
    uuid = lab.uuid(far)
    operator.protect()
    operator.drain(1)
    (first,) = lab.places(far)
    operator.drain(first)
    (second,) = lab.places(far)
    assert len({1, first, second}) == 3
    dummy, own = operator.recover(first, recover_host_bring_home=True)
    assert (own["brought_home"], own["enabled"], lab.places(far)) == ([], True, {second: "running"})

    run, own = operator.recover(1)
    assert (run.code, own["brought_home"], operator.origin(uuid)) == (0, [], lab.host(1)), run.text
    run, own = operator.recover(1, recover_host_bring_home=True)
    assert (run.code, names(own["brought_home"]), lab.places(far)) == (0, [far], {1: "running"}), run.text
    assert operator.origin(uuid) is None


@pytest.mark.long
def test_a_guest_that_no_longer_fits_is_not_moved_back_and_the_reason_is_reported(lab: Lab, operator: Operator, guest: Make) -> None:
    large = guest("large")
    operator.protect()
    operator.drain(1)
    places = lab.places(large)
    run, own = operator.recover(1, recover_host_bring_home=True, kvmfleet_scheduler={"reserved_memory_mib": 100000000})
    assert (run.code != 0, own["brought_home"], own["enabled"], lab.places(large)) == (True, [], True, places)
    assert [entry["name"] for entry in own["failed"] if "memory" in entry["reason"]] == [large], own


@pytest.mark.long
def test_a_host_that_does_not_come_back_keeps_its_state(lab: Lab, operator: Operator) -> None:
    operator.protect()
    operator.drain(1)
    lab("poweroff", lab.host(1))
    run, own = operator.recover(1, timeout=5)
    assert (run.code != 0, own["enabled"], own["released"], operator.entry(1)["state"]) == (True, False, False, "maintenance")
    assert "did not return within 5 s" in own["error"]


@pytest.mark.long
def test_a_host_without_its_identity_is_not_released(lab: Lab, operator: Operator, guest: Make) -> None:
    auto = guest("auto", "--autostart")
    operator.protect()
    operator.power_cycle(1)
    lab.on(1, "rm", "/var/lib/kvmfleet/host-id")
    run, own = operator.recover(1)
    assert (run.code != 0, own["released"], lab.places(auto)) == (True, False, {1: "shut off"})
    assert "lost its identity" in own["error"], own


@pytest.mark.long
def test_an_evacuated_guest_is_cleaned_and_the_other_guest_is_started(lab: Lab, operator: Operator, guest: Make) -> None:
    gone, stayed = guest("gone", "--autostart"), guest("stayed", "--autostart")
    uuid, xml = lab.uuid(gone), lab.virsh(1, "dumpxml", "--inactive", gone)
    operator.protect()
    lab("poweroff", lab.host(1))
    boot_elsewhere(lab, gone, xml, 2)
    record = operator.evacuated(gone, uuid, 1, 2)
    lab("poweron", lab.host(1))
    assert (lab.places(gone), lab.places(stayed)) == ({1: "shut off", 2: "running"}, {1: "shut off"})

    direct = operator.task(1, "boot_guard", {"state": "released"})
    assert (direct.refused(), direct.result["withheld_by"][0]["id"]) == ("unsafe", record)

    assert operator.task(2, "host", {"name": lab.host(1), "state": "fenced"}).code == 0
    run, own = operator.recover(1, recover_host_enable=False)
    assert (run.code, names(own["cleaned"]), names(own["started"])) == (0, [gone], [stayed]), run.text
    assert (lab.places(gone), lab.places(stayed)) == ({2: "running"}, {1: "running"})
    assert (operator.ledger.read_record(record).record.status, operator.entry(1)["state"], own["enabled"]) == ("completed", "maintenance", False)
    run, own = operator.recover(1, recover_host_bring_home=True)
    assert (run.code, names(own["brought_home"]), lab.places(gone)) == (0, [gone], {1: "running"}), run.text
    assert operator.entry(1)["state"] == "enabled"


@pytest.mark.long
@pytest.mark.parametrize("after", ["cleaned", "started"])
def test_the_next_run_finishes_a_recovery_whose_control_node_was_killed(lab: Lab, operator: Operator, guest: Make, after: str) -> None:
    gone, stayed = guest("gone", "--autostart"), guest("stayed", "--autostart")
    uuid, xml = lab.uuid(gone), lab.virsh(1, "dumpxml", "--inactive", gone)
    operator.protect()
    lab("poweroff", lab.host(1))
    boot_elsewhere(lab, gone, xml, 2)
    record = operator.evacuated(gone, uuid, 1, 2)
    lab("poweron", lab.host(1))
    running = operator.begin_playbook("recover", target=lab.host(1))
    reached = {"cleaned": lambda: lab.places(gone) == {2: "running"}, "started": lambda: lab.places(stayed) == {1: "running"}}
    eventually(reached[after], f"the run has {after}", SECONDS)
    running.kill()
    run, own = operator.recover(1)
    assert (run.code, own["failed"], own["error"], own["enabled"]) == (0, [], "", True), run.text
    assert (lab.places(gone), lab.places(stayed)) == ({2: "running"}, {1: "running"})
    assert (operator.ledger.read_record(record).record.status, operator.entry(1)["state"]) == ("completed", "enabled")
    lab.virsh(1, "destroy", stayed)
    again, own = operator.recover(1)
    assert (again.code, own["started"], lab.places(stayed)) == (0, [], {1: "shut off"}), again.text


@pytest.mark.long
def test_several_hosts_are_recovered_in_one_play(lab: Lab, operator: Operator, guest: Make) -> None:
    names = {number: guest(f"own{number}", on=number) for number in (1, 2)}
    operator.protect()
    for number in names:
        operator.drain(number)
    assert [lab.places(name) for name in names.values()] == [{3: "running"}] * 2
    for number in names:
        operator.power_cycle(number)
    target = ",".join(lab.host(number) for number in names)
    run = operator.playbook("recover", target=target, recover_host_bring_home=True, recover_host_timeout_seconds=120)
    assert run.code == 0, run.text
    result = run.stats["recover_host_result"]
    assert {host: (own["enabled"], len(own["brought_home"])) for host, own in result.items()} == {lab.host(number): (True, 1) for number in names}
    assert [lab.places(name) for name in names.values()] == [{1: "running"}, {2: "running"}]


@pytest.mark.long
def test_an_unknown_guest_that_a_drain_shut_down_is_started_by_the_recovery_of_its_host_alone(lab: Lab, operator: Operator, guest: Make) -> None:
    operator.protect()
    web = guest("web", "--acpi")
    operator.stop_on_drain(1, web)
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=lab.virsh(1, "dumpxml", "--inactive", web))
    lab.virsh(2, "autostart", web)
    operator.drain(1)
    for number in (1, 2):
        operator.power_cycle(number)
    run = operator.playbook("recover", target=f"{lab.host(1)},{lab.host(2)}", recover_host_timeout_seconds=120)
    refused = {host: names(own["failed"]) for host, own in run.stats["recover_host_result"].items()}
    assert (run.code != 0, refused) == (True, {lab.host(1): [web], lab.host(2): [web]}), run.text
    assert lab.places(web) == {1: "shut off", 2: "shut off"}
    # The hosts were protected at the end of the recovery.
    assert operator.ledger.read_domain(lab.uuid(web)) is None
    run, own = operator.recover(1)
    assert (run.code, names(own["started"]), lab.places(web)) == (0, [web], {1: "running", 2: "shut off"}), run.text


@pytest.mark.long
def test_a_host_is_not_released_while_the_cleanup_refuses_a_guest(lab: Lab, operator: Operator, guest: Make) -> None:
    lost, stayed = guest("lost", "--autostart"), guest("stayed", "--autostart")
    uuid = lab.uuid(lost)
    operator.protect()
    lab("poweroff", lab.host(1))
    record = operator.evacuated(lost, uuid, 1, 2)
    lab("poweron", lab.host(1))
    run, own = operator.recover(1)
    assert (run.code != 0, own["released"], own["enabled"], own["started"]) == (True, False, False, [])
    assert names(own["refused"]) == [lost], own
    assert (lab.places(lost), lab.places(stayed)) == ({1: "shut off"}, {1: "shut off"})
    assert operator.ledger.read_record(record).record.status == "done"


@pytest.mark.long
def test_a_guest_that_may_run_on_a_silent_host_is_not_started(lab: Lab, operator: Operator, guest: Make) -> None:
    auto = guest("auto", "--autostart")
    operator.protect()
    operator.power_cycle(1)
    lab("poweroff", lab.host(3))
    run, own = operator.recover(1)
    assert (run.code != 0, own["released"], own["started"], lab.places(auto)) == (True, True, [], {1: "shut off"})
    assert lab.host(3) in own["failed"][0]["reason"], own
    run, own = operator.recover(1, recover_host_accept_silent=[lab.host(3)])
    assert (run.code, names(own["started"]), lab.places(auto)) == (0, [auto], {1: "running"}), run.text


@pytest.mark.long
def test_a_guest_that_runs_elsewhere_outside_the_ledger_is_not_started(lab: Lab, operator: Operator, guest: Make) -> None:
    auto = guest("auto", "--autostart")
    xml = lab.virsh(1, "dumpxml", "--inactive", auto)
    operator.protect()
    operator.power_cycle(1)
    boot_elsewhere(lab, auto, xml, 2)
    dummy, own = operator.recover(1)
    assert (own["started"], lab.places(auto)) == ([], {1: "shut off", 2: "running"})
    assert "active on" in json.dumps(own["skipped"]), own


def test_the_status_names_a_host_that_has_booted_by_itself_until_it_is_recovered(lab: Lab, operator: Operator, guest: Make) -> None:
    auto = guest("auto", "--autostart")
    operator.protect()
    operator.power_cycle(1)
    finding = f"{lab.host(1)} was booted, and its boot guard holds its guests. {auto} is not active."
    assert finding in operator.playbook("status").text
    run, _own = operator.recover(1)
    assert (run.code, lab.places(auto)) == (0, {1: "running"}), run.text
    assert "boot guard holds" not in operator.playbook("status").text
