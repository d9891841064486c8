# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The starts of domains on a host that is back."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import Stage, build_collection

STEPS = ("evacuation_cleanup", "boot_guard", "domain_start", "protect", "recover_plan", "recover_verify", "host", "host_facts")


def test_a_start_that_never_ends_does_not_keep_the_other_domains_off(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    stage.answers.update({step: {"kvm1": {}} for step in STEPS})
    starts = [{"uuid": f"uuid of {name}", "name": name} for name in ("hung", "web1")]
    notes = [{"uuid": "uuid of hung", "name": "hung", "why": ["autostart"], "at": "2026-01-02T03:04:05Z"}]
    chosen, checked = {"start_mode": "autostart"}, {"displaced": [], "is_protected": False, "_begun": []}
    stage.answers["host"] = {"kvm1": {"host": {"name": "kvm1", "host_id": "h1", "state": "maintenance"}}}
    stage.answers["recover_plan"] = {"kvm1": [chosen, checked, {"start": starts, "forget": []}]}
    stage.answers["boot_guard"] = {"kvm1": {"to_start": notes, "guard": {"boot_id": "b"}, "open_records": []}}
    stage.answers["domain_start"] = {"kvm1": [{"hangs_seconds": 400}, {"changed": True}]}
    stage.answers["recover_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    done = stage.play("recover", target="kvm1", __recover_host_start_seconds=3)
    assert [args["uuid"] for _host, args in done.calls_of("domain_start")] == ["uuid of hung", "uuid of web1"], done.text
    assert [args["_work"] for _host, args in done.calls_of("domain_start")] == [{"boot_id": "b", "noted": noted} for noted in (notes[0], None)]
    assert [args["_work"] for _host, args in done.calls_of("host") if args.get("state")] == [{"own_reason": "", "recovered": True}]
    (planned,) = [args for _host, args in done.calls_of("recover_plan") if args["step"] == "start"]
    assert planned["_work"]["noted"] == {"kvm1": notes}
    ((_host, verified),) = done.calls_of("recover_verify")
    results = verified["_work"]["tasks"]["started"]["kvm1"]["results"]
    assert [one.get("failed", False) for one in results] == [True, False]


def test_the_fleet_is_asked_again_before_domains_are_started_and_brought_home(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    stage.answers.update({step: {"kvm1": {}} for step in STEPS})
    notes = [{"uuid": "uuid of web1", "name": "web1", "why": ["autostart"], "at": "2026-01-02T03:04:05Z"}]
    chosen, checked = {"start_mode": "autostart"}, {"displaced": [{"uuid": "uuid of web2"}], "is_protected": False, "_begun": []}
    stage.answers["host"] = {"kvm1": {"host": {"name": "kvm1", "host_id": "h1", "state": "maintenance"}}}
    stage.answers["recover_plan"] = {"kvm1": [chosen, checked, {"start": [], "forget": []}, {"moves": [], "shares": {}}]}
    stage.answers["boot_guard"] = {"kvm1": {"to_start": notes, "guard": {"boot_id": "b"}, "open_records": []}}
    stage.answers["recover_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    done = stage.play("recover", target="kvm1", recover_host_bring_home=True)
    assert done.code == 0, done.text
    acts = [str(args["step"]) if module == "recover_plan" else "ask" for module, host, args in done.calls if module == "recover_plan" or host == "kvm2"]
    assert acts == ["options", "ask", "check", "ask", "start", "ask", "bring_home"]


@pytest.mark.parametrize(("enable", "state"), [("true", "enabled"), ("false", "maintenance")])
def test_a_recovered_host_accepts_domains_or_is_in_maintenance(tmp_path: pathlib.Path, enable: str, state: str) -> None:
    stage = Stage(build_collection(tmp_path / "collections", *STEPS), tmp_path)
    stage.answers.update({step: {"kvm1": {}} for step in STEPS})
    stage.answers["host"] = {"kvm1": {"host": {"name": "kvm1", "host_id": "h1", "state": "fenced"}}}
    stage.answers["recover_plan"] = {"kvm1": [{"start_mode": "none"}, {"displaced": [], "is_protected": False, "_begun": []}, {"start": [], "forget": []}]}
    stage.answers["boot_guard"] = {"kvm1": {"to_start": [], "guard": {"boot_id": "b"}, "open_records": []}}
    stage.answers["recover_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    done = stage.play("recover", target="kvm1", recover_host_enable=enable)
    assert [args["state"] for _host, args in done.calls_of("host") if args.get("state")] == [state], done.text
