# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people start for one domain, and the screen of the fleet: which host gets which task with which options, and what bad input does."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
import typing as t

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import ACTING, COLLECTION, HOSTS, UUID, Stage, build_collection

PLAYBOOKS = sorted(ACTING)
NOWHERE = "2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10"


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build_collection(tmp_path_factory.mktemp("collections"), "host_facts")


@pytest.fixture
def stage(collections: pathlib.Path, tmp_path: pathlib.Path) -> Stage:
    stage = Stage(collections, tmp_path)
    stage.answers["host_facts"] = {}
    return stage


def write_record(stage: Stage, *steps: str, folder: str = "ledger") -> MoveRecord:
    """Write the record of a move of web1 from kvm2 to kvm3."""
    ledger = FileLedger(str(stage.folder / folder))
    ends = (HostRef("kvm2", None, None), HostRef("kvm3", None, None))
    stored = ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), *ends, {}, "ann@control pid 1"))
    for step in steps:
        stored = ledger.update_record(stored, stored.record.advance(step, "ann@control pid 1"))
    return stored.record


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_task_runs_on_the_host_of_the_domain_and_on_no_other(stage: Stage, playbook: str) -> None:
    stage.place("kvm3")
    done = stage.play(playbook, domain="web1")
    assert done.code == 0, done.text
    assert sorted(host for host, args in done.calls_of("migration_info") if args == {"name": "web1"}) == list(HOSTS)
    ((host, args),) = done.calls_of(ACTING[playbook])
    assert (host, args) == ("kvm3", {"moves": [{"uuid": UUID}]} if playbook == "migrate" else {"uuid": UUID})


@pytest.mark.parametrize("playbook", PLAYBOOKS)
@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({}, "invalid_argument", "No domain was given."),
        ({"domain": "nosuch"}, "not_found", "No host of this play has a domain nosuch."),
        ({"domain": "web1", "source": "kvm9"}, "invalid_argument", "The source kvm9 is not a host of this play."),
    ],
    ids=["no-domain", "unknown-domain", "no-such-host"],
)
def test_bad_input_is_a_sentence_with_a_code_and_nothing_is_done(stage: Stage, playbook: str, variables: dict[str, str], code: str, words: str) -> None:
    done = stage.play(playbook, **variables)
    assert done.code != 0
    assert done.error_codes - {"not_found"} == {code} - {"not_found"}, done.text
    assert words in done.text
    assert "Nothing was changed." in done.text
    assert done.calls_of(ACTING[playbook]) == []
    assert not stage.ledger.exists()


@pytest.mark.parametrize("variables", [{}, {"target": ""}], ids=["not-set", "empty"])
def test_a_drain_without_a_target_is_refused_before_any_host_is_asked(stage: Stage, variables: dict[str, str]) -> None:
    done = stage.play("drain", **variables)
    assert done.code != 0
    assert "No target was given. Set the hosts to drain, for example -e target=kvm1" in done.text
    assert "Keyword 'hosts' is required" not in done.text
    assert "Gather the facts of the host" not in done.text


@pytest.mark.parametrize("playbook", ["drain", "recover", "protect", "rolling_maintenance", "drill"])
def test_a_target_of_the_inventory_is_refused_before_anything_is_changed(tmp_path: pathlib.Path, playbook: str) -> None:
    """Ansible chooses the hosts of a play without the variables of hosts: it would be all hosts."""
    stage = Stage(build_collection(tmp_path / "collections", "host_facts"), tmp_path)
    stage.answers["host_facts"] = {}
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("target: kvm1\n")
    tasks = tmp_path / "maintain.yml"
    tasks.write_text("[]")
    done = stage.play(playbook, rolling_maintenance_tasks=str(tasks))
    assert done.code != 0
    assert "The target kvm1 is a variable of the inventory, which does not choose the hosts of a play." in " ".join(done.text.split()), done.text
    assert "as an extra variable, for example -e target=" in done.text
    assert {module for module, _host, _args in done.calls} <= {"host_facts"}
    assert not stage.ledger.exists()


