# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drain that leaves nothing on its host: each domain by its own strategy, and the definitions of those that are off."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

Make = t.Callable[..., str]
DRAINED = 2
SIZE = ("--mib", "48")
MARK = "<metadata><note:owner xmlns:note='urn:example:note'>ann</note:owner></metadata>"


@pytest.fixture
def control_type() -> type[Control]:
    return Operator


@pytest.fixture
def operator(control: Control) -> t.Iterator[Operator]:
    """Root on the control node, who drains the second host; it takes domains again afterwards."""
    assert isinstance(control, Operator)
    yield control
    for number in (1, 2, 3):
        assert control.task(number, "host", {"state": "enabled"}).code == 0


@pytest.fixture
def folder(lab: Lab) -> str:
    """The folder for saved memory, which all hosts share."""
    return str(lab.layout.shared)


def set_policy(operator: Operator, name: str, **fields: t.Any) -> None:
    command = operator.ad_hoc_command(DRAINED, "domain_policy", {"name": name, **fields}, ledger=False)
    done = Running(operator.popen(command)).wait()
    assert done.code == 0, done.text


def drain(operator: Operator, *options: str, **variables: t.Any) -> tuple[Run, dict[str, t.Any]]:
    """Drain the host; return the run and the host's own result, if there is one."""
    name = operator.lab.host(DRAINED)
    run = operator.playbook("drain", *options, target=name, **variables)
    result = run.stats.get("drain_host_result", {})
    if result:
        check_document("drain-result.json", result, is_strict=False)
    return run, result.get(name, {})


def definitions(lab: Lab, number: int) -> list[str]:
    return lab.virsh(number, "list", "--all", "--name").split()


def methods(entries: t.Iterable[dict[str, t.Any]]) -> dict[str, str]:
    return {entry["name"]: entry.get("method", "live") for entry in entries}


def make_archive(lab: Lab, guest: Make) -> str:
    """Return a domain that is off, with autostart and a mark of a person."""
    name = guest("archive", "--off", "--autostart", *SIZE, on=DRAINED)
    text = lab.virsh(DRAINED, "dumpxml", "--inactive", name).replace("</os>", f"</os>{MARK}")
    lab("virsh", lab.host(DRAINED), "define", "/dev/stdin", stdin=text)
    return name


def test_a_drained_host_has_no_definition_and_each_domain_is_on_one_host(lab: Lab, operator: Operator, guest: Make, folder: str) -> None:
    live, saved, stopped, halted = (
        guest(name, *SIZE, *options, on=DRAINED) for name, *options in (("live",), ("saved",), ("stopped", "--acpi"), ("halted", "--paused"))
    )
    archive = make_archive(lab, guest)
    everyone = {live, saved, stopped, halted, archive}
    for name, strategies in ((saved, ["save"]), (stopped, ["shutdown"]), (halted, ["shutdown", "migrate"])):
        set_policy(operator, name, drain=strategies)
    options: dict[str, t.Any] = {"drain_host_shut_off": "move", "drain_host_restart": True, "drain_host_save_folder": folder}

    predicted, own = drain(operator, "--check", **options)
    assert predicted.code == 0, predicted.text
    host = lab.host(DRAINED)
    for text in (f"SAVES saved on {host}, restores it on", f"STOPS stopped on {host}, starts it on", f"MOVES archive on {host}, defines it on"):
        assert text in predicted.text
    assert "shutdown is not possible. It is paused: only a running domain can be shut down." in predicted.text
    assert (own["failed"], own["empty"], set(definitions(lab, DRAINED))) == ([], False, everyone)

    run, own = drain(operator, **options)
    assert run.code == 0, run.text
    assert (own["failed"], own["skipped"], own["safe_to_reboot"], own["empty"]) == ([], [], True, True)
    assert methods(own["moved"]) == {live: "live", halted: "live", saved: "save", stopped: "shutdown", archive: "offline"}
    assert "Nothing is left on it." in run.text
    assert definitions(lab, DRAINED) == []
    states = {live: "running", halted: "paused", saved: "running", stopped: "running", archive: "shut off"}
    assert {name: list(lab.places(name).values()) for name in everyone} == {name: [state] for name, state in states.items()}
    assert [path.name for path in lab.path(1, folder).glob("kvmfleet-*")] == []
    (there,) = lab.places(archive)
    assert lab.info(archive, there)["Autostart"] == "enable"
    assert "urn:example:note" in lab.virsh(there, "dumpxml", "--inactive", archive)
    assert {record["type"] for record in operator.records()} == {"live-migration", "cold-migration"}
    assert {record["status"] for record in operator.records()} == {"completed"}


