# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drain of a host beside one that takes no part in it: its failure is rescued, or it is to be planned in another way."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import Stage, build_collection

STEPS = ("drain_plan", "drain_verify", "host", "host_facts")


def test_a_host_that_failed_does_not_count_for_the_drain_of_the_others(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    reads = {host: {"_drain": {"arriving": [], "ask": [host], "ask_for_all": ["kvm3"], "check_mode": False, "ledger": None}} for host in ("kvm1", "kvm2")}
    stage.answers["host"] = {"kvm1": [reads["kvm1"], {"failed": True, "msg": "kvm1 is fenced."}], "kvm2": reads["kvm2"]}
    stage.answers["host_facts"] = {host: {"ansible_facts": {}} for host in ("kvm1", "kvm2", "kvm3")}
    stage.answers["drain_plan"] = {host: {"plan": {}, "shares": {}, "_answered": {}} for host in reads}
    stage.answers["drain_verify"] = {host: {"result": {}, "problems": {}} for host in reads}
    drain = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.drain_host"}}
    rescued = {"block": [drain, drain], "rescue": [{"ansible.builtin.debug": {"msg": "rescued"}}]}
    path = tmp_path / "drains.yml"
    path.write_text(json.dumps([{"hosts": "kvm1,kvm2", "gather_facts": False, "tasks": [rescued]}]))
    done = stage.play(str(path), drain_host_plan_only=True)
    assert done.code == 0, done.text
    plans = [args for _host, args in done.calls_of("drain_plan")]
    assert [args["sources"] for args in plans] == [["kvm1", "kvm2"], ["kvm2"]]
    # What the failed host was told for its earlier drain is old. What it would have asked for all, another one asks.
    assert [sorted(one["item"] for one in args["_work"]["asked"]) for args in plans] == [["kvm1", "kvm2", "kvm3"], ["kvm2", "kvm3"]]
    assert list(plans[1]["_work"]["hosts"]) == ["kvm2"]


def test_a_host_that_is_only_to_be_planned_is_refused_beside_one_that_is_drained(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    read = {"_drain": {"arriving": [], "ask": [], "ask_for_all": [], "check_mode": False, "ledger": None}}
    stage.answers["host"] = {"kvm1": read, "kvm2": {"failed": True, "msg": "It was refused."}}
    stage.answers["host_facts"] = {}
    stage.answers["drain_plan"] = {"kvm1": {"plan": {}, "shares": {}, "_answered": {}}}
    stage.answers["drain_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    variables = {"drain_host_plan_only": "{{ inventory_hostname == 'kvm1' }}", "drain_host_plan_apply": "no"}
    path = tmp_path / "drains.yml"
    path.write_text(json.dumps([{"hosts": "kvm1,kvm2", "gather_facts": False, "roles": ["kvmfleet.migration.drain_host"], "vars": variables}]))
    done = stage.play(str(path))
    refusals = {host: args["_work"]["refusal"] for host, args in done.calls_of("host")}
    assert refusals["kvm1"] == ""
    assert refusals["kvm2"].startswith("drain_host_plan_only is False and drain_host_plan_apply False for kvm2, but True and False for kvm1.")


def test_moves_that_fail_are_reported_without_the_facts_of_all_hosts(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    stage.answers["host"] = {"kvm1": {"_drain": {"arriving": [], "ask": [], "ask_for_all": [], "check_mode": False, "ledger": None}}}
    stage.answers["host_facts"] = {host: {"ansible_facts": {}} for host in ("kvm1", "kvm2", "kvm3")}
    share: dict[str, list[str]] = {"moves": [], "cold_moves": [], "shutdowns": []}
    failure = {"failed": True, "error_code": "timeout", "msg": "1 of 2 moves failed.", "failures": [{"uuid": "u", "msg": "It was too slow."}]}
    stage.answers["live_migrate"] = {"kvm1": {**failure, "plan": {}, "shares": {"kvm1": share}, "_moved": True, "_answered": {"kvm2": {"arch": "ALL-FACTS"}}}}
    stage.answers["drain_verify"] = {"kvm1": {"result": {}, "problems": {"kvm1": "FAILED web1 on kvm1: It was too slow."}}}
    done = stage.play("drain", target="kvm1")
    assert (done.code, "FAILED web1 on kvm1: It was too slow." in done.text) == (2, True), done.text
    assert "ALL-FACTS" not in done.text
    ((_host, args),) = done.calls_of("drain_verify")
    assert (args["_work"]["moved"]["kvm1"]["error_code"], args["_work"]["answered"]) == ("timeout", {"kvm2": {"arch": "ALL-FACTS"}})


def test_a_plan_that_is_refused_is_reported_once(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    stage.answers["host"] = {"kvm1": {"_drain": {"arriving": [], "ask": [], "ask_for_all": [], "check_mode": False, "ledger": None}}}
    stage.answers["host_facts"] = {host: {"ansible_facts": {}} for host in ("kvm1", "kvm2", "kvm3")}
    for refusal in ({"error_code": "conflict"}, {}):
        stage.answers["drain_plan"] = {"kvm1": {"failed": True, "msg": "The plan no longer applies.", **refusal}}
        done = stage.play("drain", target="kvm1", drain_host_plan_only=True)
        assert done.code == 2
        assert done.text.count("Action failed: The plan no longer applies.") == (1 if refusal else 2), done.text
        assert done.calls_of("drain_verify") == []