@pytest.mark.parametrize("playbook", ["abort", "force_complete"])
def test_an_id_is_enough_and_no_host_is_asked(stage: Stage, playbook: str) -> None:
    record = write_record(stage, s.RUNNING)
    done = stage.play(playbook, id=record.id)
    assert done.code == 0, done.text
    assert [call[:2] for call in done.calls] == [(ACTING[playbook], "kvm2")]
    assert done.calls[0][2] == {"uuid": UUID, "id": record.id}


def test_an_id_is_enough_in_an_inventory_with_a_variable_domain(stage: Stage) -> None:
    (stage.folder / "group_vars").mkdir()
    (stage.folder / "group_vars/all.yml").write_text("domain: example.com\n")
    record = write_record(stage, s.RUNNING)
    done = stage.play("abort", id=record.id)
    assert (done.code, done.calls) == (0, [("migration_abort", "kvm2", {"uuid": UUID, "id": record.id})]), done.text
    refused = stage.play("abort", id=record.id, domain="db1")
    assert (refused.code != 0, refused.error_codes, refused.calls) == (True, {"invalid_argument"}, []), refused.text


@pytest.mark.parametrize("playbook", ["abort", pytest.param("force_complete", marks=pytest.mark.long)])
def test_ids_of_closed_records_and_of_other_ledgers_are_refused(stage: Stage, playbook: str) -> None:
    closed = write_record(stage, s.RUNNING, s.COMPLETED)
    other = write_record(stage, s.RUNNING, folder="other")
    for given, code in ((closed.id, "invalid_state"), (other.id, "not_found"), (NOWHERE, "not_found"), ("no-id", "invalid_argument")):
        done = stage.play(playbook, id=given)
        assert (done.code != 0, done.error_codes, done.calls) == (True, {code}, []), done.text


def test_options_and_answers_of_a_survey_reach_the_module(stage: Stage) -> None:
    stage.place("kvm1", moving=True)
    abort = stage.play("abort", domain="web1", abort_options={"wait_seconds": 5, "missing_ok": False}, abort_wait_seconds="90", abort_missing_ok="")
    assert abort.calls_of("migration_abort") == [("kvm1", {"uuid": UUID, "wait_seconds": 90, "missing_ok": False})]
    force = stage.play("force_complete", domain="web1", force_complete_complete="false", force_complete_bandwidth_mib="200", force_complete_wait_seconds="")
    assert force.calls_of("migration_force_complete") == [("kvm1", {"uuid": UUID, "bandwidth_mib": 200, "complete": False})]
    check = stage.play("check", domain=UUID, destination="kvm2", check_options={"scheduler": {"reserved_memory_mib": 1}}, check_copy_storage="auto")
    expected = {"uuid": UUID, "destination": "kvm2", "copy_storage": "auto", "scheduler": {"reserved_memory_mib": 1}}
    assert check.calls_of("scheduler_check") == [("kvm1", expected)]
    assert "web1 can go to kvm3" in check.text


def test_a_policy_is_set_with_false_values_too(stage: Stage) -> None:
    stage.place("kvm1")
    given = {"policy_options": {"post_copy": False, "group": {"name": "web", "policy": "anti-affinity"}}, "policy_timeout_seconds": "0", "policy_profile": ""}
    done = stage.play("policy", domain="web1", policy_unset="priority,drain", **given)
    ((_host, args),) = done.calls_of("domain_policy")
    assert (args["post_copy"], args["timeout_seconds"], args["unset"], args["group"]["name"]) == (False, 0, ["priority", "drain"], "web")
    assert not {"profile", "state", "auto_converge"} & args.keys()
    assert "The next move of web1 takes:" in done.text


def test_a_move_takes_its_options_from_migrate_options_and_the_survey(stage: Stage) -> None:
    stage.place("kvm1")
    given = {"migrate_options": {"timeout_seconds": "600", "post_copy": False, "link_mib": 100}, "migrate_on_timeout": "force_complete", "migrate_force": ""}
    done = stage.play("migrate", domain="web1", destination="kvm2", **given)
    expected = {"uuid": UUID, "destination": "kvm2", "timeout_seconds": 600, "post_copy": False, "link_mib": 100, "on_timeout": "force_complete"}
    assert done.calls_of("live_migrate") == [("kvm1", {"moves": [expected]})]
    for wrong in ({"time_limit": 600}, {"destination": "kvm3"}, "fast", {"on_timeout": "pause"}):
        refused = stage.play("migrate", domain="web1", destination="kvm2", migrate_options=wrong)
        assert (refused.code != 0, refused.error_codes, refused.calls) == (True, {"invalid_argument"}, []), refused.text


