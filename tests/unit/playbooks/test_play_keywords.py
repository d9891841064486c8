# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Roles in plays with keywords that all of their tasks inherit. What a failed task has not proved is not acted on, and not reported as done."""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION, UUID, Outcome, Stage, build_collection

NO_ANSWER = {"changed": False, "failed": True, "error_code": "unreachable", "msg": "libvirt does not answer."}
NOT_ASKED = "It was not asked, because an earlier task of this run has failed there."
SILENT = {"unreachable": True, "msg": "No route to host"}
CARELESS = {"ignore_errors": True, "ignore_unreachable": True}
# The modules by which a recovery changes a host, and all that it calls.
ACTS = ("evacuate", "evacuation_cleanup", "boot_guard", "domain_start", "live_migrate", "cold_migrate", "protect")
RECOVERY = (*ACTS, "recover_plan", "recover_verify", "host", "host_facts")
READ = {"ledger": None, "arriving": [], "ask": [], "ask_for_all": [], "check_mode": False}


def play_role(stage: Stage, role: str, *tasks: dict[str, t.Any], hosts: str, keywords: dict[str, t.Any] = CARELESS, **variables: t.Any) -> Outcome:
    """Run a role, and tasks after it, in a play with these keywords; by default it ignores all errors."""
    path = stage.folder / "play.yml"
    steps = [{"ansible.builtin.include_role": {"name": f"kvmfleet.migration.{role}"}}, *tasks]
    path.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, **keywords, "tasks": steps}]))
    return stage.play(str(path), **variables)


def test_no_guest_is_started_after_tasks_that_have_failed_to_fence_its_host(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "evacuate_plan", "evacuate_verify", "evacuate", "host", "host_facts"), tmp_path)
    lost = {"source": {"host": "kvm9"}, "domains": [{"name": "web1"}]}
    survivors = {"survivors": ["kvm1"], "excluded": {}}
    started = {**lost, "shares": {"kvm1": ["web1"]}, "evidence": {"host": "kvm9"}}
    stage.answers["evacuate_plan"] = {"kvm1": [{"assess_first": True, "_check_mode": False}, {"first_round": {}}, survivors, lost, started]}
    stage.answers.update(evacuate_verify={"kvm1": {"result": {}, "problem": ""}}, evacuate={}, host={}, host_facts={})
    fence = tmp_path / "fence.yml"
    evidence = {"host": "kvm9", "action": "off", "status": "off", "at": "2026-11-29T08:00:00Z"}
    tasks = [
        {"name": "Switch it off", "ansible.builtin.fail": {"msg": "The power strip does not answer."}},
        {"name": "Report it", "ansible.builtin.set_fact": {"evacuate_host_evidence": evidence}},
    ]
    fence.write_text(json.dumps(tasks))
    done = play_role(stage, "evacuate_host", hosts="kvm1", evacuate_host_source="kvm9", evacuate_host_fence_tasks=str(fence))
    assert "The power strip does not answer." in done.text
    assert [args["step"] for _host, args in done.calls_of("evacuate_plan")] == ["check", "query", "survivors", "assess"]
    assert done.calls_of("evacuate") == []


def test_no_host_is_fenced_by_the_tasks_of_the_user_in_a_play_in_check_mode(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "evacuate_plan", "evacuate_verify", "evacuate", "host", "host_facts"), tmp_path)
    lost = {"source": {"host": "kvm9"}, "domains": [{"name": "web1"}]}
    survivors = {"survivors": ["kvm1"], "excluded": {}}
    planned = {**lost, "shares": {"kvm1": ["web1"]}, "evidence": []}
    checked = {"assess_first": True, "_check_mode": True}
    stage.answers["evacuate_plan"] = {"kvm1": [checked, {"first_round": {}}, survivors, lost, planned]}
    stage.answers.update(evacuate_verify={"kvm1": {"result": {}, "problem": ""}}, evacuate={}, host={}, host_facts={})
    fence = tmp_path / "fence.yml"
    fence.write_text(json.dumps([{"name": "Switch it off", "ansible.builtin.debug": {"msg": "The power is cut."}, "check_mode": False}]))
    keywords = {"check_mode": True}
    done = play_role(stage, "evacuate_host", hosts="kvm1", keywords=keywords, evacuate_host_source="kvm9", evacuate_host_fence_tasks=str(fence))
    assert "The power is cut." not in done.text
    assert [args["step"] for _host, args in done.calls_of("evacuate_plan")] == ["check", "query", "survivors", "assess", "prove"]
    assert len(done.calls_of("evacuate")) == 1


