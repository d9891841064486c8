# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists and dictionaries on the command line (C(-e drain_host_candidates=kvm2,kvm3)): they are texts, as options of modules may be."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import Stage, build_collection


@pytest.mark.parametrize("candidates", ["kvm2,kvm3,", "kvm2, kvm3", ["kvm2", "kvm3"]])
def test_a_drain_takes_its_candidates_as_text(tmp_path: pathlib.Path, candidates: str | list[str]) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host", "host_facts"), tmp_path)
    read = {"ledger": None, "arriving": [], "ask": ["kvm1"], "ask_for_all": [], "check_mode": False}
    stage.answers.update(host={"kvm1": {"_drain": read}}, host_facts={}, live_migrate={})
    done = stage.play("drain", target="kvm1", drain_host_candidates=candidates)
    assert [sorted(args["link_to"]) for host, args in done.calls_of("host_facts") if host == "kvm1"] == [["kvm2", "kvm3"]] * 2
    assert [args["_work"]["drain"]["candidates"] for _host, args in done.calls_of("host")] == [["kvm2", "kvm3"]]
    assert [args["_work"]["plan"]["candidates"] for _host, args in done.calls_of("live_migrate")] == [["kvm2", "kvm3"]]


def test_a_recovery_takes_its_fleet_as_text(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "recover_plan", "recover_verify"), tmp_path)
    stage.answers.update(recover_plan={"kvm1": {"failed": True, "msg": "Stop here."}}, recover_verify={})
    done = stage.play("recover", target="kvm1", recover_host_fleet="kvm2,kvm3")
    assert [args["fleet"] for _host, args in done.calls_of("recover_plan")] == [["kvm2", "kvm3", "kvm1"]], done.text


RECOVERY = ("recover_plan", "recover_verify", "host", "host_facts", "evacuation_cleanup", "boot_guard", "cold_migrate")


def test_a_recovery_takes_the_options_of_its_moves_as_text(tmp_path: pathlib.Path) -> None:
    """Ansible reads a value behind an equals sign as text, also if it has the form of a dictionary."""
    stage = Stage(build_collection(tmp_path / "collections", *RECOVERY), tmp_path)
    options = {"copy_storage": "auto", "transport": "tls", "unsafe": True}
    moves = {"moves": [{"uuid": "u2", "name": "web2", "source": "kvm2"}], "shares": {"kvm2": [{"uuid": "u2"}]}, "cold_shares": {"kvm3": [{"uuid": "u3"}]}}
    checked = {"displaced": [{}], "is_protected": False, "_begun": []}
    stage.answers.update({name: {} for name in RECOVERY}, host={"kvm1": {"host": {"name": "kvm1", "host_id": "h1", "state": "maintenance"}}})
    stage.answers["recover_plan"] = {"kvm1": [{"start_mode": "none"}, checked, {"start": [], "forget": []}, {**moves, "_options": options}]}
    stage.answers["boot_guard"] = {"kvm1": {"to_start": [], "guard": {"boot_id": "b"}, "open_records": []}}
    stage.answers["recover_verify"] = {"kvm1": {"result": {}, "problems": {}}}
    done = stage.play("recover", "-e", f"recover_host_options={json.dumps(options, separators=(',', ':'))}", target="kvm1", recover_host_bring_home=True)
    assert [args["copy_storage"] for _host, args in done.calls_of("scheduler_check")] == ["auto"], done.text
    assert [(args["transport"], args["unsafe"]) for _host, args in done.calls_of("cold_migrate")] == [("tls", True)]


@pytest.mark.parametrize("accepted", ["web,db", "web, db", ["web", "db"]])
def test_a_drill_takes_the_guests_that_may_stay_off_as_text(tmp_path: pathlib.Path, accepted: str | list[str]) -> None:
    stubs = ("host_facts", "fleet_check", "maintenance_run", "drill_run")
    stage = Stage(build_collection(tmp_path / "collections", *stubs), tmp_path)
    stage.answers.update({name: {} for name in stubs})
    stage.answers["maintenance_run"] = {"kvm1": {"unchecked": ["kvm3"], "run": None, "lines": []}}
    stage.answers["drill_run"] = {"kvm1": {"failed": True, "msg": "Stop here."}}
    done = stage.play("drill", target="kvm3", drill_accept_lost=accepted)
    assert [args["drill"]["accept_lost"] for _host, args in done.calls_of("maintenance_run")] == [["web", "db"]], done.text
    assert [args["accept_lost"] for _host, args in done.calls_of("drill_run")] == [["web", "db"]], done.text