def test_a_refused_move_is_one_sentence_without_its_record(stage: Stage) -> None:
    stage.place("kvm1")
    refusal = {
        "changed": False,
        "failed": True,
        "error_code": "unsafe",
        "msg": "Domain web1 writes to kvm1.",
        "migrations": [{"id": "of the record"}],
    }
    stage.answers["live_migrate"] = {"kvm1": refusal}
    done = stage.play("migrate", domain="web1", destination="kvm2")
    assert done.code == 2
    assert 'fatal: [kvm1]: FAILED! => {"changed": false, "msg": "Domain web1 writes to kvm1."}' in done.text
    assert "of the record" not in done.text
    stage.answers["live_migrate"] = {"kvm1": {"changed": False, "failed": True, "msg": "MODULE FAILURE"}}
    failed = stage.play("migrate", domain="web1", destination="kvm2")
    assert failed.code == 2
    assert "MODULE FAILURE" in failed.text


@pytest.mark.parametrize("playbook", ["abort", pytest.param("force_complete", marks=pytest.mark.long)])
def test_a_refused_request_is_one_sentence_without_its_record(stage: Stage, playbook: str) -> None:
    stage.place("kvm1", moving=True)
    refusal = {"changed": True, "failed": True, "error_code": "invalid_state", "msg": "It came too late.", "migrations": [{"id": "of the record"}]}
    stage.answers[ACTING[playbook]] = {"kvm1": refusal}
    done = stage.play(playbook, domain="web1")
    assert done.code == 2, done.text
    assert 'fatal: [kvm1]: FAILED! => {"changed": false, "msg": "It came too late."}' in done.text
    assert "of the record" not in done.text
    stage.answers[ACTING[playbook]] = {"kvm1": {"changed": False, "failed": True, "msg": "MODULE FAILURE"}}
    failed = stage.play(playbook, domain="web1")
    assert (failed.code, "MODULE FAILURE" in failed.text) == (2, True), failed.text


@pytest.mark.parametrize("playbook", ["abort", "force_complete"])
def test_what_became_of_a_migration_is_shown(stage: Stage, playbook: str) -> None:
    stage.place("kvm1", moving=True)
    history = [{"detail": "by ann"}, {"status": "running"}, {"detail": "{{ 1 + 1 }} runs on the source."}, {"detail": ""}, {"detail": None}]
    record = {"domain": {"name": "web1", "uuid": UUID}, "source": {"host": "kvm1"}, "status": "cancelled", "reason": "operator", "history": history}
    stage.answers[ACTING[playbook]] = {"kvm1": {"changed": True, "migrations": [record]}}
    done = stage.play(playbook, domain="web1")
    assert done.code == 0, done.text
    assert "web1 from kvm1: cancelled (operator). {{ 1 + 1 }} runs on the source." in done.text
    stage.answers[ACTING[playbook]] = {"kvm1": {"changed": False, "migrations": []}}
    assert "No migration of the domain is in progress. Nothing was done." in stage.play(playbook, domain="web1").text


@pytest.mark.parametrize("answer", [{"changed": False}, {"failed": True, "error_code": "unreachable", "msg": "libvirt does not answer."}])
def test_a_move_has_the_facts_of_its_destination_if_that_answers(stage: Stage, answer: dict[str, t.Any]) -> None:
    stage.place("kvm1")
    stage.answers["host_facts"] = {"kvm2": answer}
    done = stage.play("migrate", domain="web1", destination="kvm2")
    assert done.code == 0, done.text
    assert [(name, host) for name, host, _args in done.calls if name != "migration_info"] == [("host_facts", "kvm2"), ("live_migrate", "kvm1")]
    assert stage.play("migrate", domain="web1").calls_of("host_facts") == []


def test_a_domain_that_has_arrived_is_not_moved(stage: Stage) -> None:
    stage.place("kvm2")
    done = stage.play("migrate", domain="web1", destination="kvm2")
    assert (done.code, done.calls_of("live_migrate")) == (0, [])
    assert "web1 is active on kvm2 already. Nothing was moved." in done.text