def test_the_evidence_about_one_host_is_not_used_for_another(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "evacuate_plan", "evacuate_verify", "evacuate", "host", "host_facts"), tmp_path)
    survivors = {"survivors": ["kvm1"], "excluded": {}}
    checked = {"assess_first": False, "_check_mode": False}
    nothing = {"source": {"host": "kvm9"}, "domains": []}
    stage.answers["evacuate_plan"] = {"kvm1": [checked, {"first_round": {}}, survivors, nothing] * 3}
    stage.answers.update(evacuate_verify={"kvm1": {"result": {}, "problem": ""}}, evacuate={}, host={}, host_facts={})
    evidence = {"host": "kvm8", "action": "off", "status": "off", "at": "2026-11-29T08:00:00Z"}
    (tmp_path / "fence.yml").write_text(json.dumps([{"name": "Report it", "ansible.builtin.set_fact": {"evacuate_host_evidence": evidence}}]))
    (tmp_path / "forget.yml").write_text(json.dumps([{"name": "Report nothing", "ansible.builtin.debug": {"msg": "The power strip is slow."}}]))
    options = [
        {"evacuate_host_source": "kvm8", "evacuate_host_fence_tasks": str(tmp_path / "fence.yml")},
        {"evacuate_host_source": "kvm9", "evacuate_host_fence_tasks": str(tmp_path / "forget.yml")},
        {"evacuate_host_source": "kvm9"},
    ]
    tasks = [{"ansible.builtin.include_role": {"name": "kvmfleet.migration.evacuate_host"}, "vars": variables} for variables in options]
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"hosts": "kvm1", "gather_facts": False, "tasks": tasks}]))
    done = stage.play(str(path))
    assert done.code == 0, done.text
    proofs = [args["_work"]["evidence"] for _host, args in done.calls_of("evacuate_plan") if args["step"] == "prove"]
    assert proofs == [evidence, "", ""]


def test_a_host_that_hangs_keeps_no_other_host_from_being_protected(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "protect", "host"), tmp_path)
    stage.answers.update(protect={"kvm1": {"hangs_seconds": 30}}, host={})
    done = play_role(stage, "protect_host", hosts="kvm1:kvm2", keywords={}, __protect_host_step_seconds=5)
    assert done.code == 2
    assert [args["_work"]["step"] for host, args in done.calls_of("protect") if host == "kvm1"] == ["leave"]
    assert [args["_work"]["step"] for host, args in done.calls_of("protect") if host == "kvm2"] == ["leave", "read", "save"]


@pytest.mark.parametrize(("answer", "error"), [(NO_ANSWER, "libvirt does not answer."), (SILENT, "The host did not answer.")])
def test_a_host_that_was_not_protected_is_not_reported_as_protected(tmp_path: pathlib.Path, answer: dict[str, t.Any], error: str) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "protect", "host"), tmp_path)
    stage.answers.update(protect={"kvm1": answer}, host={})
    told = {"ansible.builtin.debug": {"msg": "The error of kvm1: {{ protect_host_result.kvm1.error }}"}, "run_once": True}
    done = play_role(stage, "protect_host", told, hosts="kvm1:kvm2")
    assert f"The error of kvm1: {error}" in done.text
    assert [host for host, _args in done.calls_of("protect")].count("kvm1") == 1


@pytest.mark.parametrize("answer", [NO_ANSWER, SILENT])
def test_a_host_that_fails_keeps_no_other_host_from_being_protected(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, t.Any]) -> None:
    """Also where the configuration ends every play at its first error."""
    stage = Stage(build_collection(tmp_path / "collections", "protect", "host"), tmp_path)
    stage.answers.update(protect={"kvm1": answer}, host={})
    monkeypatch.setenv("ANSIBLE_ANY_ERRORS_FATAL", "true")
    done = play_role(stage, "protect_host", hosts="kvm1:kvm2", keywords={})
    assert done.code in (2, 4)
    assert [args["_work"]["step"] for host, args in done.calls_of("protect") if host == "kvm2"] == ["leave", "read", "save"], done.text