@pytest.mark.long
@pytest.mark.parametrize("with_workers", [True, False], ids=["node-lost", "process-killed"])
def test_a_drain_whose_control_node_was_killed_among_cold_moves_is_finished_by_the_next_run(
    lab: Lab, operator: Operator, guest: Make, folder: str, with_workers: bool
) -> None:
    saved = guest("saved", "--mib", "256", "--dirty-mib", "160", "--rate", "20000", "--integrity", "--autostart", on=DRAINED)
    stopped, asleep = guest("stopped", "--acpi", *SIZE, on=DRAINED), guest("asleep", *SIZE, on=DRAINED)
    lab.virsh(DRAINED, "managedsave", asleep)
    archive, uuid = make_archive(lab, guest), lab.uuid(saved, DRAINED)
    options: dict[str, t.Any] = {"drain_host_shut_off": "move", "drain_host_restart": True, "drain_host_save_folder": folder}
    for name, strategy in ((saved, "save"), (stopped, "shutdown")):
        set_policy(operator, name, drain=strategy)

    running = operator.begin_playbook("drain", target=lab.host(DRAINED), **options)
    eventually(lambda: "save" in [one["act"] for one in (lab.state_file(uuid, DRAINED) or {"acts": []})["acts"]], "the memory is being saved", 120)
    if with_workers:
        running.kill_with_workers()
    else:
        running.kill()

    run, own = drain(operator, **options)
    assert run.code == 0, run.text
    assert (own["failed"], own["safe_to_reboot"], own["empty"], definitions(lab, DRAINED)) == ([], True, True, []), run.text
    states = {saved: "running", stopped: "running", asleep: "shut off", archive: "shut off"}
    assert {name: list(lab.places(name).values()) for name in states} == {name: [state] for name, state in states.items()}
    assert lab.check(saved)["intact"]
    assert list(lab.path(1, folder).glob("kvmfleet-*")) == []
    (there,) = lab.places(asleep)
    assert lab.info(asleep, there)["Managed save"] == "yes"
    records = operator.records()
    assert sorted(record["domain"]["name"] for record in records if record["status"] == "completed") == sorted(states), records
    assert {record["status"] for record in records} == {"completed"}


@pytest.mark.long
def test_a_definition_that_cannot_move_is_named_and_the_host_is_safe_to_reboot(lab: Lab, operator: Operator, guest: Make) -> None:
    kept, asleep, archive = guest("kept", *SIZE, "--off", "--storage", "bindfs", on=DRAINED), guest("asleep", *SIZE, on=DRAINED), make_archive(lab, guest)
    lab.virsh(DRAINED, "snapshot-create-as", kept, "first")
    lab.virsh(DRAINED, "managedsave", asleep)
    left, own = drain(operator)
    assert (left.code, own["safe_to_reboot"], own["empty"]) == (0, True, False), left.text
    assert set(definitions(lab, DRAINED)) == {kept, asleep, archive}
    run, own = drain(operator, drain_host_shut_off="move")
    assert (run.code, own["failed"], own["safe_to_reboot"], own["empty"]) == (0, [], True, False), run.text
    assert methods(own["moved"]) == {archive: "offline", asleep: "offline"}
    assert [entry["name"] for entry in own["skipped"]] == [kept]
    assert "1 snapshots" in own["skipped"][0]["reason"]
    (there,) = lab.places(asleep)
    assert lab.info(asleep, there)["Managed save"] == "yes"
    assert definitions(lab, DRAINED) == [kept]


@pytest.mark.long
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"drain_host_strategies": ["stop"]}, "value of drain_host_strategies must be one or more of: migrate, save, shutdown, leave"),
        ({"drain_host_strategies": []}, "drain_host_strategies is an empty list. Give at least one of: migrate, save, shutdown, leave. Nothing was changed."),
        ({"drain_host_strategies": ["migrate", "save"]}, "no folder for the memory of domains is given. Set drain_host_save_folder"),
        ({"drain_host_save_folder": "saved"}, "drain_host_save_folder is 'saved'. Give the absolute path"),
        ({"drain_host_shut_off": "delete"}, "value of drain_host_shut_off must be one of: leave, move"),
    ],
)
def test_invalid_options_are_refused_before_the_host_is_put_into_maintenance(
    lab: Lab, operator: Operator, guest: Make, variables: dict[str, t.Any], words: str
) -> None:
    name = guest("live", *SIZE, on=DRAINED)
    run, own = drain(operator, **variables)
    assert (run.code != 0, own) == (True, {}), run.text
    assert words in run.text
    entry = operator.ledger.find_host(name=lab.host(DRAINED))
    assert (entry.body["state"] if entry else "enabled", lab.places(name)) == ("enabled", {DRAINED: "running"})