def test_a_domain_that_is_active_twice_is_an_alarm_and_no_choice(stage: Stage) -> None:
    stage.place("kvm2")
    stage.place("kvm3")
    done = stage.play("migrate", domain="web1", destination="kvm1")
    text = " ".join(done.text.split())
    assert (done.code, done.calls_of("live_migrate"), done.error_codes - {"not_found"}) == (2, [], {"conflict"}), text
    assert "Domain web1 is active on kvm2 and kvm3. The hosts are not asked at one moment: run the playbook again." in text
    assert "If it is active on both then, check first that they are different hosts: the inventory may have two names of one host." in text
    assert "find out immediately which copy is correct, and stop the other one. Nothing was changed." in text
    assert "Set the host that you mean" not in text


def test_an_unsettled_move_is_continued_from_its_source(stage: Stage) -> None:
    write_record(stage, s.RUNNING)
    done = stage.play("migrate", domain="web1", destination="kvm3")
    assert [call[:2] for call in done.calls] == [("host_facts", "kvm3"), ("live_migrate", "kvm2")]


def test_a_silent_host_prevents_only_what_it_may_have(stage: Stage) -> None:
    stage.silence("kvm1")
    refused = stage.play("abort", domain="web1")
    assert (refused.code != 0, refused.error_codes - {"not_found"}, refused.calls_of("migration_abort")) == (True, {"unreachable"}, []), refused.text
    assert "these hosts do not answer: kvm1: Failed to connect to kvm1" in refused.text
    stage.place("kvm2", moving=True)
    done = stage.play("abort", domain="web1")
    assert done.calls_of("migration_abort") == [("kvm2", {"uuid": UUID})]


def test_a_host_that_hangs_prevents_no_abort_on_another(stage: Stage) -> None:
    stage.answers["migration_info"]["kvm1"] = {**stage.missing(), "hangs_seconds": 400}
    stage.place("kvm2", moving=True)
    done = stage.play("abort", domain="web1", __domain_host_seconds=10)
    assert done.calls_of("migration_abort") == [("kvm2", {"uuid": UUID})], done.text