def test_a_host_of_the_play_that_takes_no_part_is_not_reported_as_protected(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "protect", "host"), tmp_path)
    told = ("saved", "unchanged", "missing", "conflicts", "skipped", "unproved", "guard", "watchdog", "notes")
    stage.answers.update(protect={host: {key: [] for key in told} for host in ("kvm1", "kvm2")}, host={})
    role: dict[str, t.Any] = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.protect_host"}}
    one = [{**role, "when": "inventory_hostname == 'kvm2'"}, {"ansible.builtin.debug": {"msg": "Protected: {{ protect_host_result | list }}"}}]
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"hosts": "kvm1:kvm2", "gather_facts": False, "tasks": [*one, role, *one]}]))
    done = stage.play(str(path))
    assert done.code == 0, done.text
    assert re.findall(r"Protected: (\[.*\])", done.text) == ["['kvm2']"] * 4


@pytest.mark.parametrize("check", [False, True])
def test_no_lease_is_set_up_by_a_play_in_check_mode(tmp_path: pathlib.Path, check: bool) -> None:
    """A new host has no identity in the ledger yet."""
    stage = Stage(build_collection(tmp_path / "collections", "protect", "host", "host_lease"), tmp_path)
    told = ("saved", "unchanged", "missing", "conflicts", "skipped", "unproved", "guard", "watchdog", "notes")
    stage.answers.update(protect={"kvm1": {key: [] for key in told}}, host={"kvm1": {"_check_mode": check}}, host_lease={})
    done = play_role(stage, "protect_host", hosts="kvm1", keywords={"check_mode": check}, kvmfleet_lease={"seconds": 30})
    assert [host for host, _args in done.calls_of("host_lease")] == ([] if check else ["kvm1"]), done.text


@pytest.mark.parametrize("lease", ["null", '""'])
def test_a_host_whose_lease_is_empty_gets_none(tmp_path: pathlib.Path, lease: str) -> None:
    """So it opts out of what its group has."""
    stage = Stage(build_collection(tmp_path / "collections", "protect", "host", "host_lease"), tmp_path)
    told = ("saved", "unchanged", "missing", "conflicts", "skipped", "unproved", "guard", "watchdog", "notes")
    own = {key: [] for key in told}
    stage.answers.update(protect={"kvm1": own, "kvm2": own}, host={"kvm2": {"_check_mode": False}}, host_lease={})
    stage.answers["host"]["kvm1"] = {"_check_mode": False}
    for folder, variables in (("group_vars/all.yml", "{user: lease}"), ("host_vars/kvm1.yml", lease)):
        path = tmp_path / folder
        path.parent.mkdir()
        path.write_text(f"kvmfleet_lease: {variables}\n")
    done = play_role(stage, "protect_host", hosts="kvm1:kvm2", keywords={})
    assert (done.code, [host for host, _args in done.calls_of("host_lease")]) == (0, ["kvm2"]), done.text


def test_a_host_that_cannot_be_put_into_maintenance_is_not_drained_and_keeps_no_earlier_result(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts"), tmp_path)
    verdict = {"result": {"kvm1": {"safe_to_reboot": True}}, "problems": {}}
    share = {"kvm1": {"shutdowns": [], "cold_moves": [], "moves": [], "predicted": {}, "ends": []}}
    stage.answers["host"] = {"kvm1": [{"_drain": READ}, NO_ANSWER]}
    stage.answers["live_migrate"] = {"kvm1": {"plan": {}, "shares": share, "_verified": verdict}}
    again = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.drain_host"}}
    reboot = {"ansible.builtin.debug": {"msg": "It is rebooted."}, "when": "drain_host_result.kvm1.safe_to_reboot"}
    done = play_role(stage, "drain_host", again, reboot, hosts="kvm1")
    assert [host for host, _args in done.calls_of("host")] == ["kvm1", "kvm1"]
    assert [host for host, _args in done.calls_of("live_migrate")] == ["kvm1"]
    assert "It is rebooted." not in done.text


@pytest.mark.parametrize("role", ["drain_host", "evacuate_host", "recover_host"])
def test_a_role_that_fails_before_it_begins_keeps_no_earlier_result(tmp_path: pathlib.Path, role: str) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host", "evacuate_plan", "recover_plan"), tmp_path)
    for module in ("host", "evacuate_plan", "recover_plan"):
        stage.answers[module] = {"kvm1": NO_ANSWER}
    earlier = {"ansible.builtin.set_fact": {f"{role}_result": {"kvm1": {"safe_to_reboot": True}}}}
    again = {"ansible.builtin.include_role": {"name": f"kvmfleet.migration.{role}"}, "vars": {"evacuate_host_source": "kvm9"}}
    failed = {"block": [again], "rescue": [{"ansible.builtin.debug": {"msg": f"Known is {{{{ {role}_result }}}}."}}]}
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"hosts": "kvm1", "gather_facts": False, "tasks": [earlier, failed]}]))
    done = stage.play(str(path))
    assert len(done.calls) == 1
    assert "Known is {}." in done.text


