# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user with an SSH login and no other right sees of real hosts, over libvirt's read-only connections, and that this user can act nowhere."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS, Control, Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]

WITHHELD = {"platforms.cpu", "cpu_comparison", "paths"}
# What changes from one look to the next, and what belongs to the list of unknowns itself.
PASSING = {
    "gathered_at",
    "received",
    "memory",
    "numa_cells",
    "pools",
    "mounts",
    "unverified",
    "unverified_reasons",
    "remembered",
    "domains",
    "platforms",
    "traits",
    # Of the whole machine, to which other labs add some.
    "net_devices",
}
ACTS: dict[str, dict[str, t.Any]] = {
    "live_migrate": {"destination": "2"},
    "migration_abort": {},
    "migration_force_complete": {},
    "domain_policy": {"priority": 7},
    "domain_shutdown": {},
    "domain_start": {},
}
SHOWN_ACTS = ("live_migrate", "domain_shutdown")
# What each names: a host to act on.
PLAYBOOKS = {"drain": "target", "recover": "target", "evacuate": "source"}
WITH_LEDGER = ("live_migrate", "migration_abort", "migration_force_complete", "scheduler_check")


@pytest.fixture
def user(lab: Lab, control: Control) -> Control:
    """The same control node, whose tasks run as the user C(operator) on the hosts."""
    return Control(lab, control.folder, "--user", "operator")


def ask(who: Control, module: str, on: int = 1, **arguments: t.Any) -> Outcome:
    return Running(who.popen(who.ad_hoc_command(on, module, arguments, ledger=module in WITH_LEDGER))).wait()


@pytest.fixture
def read_only_uri(lab: Lab) -> t.Iterator[t.Callable[[int], str]]:
    """Return a function with the URI of a host as C(operator) on the first host reaches it: over SSH, as the same user."""
    lab.on(1, "sh", "-c", "install -m 600 -o operator /etc/ssh/id ~operator/id")
    key = f"{lab.on(1, 'sh', '-c', 'echo ~operator').strip()}/id"
    yield lambda number: f"qemu+ssh://operator@{lab.host(number)}/system?no_tty=1&no_verify=1&keyfile={key}"
    lab.on(1, "rm", key)


@pytest.mark.long
def test_a_user_sees_a_migration_and_cannot_end_it(lab: Lab, control: Control, user: Control, endless: str) -> None:
    running = control.begin_move(endless, **HELD)
    uuid = lab.uuid(endless)
    lab.under_way(uuid)
    seen = ask(user, "migration_info", name=endless)
    assert seen.code == 0, seen.text
    (found,) = seen.records
    assert (found["domain"]["uuid"], found["status"], found["watched"], found["id"]) == (uuid, "running", None, None)
    assert found["progress"]["memory_total_bytes"] > 0
    assert set(seen.result["unverified_reasons"]) == {"id", "destination", "watched", "waiting"}
    process = user.popen(user.playbook_command("status", {}))
    screen = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 0, screen
    assert f"{lab.host(1)} -> {lab.host(2)}  {endless}" in screen
    assert "whether moves are watched is not known" in screen
    assert "another tool" not in screen
    for act in ("migration_abort", "migration_force_complete"):
        assert ask(user, act, name=endless).refused() == "forbidden"
    whole = ask(control, "migration_info", name=endless)
    assert (whole.record["watched"], "unverified_reasons" in whole.result) == (True, False)
    assert whole.record["progress"]["memory_total_bytes"] == found["progress"]["memory_total_bytes"]
    assert ask(control, "migration_abort", name=endless).code == 0
    assert running.wait().ended() == ("cancelled", "operator")


def test_the_facts_of_a_user_are_those_of_root_but_for_what_is_listed(lab: Lab, control: Control, user: Control, guest: Make) -> None:
    guest("web", "--mib", "32", "--storage", "shared", "--bridge", "br0")
    own, facts = control.facts(1), user.facts(1)
    reasons = facts["unverified_reasons"]
    assert (set(reasons), WITHHELD - set(reasons)) == (set(facts["unverified"]), set())
    assert all(reasons.values())
    assert (own["unverified"], "unverified_reasons" in own) == ([], False)
    assert {key: facts[key] for key in own if key not in PASSING} == {key: own[key] for key in own if key not in PASSING}
    assert "lo" in facts["net_devices"]
    assert facts["platforms"] == [{**platform, "cpu": None, "firmware": None} for platform in own["platforms"]]
    assert set(own["traits"]) == {*facts["traits"], *(trait for trait in reasons if trait.startswith("COMPUTE_"))}
    assert (facts["remembered"] is None) == ("remembered" in reasons)
    for mine, theirs in zip(facts["domains"], own["domains"], strict=True):
        assert {**mine, "request": None} == {**theirs, "request": None}
        assert {**mine["request"], "disks": None} == {**theirs["request"], "disks": None}