def test_an_abort_waits_for_all_answers_whatever_strategy_the_configuration_has(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_STRATEGY", "free")
    stage.place("kvm2", moving=True)
    stage.answers["migration_info"]["kvm3"] = {**stage.missing(), "hangs_seconds": 3}
    done = stage.play("abort", domain="web1")
    assert (done.code, done.calls_of("migration_abort")) == (0, [("kvm2", {"uuid": UUID})]), done.text


@pytest.mark.parametrize("path", sorted((COLLECTION / "playbooks").glob("*.yml")), ids=lambda path: str(path.name))
def test_the_hosts_of_each_play_take_each_step_together(path: pathlib.Path) -> None:
    assert {play["strategy"] for play in yaml.safe_load(path.read_text(encoding="utf-8"))} == {"ansible.builtin.linear"}


def test_a_project_imports_the_playbook(stage: Stage) -> None:
    stage.place("kvm1")
    done = stage.play(stage.import_playbook("abort"), domain="web1")
    assert (done.code, done.calls_of("migration_abort")) == (0, [("kvm1", {"uuid": UUID})]), done.text


def test_a_source_outside_of_the_fleet_is_a_host_of_the_play(stage: Stage) -> None:
    done = stage.play("migrate", "-i", "kvm7,", domain="web1", source="kvm7")
    assert [call[:2] for call in done.calls] == [("live_migrate", "kvm7")], done.text


def test_check_mode_reaches_the_module_and_nothing_is_changed(stage: Stage) -> None:
    stage.place("kvm1", moving=True)
    done = stage.play("abort", "--check", domain="web1")
    assert (done.code, len(done.calls_of("migration_abort"))) == (0, 1), done.text


def test_an_exchange_of_keys_with_one_host_is_refused(stage: Stage) -> None:
    done = stage.play("exchange_keys", "--check", "--limit", "kvm1")
    assert done.code != 0
    assert "The play has only kvm1, and keys are exchanged between its hosts." in done.text
    assert "Create the folder for keys" not in done.text


def test_keys_are_exchanged_between_all_hosts_of_an_inventory_without_the_group(stage: Stage) -> None:
    stage.group = "machines"
    done = stage.play("exchange_keys", "--check", "--limit", "kvm2")
    assert done.code != 0
    assert "The play has only kvm2, and keys are exchanged between its hosts." in done.text


def test_an_exchange_of_keys_between_unknown_hosts_is_refused(stage: Stage) -> None:
    done = stage.play("exchange_keys", "--check", target="kvm7")
    assert (done.code, "The target kvm7 is neither a host nor a group of the inventory. Nothing was changed." in done.text) == (2, True), done.text


@pytest.mark.parametrize("playbook", ["drain", "exchange_keys", "protect", "recover", "rolling_maintenance"])
def test_a_target_that_is_a_list_is_refused_with_what_to_write(stage: Stage, playbook: str) -> None:
    done = stage.play(playbook, "--check", target=["kvm1", "kvm2"], rolling_maintenance_tasks="patch.yml")
    assert done.code == 2, done.text
    assert " is a list. Write it as a host pattern, for example -e target=kvm1,kvm2. Nothing was changed." in done.text


@pytest.mark.parametrize(
    ("playbook", "variables"),
    [
        *((name, {}) for name in ("balance", "exchange_keys", "fleet_check", "maintenance", "status")),
        *((name, {"domain": "web1"}) for name in ACTING),
        ("evacuate", {"source": "kvm1"}),
    ],
)
def test_a_playbook_without_an_inventory_fails(stage: Stage, playbook: str, variables: dict[str, str]) -> None:
    stage.hosts = ()
    done = stage.play(playbook, **variables)
    assert (done.code, done.calls) == (2, []), done.text
    assert "The inventory has no host" in done.text


def test_hosts_know_each_other_by_the_address_that_libvirt_uses(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """In check mode, so that no key of this machine changes."""
    scan, asked = stage.folder / "bin/ssh-keyscan", stage.folder / "asked"
    scan.parent.mkdir()
    # OpenSSH 9.8 and later print their comments to standard output. The last host has no key of the type ed25519.
    scan.write_text(
        f'#!/bin/sh\necho "$@" >>{asked}\necho "# $5:$4 SSH-2.0-OpenSSH_10.0"\n[ $4 = 22 ] && host=$5 || host="[$5]:$4"\n'
        'echo "$host ssh-rsa AAAA"\necho "$host ecdsa-sha2-nistp256 AAAA"\n[ $5 = kvm3 ] || echo "$host ssh-ed25519 AAAA"\n'
    )
    scan.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scan.parent}:{os.environ['PATH']}")
    (stage.folder / "host_vars").mkdir()
    uris = {"kvm1": "qemu+libssh2://root@10.1.0.1/system", "kvm2": "qemu+ssh://root@[fd00::2]:2222/system", "kvm3": "qemu+tls://kvm3.example.org:16600/system"}
    for host, uri in uris.items():
        (stage.folder / f"host_vars/{host}.yml").write_text(json.dumps({"kvmfleet_libvirt_uri": uri}))
    done = stage.play("exchange_keys", "--check", "-vvv")
    types = "-t ed25519,ecdsa,rsa"
    assert sorted(asked.read_text().splitlines()) == [f"{types} -p 22 10.1.0.1", f"{types} -p 22 kvm3", f"{types} -p 2222 fd00::2"], done.text
    known = {("ssh-ed25519", "10.1.0.1"), ("ssh-ed25519", "[fd00::2]:2222"), ("ecdsa-sha2-nistp256", "kvm3")}
    assert set(re.findall(r'"key": "[^"]+ (\S+) AAAA",\s+"name": "([^"]+)"', done.text)) == known


def test_hosts_exchange_keys_that_a_host_in_fips_mode_accepts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each host logs in to it, and it logs in to each one."""
    programs = stage.folder / "bin"
    programs.mkdir()
    scan = 'echo "$5 ssh-ed25519 AAAA"; echo "$5 ssh-rsa AAAA"; [ $5 = kvm3 ] || echo "$5 ecdsa-sha2-nistp256 AAAA"'
    for name, lines in {"ssh-keyscan": scan, "python": f'PYTHONPATH={programs} exec {sys.executable} "$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{lines}\n")
        (programs / name).chmod(0o755)
    # What the kernel of such a host says.
    (programs / "fips").write_text("1\n")
    (programs / "sitecustomize.py").write_text(
        "import builtins, os\n"
        "for owner, name in ((builtins, 'open'), (os, 'access'), (os.path, 'exists')):\n"
        "    setattr(owner, name, lambda path, *more, _real=getattr(owner, name), **named: "
        f"_real('{programs}/fips' if path == '/proc/sys/crypto/fips_enabled' else path, *more, **named))\n"
    )
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (stage.folder / "host_vars").mkdir()
    (stage.folder / "host_vars/kvm1.yml").write_text(json.dumps({"ansible_python_interpreter": str(programs / "python")}))
    done = stage.play("exchange_keys", "--check", "-vvv")
    known = {("ecdsa-sha2-nistp256", "kvm1"), ("ecdsa-sha2-nistp256", "kvm2"), ("ssh-rsa", "kvm3")}
    assert set(re.findall(r'"key": "[^"]+ (\S+) AAAA",\s+"name": "([^"]+)"', done.text)) == known, done.text
    assert set(re.findall(r"/\.ssh/id_([a-z0-9]+)", done.text)) == {"ecdsa"}


def test_a_limit_leaves_hosts_out(stage: Stage) -> None:
    stage.place("kvm1")
    done = stage.play("abort", "--limit", "kvm2", domain="web1")
    assert (done.code != 0, [call[:2] for call in done.calls]) == (True, [("migration_info", "kvm2")])
    assert "No host of this play has a domain web1." in done.text


def test_the_screen_of_the_fleet_shows_what_answers(stage: Stage) -> None:
    record = write_record(stage, s.RUNNING, s.ERROR)
    for host in HOSTS:
        stage.answers["migration_info"][host] = {"changed": False, "migrations": []}
    stage.silence("kvm3")
    done = stage.play("status")
    assert done.code == 0, done.text
    assert "3 hosts, 1 silent. 0 moves in flight. 2 findings for a person." in done.text
    assert "kvm3 does not answer: " in done.text
    assert str(record.id) in done.text
    assert "changed=0" in done.text
    assert not re.search("changed=[1-9]", done.text)


@pytest.mark.long
def test_the_screen_of_the_fleet_does_not_wait_for_a_host_that_hangs(stage: Stage) -> None:
    """A host that is dying accepts a connection, and starts no program any more."""
    stage.answers["migration_info"] = {host: {"changed": False, "migrations": [], "hangs_seconds": 400 * (host == "kvm3")} for host in HOSTS}
    done = stage.play("status", __status_host_seconds=10)
    assert done.code == 0, done.text
    assert "3 hosts, 1 silent." in done.text
    assert re.search("kvm3 .*Timed out after 10 second", done.text)


def test_a_host_on_which_an_earlier_task_of_the_run_has_failed_is_named_as_silent(stage: Stage) -> None:
    stage.answers["migration_info"] = {host: {"changed": False, "migrations": []} for host in HOSTS}
    fails = {"ansible.builtin.fail": {"msg": "A disk fails."}, "when": "inventory_hostname == 'kvm2'"}
    site = stage.folder / "site.yml"
    imports = [{"import_playbook": f"kvmfleet.migration.{name}"} for name in ("status", "abort")]
    site.write_text(json.dumps([{"hosts": "kvmfleet_hosts", "gather_facts": False, "tasks": [fails]}, *imports]))
    done = stage.play(str(site), domain="web1")
    assert "kvm2 does not answer: It was not asked, because an earlier task of this run has failed there." in done.text
    assert "these hosts do not answer: kvm2: It was not asked, because an earlier task of this run has failed there." in done.text


def test_the_screen_of_the_fleet_needs_neither_hosts_nor_a_ledger(stage: Stage) -> None:
    for host in HOSTS:
        stage.silence(host)
    done = stage.play("status")
    assert done.code == 0, done.text
    assert "3 hosts, 3 silent." in done.text
    assert "The ledger cannot be read" in done.text
    assert not stage.ledger.exists()
    refused = stage.play("status", status_protect_max_hours="soon")
    assert (refused.code != 0, refused.error_codes) == (True, {"invalid_argument"}), refused.text