@pytest.mark.long
def test_a_policy_that_saves_memory_without_a_folder_is_refused_before_the_host_is_put_into_maintenance(
    lab: Lab, operator: Operator, guest: Make, folder: str
) -> None:
    name, other = guest("saved", *SIZE, on=DRAINED), guest("live", *SIZE, on=DRAINED)
    set_policy(operator, name, drain="save")
    run, own = drain(operator)
    assert (run.code != 0, own) == (True, {}), run.text
    assert "The policy of saved on " in run.text
    assert "Set drain_host_save_folder to a folder on storage that the hosts share, or change the policy. Nothing was changed." in run.text
    entry = operator.ledger.find_host(name=lab.host(DRAINED))
    assert (entry.body["state"] if entry else "enabled", lab.places(name), lab.places(other)) == ("enabled", {DRAINED: "running"}, {DRAINED: "running"})
    run, own = drain(operator, drain_host_save_folder=folder)
    assert (run.code, own["safe_to_reboot"]) == (0, True), run.text


@pytest.mark.long
def test_a_saved_plan_with_strategies_is_applied_exactly(lab: Lab, operator: Operator, guest: Make, folder: str, tmp_path: pathlib.Path) -> None:
    saved, archive = guest("saved", *SIZE, on=DRAINED), make_archive(lab, guest)
    plan: dict[str, t.Any] = {"drain_host_plan_file": str(tmp_path / "plan.json")}
    made, own = drain(operator, drain_host_plan_only=True, drain_host_strategies=["save"], drain_host_shut_off="move", drain_host_save_folder=folder, **plan)
    assert (made.code, set(definitions(lab, DRAINED))) == (0, {saved, archive}), made.text
    set_policy(operator, saved, drain="leave")
    drifted, own = drain(operator, drain_host_plan_apply=True, **plan)
    assert (drifted.code != 0, set(definitions(lab, DRAINED))) == (True, {saved, archive})
    assert "by the method save. Its policy leaves it on the host" in drifted.text
    set_policy(operator, saved, unset=["drain"])
    applied, own = drain(operator, drain_host_plan_apply=True, **plan)
    assert (applied.code, own["empty"], methods(own["moved"])) == (0, True, {saved: "save", archive: "offline"}), applied.text


@pytest.mark.long
def test_an_interrupted_drain_is_finished_by_the_next_one(lab: Lab, operator: Operator, guest: Make) -> None:
    name = guest("stopped", *SIZE, on=DRAINED)
    set_policy(operator, name, drain="shutdown")
    options: dict[str, t.Any] = {"drain_host_shut_off": "move", "drain_host_shutdown_seconds": 5}
    late, own = drain(operator, **options)
    assert (late.code != 0, own["safe_to_reboot"], [entry["name"] for entry in own["failed"]]) == (True, False, [name]), late.text
    assert lab.places(name) == {DRAINED: "running"}
    lab.virsh(DRAINED, "destroy", name)
    again, own = drain(operator, **options)
    assert (again.code, own["empty"], list(lab.places(name).values())) == (0, True, ["shut off"]), again.text


@pytest.mark.long
def test_recover_brings_home_what_was_saved_restarted_and_only_defined(lab: Lab, operator: Operator, guest: Make, folder: str) -> None:
    saved, stopped, archive = guest("saved", *SIZE, on=DRAINED), guest("stopped", "--acpi", *SIZE, on=DRAINED), make_archive(lab, guest)
    set_policy(operator, saved, drain="save")
    set_policy(operator, stopped, drain="shutdown")
    everyone = {saved, stopped, archive}
    run, own = drain(operator, drain_host_shut_off="move", drain_host_restart=True, drain_host_save_folder=folder)
    assert (run.code, own["empty"]) == (0, True), run.text
    back, own = operator.recover(DRAINED, recover_host_bring_home=True)
    assert (back.code, own["failed"], {entry["name"] for entry in own["brought_home"]}) == (0, [], everyone), back.text
    states = {saved: "running", stopped: "running", archive: "shut off"}
    assert {name: lab.places(name) for name in everyone} == {name: {DRAINED: state} for name, state in states.items()}
    assert lab.info(archive, DRAINED)["Autostart"] == "enable"