def test_a_drain_goes_on_without_a_host_of_the_fleet_that_hangs(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts"), tmp_path)
    verdict = {"result": {"kvm1": {"safe_to_reboot": True}}, "problems": {}}
    share = {"kvm1": {"shutdowns": [], "cold_moves": [], "moves": [], "predicted": {}, "ends": []}}
    stage.answers["host_facts"] = {"kvm2": {"hangs_seconds": 250}}
    stage.answers["host"] = {"kvm1": {"_drain": {**READ, "ask": ["kvm2"]}}}
    stage.answers["live_migrate"] = {"kvm1": {"plan": {}, "shares": share, "_verified": verdict}}
    done = stage.play("drain", target="kvm1", __drain_facts_seconds=5, __drain_host_facts_seconds=5)
    assert done.code == 0, done.text
    assert [host for host, _args in done.calls_of("host_facts")].count("kvm2") == 2
    ((_host, moved),) = done.calls_of("live_migrate")
    assert [(answer["item"], answer["failed"]) for answer in moved["_work"]["plan"]["_work"]["asked"]] == [("kvm2", True)]


@pytest.mark.parametrize("answer", [NO_ANSWER, SILENT])
@pytest.mark.parametrize("given", [{}, pytest.param({"drain_host_candidates": "kvm1,kvm3"}, marks=pytest.mark.long)])
def test_no_domain_goes_to_a_host_whose_own_drain_has_failed(tmp_path: pathlib.Path, answer: dict[str, t.Any], given: dict[str, str]) -> None:
    """It has left the play, whose hosts are no candidates."""
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts"), tmp_path)
    verdict = {"result": {"kvm2": {"safe_to_reboot": True}}, "problems": {}}
    share = {"kvm2": {"shutdowns": [], "cold_moves": [], "moves": [], "predicted": {}, "ends": []}}
    stage.answers.update(host={"kvm1": answer, "kvm2": {"_drain": READ}}, host_facts={})
    stage.answers["live_migrate"] = {"kvm2": {"plan": {}, "shares": share, "_verified": verdict}}
    done = stage.play("drain", target="kvm1,kvm2", **given)
    assert [(host, args["_work"]["plan"]["candidates"]) for host, args in done.calls_of("live_migrate")] == [("kvm2", ["kvm3"])], done.text


def test_each_host_fails_with_the_reason_if_the_drain_cannot_be_verified(tmp_path: pathlib.Path) -> None:
    """What fails once for all hosts has a failed result only in the rescue of the first one."""
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts", "drain_plan", "drain_verify"), tmp_path)
    share = {host: {"shutdowns": [], "cold_moves": [], "moves": [], "predicted": {}, "ends": []} for host in ("kvm1", "kvm2")}
    planned = {"plan": {"options": {"parallel": 1}}, "shares": share, "_answered": {}}
    stage.answers.update(host={host: {"_drain": READ} for host in share}, drain_plan={"kvm1": planned})
    stage.answers["drain_verify"] = {"kvm1": {"changed": False, "failed": True, "error_code": "unreachable", "msg": "The ledger does not answer."}}
    role = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.drain_host"}}
    told = {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} is left: {{ ansible_failed_result.msg }} {{ drain_host_result }}"}}
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"hosts": "kvm1:kvm2", "gather_facts": False, "tasks": [{"block": [role], "rescue": [told]}]}]))
    done = stage.play(str(path))
    for host in share:
        assert f"{host} is left: The ledger does not answer. {{}}" in done.text, done.text


def play_after_a_failure(stage: Stage, *tasks: dict[str, t.Any]) -> Outcome:
    """Run tasks on the hosts of the fleet, one of which has failed in the play before."""
    path = stage.folder / "play.yml"
    fails = {"ansible.builtin.fail": {"msg": "A disk fails."}, "when": "inventory_hostname == 'kvm2'"}
    path.write_text(json.dumps([{"hosts": "kvmfleet_hosts", "gather_facts": False, "tasks": [fails, *tasks]}]))
    return stage.play(str(path))