@pytest.mark.long
def test_a_user_cannot_measure_dirty_rates_and_is_told_so(user: Control, guest: Make) -> None:
    guest("busy", "--mib", "48", "--dirty-mib", "16", "--rate", "1000")
    facts = user.facts(1, dirty_rate_seconds=1)
    assert "domains.dirty_rate_mib" in facts["unverified_reasons"]
    assert {domain["dirty_rate_mib"] for domain in facts["domains"]} == {None}


@pytest.mark.long
def test_a_check_of_a_user_warns_of_everything_that_only_root_can_check(
    lab: Lab, control: Control, user: Control, guest: Make, read_only_uri: t.Callable[[int], str]
) -> None:
    """The image is on the first host alone. For root that is a refusal, for a user an unknown fact."""
    name, there = guest("web", "--mib", "32", "--storage", "local"), lab.host(2)
    refused = ask(control, "scheduler_check", name=name, destination=there)
    assert refused.refused() == "conflict"
    assert [failure["filter"] for failure in refused.result["verdicts"][0]["failures"]] == ["storage"]
    assert "unverified_reasons" not in refused.result
    done = ask(user, "scheduler_check", name=name, destination=there, destination_uri=read_only_uri(2))
    assert done.code == 0, done.text
    (verdict,) = done.result["verdicts"]
    assert (verdict["host"], verdict["passed"]) == (there, True)
    assert set(done.result["unverified_reasons"]) == {lab.host(1), there}
    assert {*WITHHELD, "mounts"} <= set(done.result["unverified_reasons"][there])
    warnings = " ".join(verdict["warnings"])
    assert f"is on storage of {lab.host(1)} alone, and moves only with copy_storage or unsafe." in warnings
    assert f"Whether {there} can run the CPU of {name} could not be determined" in warnings
    for host in (lab.host(1), there):
        assert f"Not checked on {host}, because it was read without root: " in warnings
    assert (lab.places(name), control.path.exists()) == ({1: "running"}, False)


@pytest.mark.parametrize("module", [*SHOWN_ACTS, *(pytest.param(module, marks=pytest.mark.long) for module in ACTS if module not in SHOWN_ACTS)])
def test_a_user_who_acts_is_forbidden_and_nothing_is_changed(lab: Lab, control: Control, user: Control, guest: Make, module: str) -> None:
    name = guest("web", "--mib", "32")
    given = {key: lab.host(2) if key == "destination" else value for key, value in ACTS[module].items()}
    before = lab.virsh(1, "dumpxml", name)
    assert ask(user, module, name=name, **given).refused() == "forbidden"
    assert (lab.places(name), lab.virsh(1, "dumpxml", name)) == ({1: "running"}, before)
    assert control.records() == []


@pytest.mark.long
@pytest.mark.parametrize(("playbook", "variable"), PLAYBOOKS.items())
def test_a_playbook_that_acts_is_forbidden_before_anything_is_changed(
    lab: Lab, control: Control, user: Control, guest: Make, playbook: str, variable: str
) -> None:
    """Facts can be read without rights, and must not lead to a cordoned host, or to one that is fenced and of which nothing can be started elsewhere."""
    name, source = guest("web", "--mib", "32"), lab.host(3 if playbook == "evacuate" else 1)
    process = user.popen(user.playbook_command(playbook, {variable: source}))
    text = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode != 0, text
    assert "forbidden" in text, text
    assert "become: true" in " ".join(text.split()), text
    assert lab.places(name) == {1: "running"}
    assert control.records() == []
    entries = list(control.ledger.list_hosts()) if control.path.exists() else []
    assert {entry.body["state"] for entry in entries} <= {"enabled"}


@pytest.mark.long
def test_a_drain_of_a_user_can_be_planned(lab: Lab, control: Control, user: Control, guest: Make) -> None:
    name = guest("web", "--mib", "32")
    process = user.popen(user.playbook_command("drain", {"target": lab.host(1), "drain_host_plan_only": True}))
    text = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 0, text
    assert name in text
    assert "UUID is not known" not in text, text
    assert (lab.places(name), control.records()) == ({1: "running"}, [])


@pytest.mark.parametrize("module", ["migration_info", "scheduler_check"])
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "nobody"}, "not_found"),
        pytest.param({"uuid": "no-uuid"}, "invalid_argument", marks=pytest.mark.long),
        pytest.param({"name": "a/b"}, "invalid_argument", marks=pytest.mark.long),
    ],
)
def test_bad_options_of_a_user_are_refused(lab: Lab, user: Control, module: str, given: dict[str, str], code: str) -> None:
    more = {"destination": lab.host(2)} if module == "scheduler_check" else {}
    assert ask(user, module, **given, **more).refused() == code
