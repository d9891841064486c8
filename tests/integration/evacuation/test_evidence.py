# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An evacuation needs evidence. A host that answers, a fence agent without a result and an image in use each forbid it, whatever an operator confirms."""

from __future__ import annotations

import collections.abc
import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import building
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import network

Make = t.Callable[..., str]

WORD = {"by": "the operator on duty", "reason": "I pulled the plug"}


@pytest.fixture(scope="module")
def protected(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[Site]:
    """A guest on each of the first two hosts, and all hosts protected."""
    with building(lab, tmp_path_factory.mktemp("protected")) as (site, make):
        make("web")
        make("other", on=2)
        site.protect()
        yield site


@pytest.fixture
def site(protected: Site, tmp_path: pathlib.Path) -> collections.abc.Iterator[Site]:
    """The same fleet for each scenario; after it the first host runs its guest again, as no other host does, and the third remembers no start."""
    site = protected.twin(tmp_path)
    yield site
    # Its ledger ends with the scenario, and would be missing records for those of the others.
    shutil.rmtree(site.on_disk(3, "var-lib-kvmfleet/evacuations"), ignore_errors=True)
    for number in (1, 2):
        site.lab("heal", site.lab.host(number))
        site.bring_back(number)
    for number, name in ((1, "web"), (2, "other")):
        site.lab.try_("virsh", site.lab.host(number), "start", name)
    assert site.fleet() == {1: {"web"}, 2: {"other"}, 3: set()}
    site.verify_audit()


def cut_off(site: Site) -> None:
    """The first host lives and runs its guest, and nobody can reach it."""
    site.lab("cut", site.lab.host(1))


def test_evacuation_without_evidence_is_refused(site: Site) -> None:
    site.fencing(1, None)
    site.lose(1)
    done = site.evacuate(2)
    assert done.refused() == "unsafe"
    assert "force_down" in done.msg
    site.check_end_state({2: ["other"], 3: []})


@pytest.mark.parametrize("silenced", [pytest.param([], marks=pytest.mark.long), pytest.param(["--ssh"], marks=pytest.mark.long), ["--control"]])
def test_a_host_that_answers_is_not_evacuated_whatever_the_evidence(site: Site, silenced: list[str]) -> None:
    site.fencing(1, None)
    if silenced:
        site.lab("cut", site.lab.host(1), *silenced)
    for evidence in ({"force_down": WORD}, {"fencing": [evidence_of(site)]}):
        done = site.evacuate(2, force=True, **evidence)
        assert done.refused() == "unsafe"
        assert site.name(1) in done.msg
        site.check_end_state({1: ["web"], 2: ["other"], 3: []})


@pytest.mark.long
def test_a_host_whose_address_refuses_connections_does_not_count_as_silent(site: Site) -> None:
    """The host is off, and something else has its address: here the kernel of its network namespace."""
    site.fencing(1, None)
    site.lose(1)
    network.end_silence(site.lab.layout, site.lab.host(1))
    for evidence in ({"force_down": WORD}, {"fencing": [evidence_of(site)]}):
        done = site.evacuate(2, force=True, accept_silent=[site.name(1)], **evidence)
        assert done.refused() == "unsafe"
        assert "refuses connections" in done.msg
        site.check_end_state({2: ["other"], 3: []})


@pytest.mark.long
def test_a_host_whose_firewall_rejects_connections_does_not_count_as_silent(site: Site) -> None:
    """The host is on, and runs its guest; its firewall rejects all connections as firewalld does."""
    site.fencing(1, None)
    rule = ("INPUT", "-p", "tcp", "--syn", "-j", "REJECT", "--reject-with", "icmp-admin-prohibited")
    site.lab.on(1, "iptables", "-w", "-I", *rule)
    try:
        done = site.evacuate(2, force=True, accept_silent=[site.name(1)], force_down=WORD)
    finally:
        site.lab.on(1, "iptables", "-w", "-D", *rule)
    assert done.refused() == "unsafe"
    assert "refuses connections" in done.msg
    site.check_end_state({1: ["web"], 2: ["other"], 3: []})


def evidence_of(site: Site, **changes: t.Any) -> dict[str, t.Any]:
    """Return the evidence of a tasks file that has just switched the first host off."""
    return {"host": site.name(1), "action": "off", "status": "off", "at": utc_now(), "output": "outlet 4 is off", **changes}


def test_a_domain_whose_image_is_in_use_is_not_started_even_with_force_down(site: Site) -> None:
    site.fencing(1, None)
    cut_off(site)
    done = site.evacuate(2, force_down=WORD, force=True, lock_wait_seconds=1)
    assert done.refused() == "unsafe"
    assert "web.qcow2" in done.msg
    assert site.fleet() == {1: {"web"}, 2: {"other"}, 3: set()}
    assert not site.has_definition("web", 2)
    assert {line[1] for line in site.record_summaries()} <= {"conflict", "failed"}


@pytest.mark.long
def test_evacuation_is_refused_when_the_fence_agent_says_on_despite_force_down(site: Site, tmp_path: pathlib.Path) -> None:
    site.fencing(1, site.agent(1, agents.write(tmp_path, "fence_on", agents.SAYS_ON)))
    cut_off(site)
    done = site.evacuate(2, force_down=WORD)
    assert done.refused() == "unsafe"
    assert "is on" in done.msg
    site.check_end_state({1: ["web"], 2: ["other"], 3: []})


@pytest.mark.long
def test_a_host_that_is_cut_off_is_fenced_before_its_guest_is_started(site: Site) -> None:
    cut_off(site)
    done = site.evacuate(3)
    assert done.code == 0, done.text
    evidence = evacuations(done)[0]["evidence"]
    assert [(one["kind"], one["status"], one["host"]) for one in evidence if one["kind"] == "fence_agent"][:1] == [("fence_agent", "off", site.name(1))]
    site.check_end_state({2: ["other"], 3: ["web"]}, site.line("web", "done", 1, 3))
    site.lab.virsh(3, "destroy", "web")
    site.lab.virsh(3, "undefine", "web")


@pytest.mark.long
def test_a_fence_agent_that_hangs_times_out_and_the_error_names_the_choices(site: Site, tmp_path: pathlib.Path) -> None:
    hanging = agents.write(tmp_path, "fence_hangs", agents.HANGS)
    site.fencing(1, site.agent(1, hanging, timeout_seconds=4, status_timeout_seconds=2))
    site.lose(1)
    done = site.evacuate(2)
    assert done.refused() == "unreachable"
    for choice in ("BMC", "force_down", "another agent"):
        assert choice in done.msg
    site.check_end_state({2: ["other"], 3: []})
    leftovers = eventually(lambda: not running(tmp_path), "nothing of the agent is left")
    assert leftovers


@pytest.mark.long
def test_a_record_is_failed_when_the_fence_agent_dies_before_the_start(site: Site, tmp_path: pathlib.Path) -> None:
    """Its BMC dies once the record is written and before the guest is started: nothing was sent to the starting host, so another may start it."""
    agent = agents.write(tmp_path, "fence_dies", f"grep -rqs pre-migrating '{site.path}/migrations/open' && exit 1\nexec '{site.lab_agent}'")
    site.fencing(1, site.agent(1, agent))
    site.lose(1)
    done = site.evacuate(2)
    assert (done.code != 0, done.result["error_code"]) == (True, "unreachable"), done.text
    assert "no longer reports its state" in done.msg
    assert not site.has_definition("web", 2)
    assert site.possible_hosts("web") == [site.name(1)]
    site.check_end_state({2: ["other"], 3: []}, site.line("web", "failed", 1, 2))
    site.fencing(1, site.agent(1, site.lab_agent))
    done = site.evacuate(3)
    assert done.code == 0, done.text
    site.check_end_state({2: ["other"], 3: ["web"]}, site.line("web", "failed", 1, 2), site.line("web", "done", 1, 3))
    site.lab.virsh(3, "destroy", "web")
    site.lab.virsh(3, "undefine", "web")


def running(folder: pathlib.Path) -> list[str]:
    """Return the processes that were begun from a file of this folder."""
    commands = [_command(path) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
    return [command for command in commands if str(folder / "fence_") in command]


def _command(path: pathlib.Path) -> str:
    """Return a process's command line; empty where it has ended meanwhile."""
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.long
def test_a_password_that_a_fence_agent_prints_is_masked(site: Site, tmp_path: pathlib.Path) -> None:
    site.fencing(1, site.agent(1, agents.that_talks(tmp_path), options={"password": agents.PASSWORD}))
    site.lose(1)
    done = site.evacuate(2, 1, "--check", "-vvvv")
    assert done.code == 0, done.text
    site.fencing(1, site.agent(1, agents.write(tmp_path, "fence_fails", agents.TALKS + "false"), options={"password": agents.PASSWORD}))
    failed = site.evacuate(2, 1, "-vvvv")
    assert failed.refused() == "unreachable"
    for text in (done.text, failed.text, *(path.read_text(errors="replace") for path in site.path.rglob("*") if path.is_file())):
        assert "hunter2" not in text
    site.check_end_state({2: ["other"], 3: []})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"status": "on"}, "not off"),
        pytest.param({"action": "reboot"}, "reboot", marks=pytest.mark.long),
        pytest.param({"at": "2020-01-01T00:00:00Z"}, "old", marks=pytest.mark.long),
    ],
)
def test_evidence_that_is_not_off_or_is_too_old_is_refused(dead: Site, changes: dict[str, t.Any], told: str) -> None:
    done = dead.evacuate(2, fencing=[evidence_of(dead, **changes)])
    assert done.refused() == "unsafe"
    assert told in done.msg
    dead.check_end_state({2: ["other"], 3: []})