def test_a_balance_goes_on_without_a_host_that_has_left_the_play(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host_facts", "balance_plan"), tmp_path)
    stage.answers["host_facts"] = {}
    stage.answers["balance_plan"] = {
        "kvm1": {"plan": {"options": {"parallel": 1}}, "stages": [{"kvm1": {"moves": []}}], "ends": [], "result": {}, "failures": 0}
    }
    balance = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.balance"}, "vars": {"balance_mode": "apply"}}
    done = play_after_a_failure(stage, balance)
    (_host, planned), (_other, verified) = done.calls_of("balance_plan")
    assert {host: answer["failed"] for host, answer in planned["_work"]["asked"].items()} == {"kvm1": False, "kvm2": True, "kvm3": False}
    assert planned["_work"]["asked"]["kvm2"]["msg"] == NOT_ASKED
    assert (verified["step"], verified["_work"]["moved"]) == ("verify", {"kvm1": [], "kvm2": [], "kvm3": []})


def test_a_check_of_the_fleet_goes_on_without_a_host_that_has_left_the_play(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host_facts", "fleet_check"), tmp_path)
    stage.answers.update(host_facts={}, fleet_check={"kvm1": {"cpus": [], "baselines": {}, "lines": []}})
    tasks = str(COLLECTION / "playbooks/tasks/fleet_check.yml")
    done = play_after_a_failure(stage, {"ansible.builtin.import_tasks": tasks, "vars": {"__fleet_check_hosts": "{{ ansible_play_hosts_all }}"}})
    assert [args["_work"]["silence"]["kvm2"] for _host, args in done.calls_of("fleet_check") if "silence" in args["_work"]] == [NOT_ASKED] * 2


@pytest.mark.long
def test_a_check_of_the_fleet_names_a_host_that_hangs(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host_facts"), tmp_path)
    silent = {"failed": True, "changed": False, "msg": "There is no libvirt."}
    stage.answers["host_facts"] = {"kvm1": silent, "kvm2": {"hangs_seconds": 400}, "kvm3": silent}
    done = stage.play("fleet_check", __fleet_check_host_seconds=5)
    assert done.code != 0
    assert re.search("kvm2 .*Timed out after 5 second", done.text), done.text


def test_no_move_to_a_host_is_aborted_by_a_play_in_check_mode(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts"), tmp_path)
    arriving = [{"uuid": UUID, "name": "web1", "source": "kvm2"}]
    stage.answers["host"] = {"kvm1": {"_drain": {**READ, "arriving": arriving, "check_mode": True}}}
    done = play_role(stage, "drain_host", hosts="kvm1", keywords={"check_mode": True}, drain_host_incoming="abort")
    assert len(done.calls_of("live_migrate")) == 1
    assert done.calls_of("migration_abort") == []


def test_no_move_to_a_host_is_aborted_or_waited_for_when_a_saved_plan_is_only_checked(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts", "drain_plan", "drain_verify", "migration_abort"), tmp_path)
    share = {"kvm1": {"shutdowns": [], "cold_moves": [], "moves": [], "predicted": {}, "ends": []}}
    stage.answers["host"] = {"kvm1": {"_drain": {**READ, "arriving": [{"uuid": UUID, "name": "web1", "source": "kvm2"}], "check_mode": True}}}
    stage.answers["drain_plan"] = {"kvm1": {"plan": {}, "shares": share, "_answered": {}}}
    stage.answers["drain_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    variables = {"drain_host_plan_apply": True, "drain_host_plan_file": "kvm1.json", "drain_host_incoming": "abort"}
    done = stage.play("drain", "--check", target="kvm1", **variables)
    assert done.code == 0, done.text
    assert done.calls_of("migration_abort") == []


def test_a_host_that_fails_its_checks_is_not_released(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    chosen, entry = {"start_mode": "autostart"}, {"host": {"host": {"name": "kvm1", "host_id": "h1"}}}
    refused = {"failed": True, "error_code": "unsafe", "msg": "web1 runs twice."}
    stage.answers.update({name: {} for name in RECOVERY}, recover_plan={"kvm1": [chosen, refused]}, host={"kvm1": entry})
    done = play_role(stage, "recover_host", hosts="kvm1")
    assert [args["step"] for _host, args in done.calls_of("recover_plan")] == ["options", "check"]
    assert [name for name, _host, _args in done.calls if name in ACTS] == []
    ((_host, verified),) = done.calls_of("recover_verify")
    assert verified["_work"]["tasks"]["ended"]["kvm1"]["msg"] == "web1 runs twice."


@pytest.mark.long
def test_a_host_of_the_play_that_takes_no_part_is_not_reported_as_recovered(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    stage.answers.update({name: {} for name in RECOVERY}, recover_plan={host: {"start_mode": "autostart"} for host in ("kvm1", "kvm2")})
    stage.answers["recover_verify"] = {host: {"result": {}, "problems": {}} for host in ("kvm1", "kvm2")}
    role: dict[str, t.Any] = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.recover_host"}}
    one = {**role, "when": "inventory_hostname == 'kvm2'"}
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"hosts": "kvm1:kvm2", "gather_facts": False, "tasks": [one, role, one]}]))
    done = stage.play(str(path))
    verified = [(args["hosts"], args["_work"]["present"], list(args["_work"]["tasks"]["entry"])) for _host, args in done.calls_of("recover_verify")]
    assert verified == [(hosts, hosts, hosts) for hosts in (["kvm2"], ["kvm1", "kvm2"], ["kvm2"])]


def test_a_recovery_goes_on_without_a_host_of_the_fleet_that_hangs(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    chosen, entry = {"start_mode": "autostart"}, {"host": {"host": {"name": "kvm1", "host_id": "h1"}}}
    refused = {"failed": True, "error_code": "unsafe", "msg": "web1 runs twice."}
    stage.answers.update({name: {} for name in RECOVERY}, recover_plan={"kvm1": [chosen, refused]}, host={"kvm1": entry})
    stage.answers["host_facts"] = {"kvm2": {"hangs_seconds": 250}}
    done = play_role(stage, "recover_host", hosts="kvm1", __recover_host_facts_seconds=5)
    _options, (_host, checked) = done.calls_of("recover_plan")
    assert {answer["item"]: answer["failed"] for answer in checked["_work"]["asked"]} == {"kvm1": False, "kvm2": True, "kvm3": False}


def test_the_domains_of_other_hosts_come_home_from_beside_a_host_that_does_not_answer(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    stage.answers.update({name: {} for name in RECOVERY}, host={"kvm1": {"host": {"name": "kvm1", "host_id": "h1", "state": "maintenance"}}})
    shares = {"kvm2": [{"uuid": "u2"}], "kvm3": [{"uuid": "u3"}]}
    moves = [{"uuid": share["uuid"], "name": f"web of {source}", "source": source} for source, (share,) in shares.items()]
    checked = {"displaced": [{}], "is_protected": False, "_begun": []}
    returning = {"moves": moves, "shares": shares, "_options": {}}
    stage.answers["recover_plan"] = {"kvm1": [{"start_mode": "none"}, checked, {"start": [], "forget": []}, returning]}
    stage.answers["boot_guard"] = {"kvm1": {"to_start": [], "guard": {"boot_id": "b"}, "open_records": []}}
    stage.answers["recover_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    stage.answers["scheduler_check"] = {"kvm2": SILENT}
    done = play_role(stage, "recover_host", hosts="kvm1", keywords={}, recover_host_bring_home=True)
    assert [(host, args["moves"]) for host, args in done.calls_of("live_migrate")] == [("kvm3", [{"uuid": "u3"}])], done.text


@pytest.mark.long
def test_a_libvirt_that_hangs_is_waited_for_no_longer_than_one_that_refuses(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    stage.answers.update({name: {} for name in RECOVERY}, recover_plan={"kvm1": {"start_mode": "autostart"}})
    stage.answers["host_facts"] = {"kvm1": {**NO_ANSWER, "hangs_seconds": 9}}
    done = play_role(stage, "recover_host", hosts="kvm1", recover_host_timeout_seconds=20)
    # Four retries are twenty seconds of pauses.
    assert len(done.calls_of("host_facts")) < 3
    ((_host, verified),) = done.calls_of("recover_verify")
    assert verified["_work"]["tasks"]["ended"]["kvm1"]["msg"] == "libvirt does not answer."


def test_a_recovery_with_an_invalid_option_asks_no_host(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    stage.answers.update({name: {} for name in RECOVERY}, recover_plan={"kvm1": {"failed": True, "msg": "recover_host_start is autostrat."}})
    done = play_role(stage, "recover_host", hosts="kvm1", recover_host_start="autostrat")
    assert [name for name, _host, _args in done.calls] == ["recover_plan"]