@pytest.fixture(scope="module")
def dead_site(protected: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return protected.twin(tmp_path_factory.mktemp("dead"))


@pytest.fixture
def dead(dead_site: Site) -> Site:
    """The first host is off and has no agent."""
    dead_site.fencing(1, None)
    dead_site.lose(1)
    return dead_site


def test_force_down_without_a_reason_is_refused(dead: Site) -> None:
    done = dead.evacuate(2, force_down={"by": "me"})
    assert done.refused() == "invalid_argument"
    assert "reason" in done.msg
    dead.check_end_state({2: ["other"], 3: []})


@pytest.mark.long
def test_another_silent_host_without_an_agent_must_be_named_in_accept_silent(dead: Site) -> None:
    dead.lose(2)
    dead.fencing(2, None)
    done = dead.evacuate(3, force_down=WORD)
    assert done.refused() == "unsafe"
    assert dead.name(2) in done.msg
    assert "accept_silent" in done.msg
    for wrong in ("kvm9", dead.name(3)):
        assert dead.evacuate(3, force_down=WORD, accept_silent=[wrong]).code != 0
    dead.check_end_state({3: []})
    dead.fencing(2, dead.agent(2, dead.lab_agent))
    predicted = dead.evacuate(3, 1, "--check", force_down=WORD)
    assert predicted.code == 0, predicted.text
    assert [(one["host"], one["kind"]) for one in predicted.result["evidence"]] == [(dead.name(1), "person"), (dead.name(2), "fence_agent")]
    dead.bring_back(2)
    dead.lab.virsh(2, "start", "other")


def test_a_host_whose_address_leads_to_another_host_counts_as_silent(dead: Site) -> None:
    """The third host answers at the address of the first one, and was not asked whether it runs the guest."""
    layout = dead.lab.layout
    dead.variable(3, "kvmfleet_libvirt_uri", f"qemu+tcp://{layout.host_address(dead.lab.host(2))}/system")
    try:
        done = dead.evacuate(2, force_down=WORD)
        assert done.refused() == "unsafe"
        assert f"The address of {dead.name(3)} leads to {dead.name(2)}" in done.msg
        assert f"accept_silent: [{dead.name(3)}]" in done.msg
        dead.check_end_state({2: ["other"], 3: []})
    finally:
        dead.variable(3, "kvmfleet_libvirt_uri", None)


def test_evacuation_of_an_unknown_source_or_domain_is_refused(dead: Site) -> None:
    assert dead.task(2, "evacuate", {"source": "kvm9", "force_down": WORD}).refused() == "not_found"
    assert dead.task(2, "evacuate", {"source": dead.name(2), "force_down": WORD}).code != 0
    assert dead.evacuate(2, force_down=WORD, domains=["nobody"]).code != 0
    dead.check_end_state({2: ["other"], 3: []})


def test_a_dead_host_is_evacuated_with_force_down(dead: Site) -> None:
    """With C(force_down) the refusals of the tests before end, because only the evidence was missing. The guest is removed again."""
    done = dead.evacuate(2, force_down=WORD)
    assert done.code == 0, done.text
    kinds = [one["kind"] for one in evacuations(done)[0]["evidence"]]
    assert "person" in kinds
    assert "I pulled the plug" in str(evacuations(done)[0]["evidence"])
    dead.check_end_state({2: ["other", "web"], 3: []}, dead.line("web", "done", 1, 2))
    dead.lab.virsh(2, "destroy", "web")
    dead.lab.virsh(2, "undefine", "web")
