# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dies, fails or meets its like in the middle of an evacuation or a cleanup. The next run finds out by asking; nothing runs twice."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import AFTER, BEFORE
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations

Make = t.Callable[..., str]

SECONDS = 60


@pytest.fixture
def dead(site: Site, guest: Make) -> Site:
    """The first host is off; its guest C(web) may be started elsewhere."""
    guest("web")
    site.protect()
    site.lose(1)
    return site


def wait_for_status(site: Site, status: str) -> None:
    eventually(lambda: [record["status"] for record in site.records()] == [status], f"the record is '{status}'", SECONDS)


def once(site: Site) -> None:
    """Run the evacuation once more, until it is done; the guest runs once, on the second host, and the first is cleaned."""
    again = eventually(lambda: (done := site.evacuate(2)).code == 0 and done, "the evacuation can be run to its end", SECONDS)
    assert again.code == 0, again.text
    site.ended({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
    assert not site.evacuate(2).changed


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_the_control_process_is_killed_at_the_start(dead: Site, when: str) -> None:
    """C(prepare): nothing runs yet. C(started): the guest runs, and nobody has written so. The intent was on disk before either."""
    dead.hooks[2].hold(when, "web")
    running = dead.begin_evacuation(2)
    dead.hooks[2].wait_for(when, "web")
    assert [line[1] for line in dead.told()] == ["pre-migrating"]
    assert dead.possible_hosts("web") == [dead.name(1), dead.name(2)]
    running.kill()
    elsewhere = dead.evacuate(3)
    assert elsewhere.code != 0, elsewhere.text
    assert dead.fleet()[3] == set()
    dead.hooks[2].let_go(when, "web")
    once(dead)


@pytest.mark.long
def test_the_control_process_is_killed_before_anything_was_asked_of_the_host(dead: Site) -> None:
    running = dead.begin_evacuation(2)
    eventually(dead.told, "a record is open", SECONDS)
    running.kill()
    assert dead.told()[0][1] in ("accepted", "pre-migrating", "done")
    once(dead)


@pytest.mark.long
def test_the_destination_dies_in_the_start_and_needs_evidence_of_its_own(dead: Site) -> None:
    dead.hooks[2].hold(BEFORE, "web")
    running = dead.begin_evacuation(2)
    dead.hooks[2].wait_for(BEFORE, "web")
    dead.lose(2)
    failed = running.wait()
    assert failed.code != 0, failed.text
    dead.ended({3: []}, dead.line("web", "pre-migrating", 1, 2))
    dead.fencing(2, None)
    without = dead.evacuate(3)
    assert without.code != 0, without.text
    dead.ended({3: []}, dead.line("web", "pre-migrating", 1, 2))
    dead.fencing(2, dead.agent(2, dead.lab_agent))
    done = dead.evacuate(3)
    assert done.code == 0, done.text
    assert dead.fleet() == {3: {"web"}}
    newest = dead.records()[-1]
    assert (newest["status"], newest["destination"]["host"]) == ("done", dead.name(3))
    assert dead.records()[0]["superseded_by"] == newest["id"]
    dead.bring_back(2)
    dead.bring_back(1)
    for number in (1, 2):
        assert dead.clean(number).code == 0
    assert dead.fleet() == {1: set(), 2: set(), 3: {"web"}}


@pytest.mark.long
def test_the_connection_is_lost_while_the_start_succeeds(dead: Site) -> None:
    dead.hooks[2].hold(BEFORE, "web")
    running = dead.begin_evacuation(2)
    dead.hooks[2].wait_for(BEFORE, "web")
    dead.lab("cut", dead.lab.host(2))
    dead.hooks[2].let_go(BEFORE, "web")
    eventually(lambda: dead.hooks[2].seen(AFTER, "web"), "the guest runs", SECONDS)
    lost = running.wait()
    assert lost.code != 0, lost.text
    dead.ended({2: ["web"], 3: []}, dead.line("web", "pre-migrating", 1, 2))
    elsewhere = dead.evacuate(3)
    assert elsewhere.code != 0, elsewhere.text
    assert dead.fleet()[3] == set()
    dead.lab("heal", dead.lab.host(2))
    once(dead)


def test_two_control_processes_at_once(dead: Site) -> None:
    racing = [dead.begin_evacuation(number) for number in (2, 3)]
    ended = [one.wait() for one in racing]
    assert sorted(one.code != 0 for one in ended) == [False, True], [one.text for one in ended]
    winner = 2 if ended[0].code == 0 else 3
    assert dead.fleet() == {winner: {"web"}, 5 - winner: set()}
    done = [line for line in dead.told() if line[1] not in ("conflict", "failed")]
    assert done == [dead.line("web", "done", 1, winner)]
    assert dead.possible_hosts("web") == [dead.name(winner)]


@pytest.mark.long
def test_three_domains_of_which_one_cannot_start(site: Site, guest: Make) -> None:
    for name in ("web", "bad", "app"):
        guest(name)
    site.protect()
    site.lose(1)
    site.hooks[2].refuse(BEFORE, "bad")
    done = site.evacuate(2, parallel=1)
    assert done.code != 0, done.text
    assert "bad" in done.msg
    assert sorted((one["domain"]["name"], one["status"]) for one in evacuations(done)) == [("app", "done"), ("bad", "failed"), ("web", "done")]
    assert site.fleet() == {2: {"web", "app"}, 3: set()}
    assert not site.knows("bad", 2)
    assert site.possible_hosts("bad") == [site.name(1)]
    elsewhere = site.evacuate(3)
    assert elsewhere.code == 0, elsewhere.text
    assert site.fleet() == {2: {"web", "app"}, 3: {"bad"}}
    site.bring_back(1)
    cleaned = site.clean()
    assert sorted(one["name"] for one in cleaned.result["cleaned"]) == ["app", "bad", "web"]
    assert site.fleet() == {1: set(), 2: {"web", "app"}, 3: {"bad"}}
    assert sorted(line[:2] for line in site.told()) == [("app", "completed"), ("bad", "completed"), ("bad", "failed"), ("web", "completed")]


@pytest.mark.long
def test_it_fails_after_it_has_run_and_leaves_nothing_there(dead: Site) -> None:
    dead.hooks[2].refuse(AFTER, "web")
    done = dead.evacuate(2)
    assert done.code != 0, done.text
    assert not dead.knows("web", 2)
    dead.hooks[2].clear()
    told = dead.told()
    assert [line[1] for line in told] == ["failed"]
    assert dead.evacuate(2).code == 0
    assert dead.fleet() == {2: {"web"}, 3: set()}


@pytest.mark.long
@pytest.mark.parametrize("after", ["begun", "undefined"])
def test_the_control_process_is_killed_during_the_cleanup(dead: Site, after: str) -> None:
    assert dead.evacuate(2).code == 0
    dead.bring_back(1)
    running = dead.begin(1, "evacuation_cleanup", {})
    if after == "undefined":
        eventually(lambda: not dead.on_disk(1, "etc-libvirt/qemu/web.xml").exists(), "the definition is gone", SECONDS)
    running.kill()
    assert dead.fleet() == {1: set(), 2: {"web"}, 3: set()}
    again = eventually(lambda: (done := dead.clean()).code == 0 and done, "the cleanup can be run to its end", SECONDS)
    assert again.code == 0, again.text
    assert not dead.knows("web", 1)
    dead.ended({1: [], 2: ["web"], 3: []}, dead.line("web", "completed", 1, 2))


@pytest.mark.long
def test_two_cleanups_at_once(dead: Site) -> None:
    assert dead.evacuate(2).code == 0
    dead.bring_back(1)
    racing = [dead.begin(1, "evacuation_cleanup", {}) for dummy in range(2)]
    ended = [one.wait() for one in racing]
    assert [one.code for one in ended] == [0, 0], [one.text for one in ended]
    assert sum(len(one.result["cleaned"]) for one in ended) == 1
    assert not dead.knows("web", 1)
    dead.ended({1: [], 2: ["web"], 3: []}, dead.line("web", "completed", 1, 2))


@pytest.fixture
def small_disk(dead: Site) -> t.Iterator[pathlib.Path]:
    """The ledger is on a file system of its own, on which there is no more room."""
    kept = dead.path.rename(dead.folder / "kept")
    dead.path.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", str(dead.path)], check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", str(dead.path)], check=True)
        filler = dead.path / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4096"], check=False, capture_output=True)
        yield filler
    finally:
        subprocess.run(["umount", str(dead.path)], check=True)


@pytest.mark.long
def test_the_ledgers_disk_is_full(dead: Site, small_disk: pathlib.Path) -> None:
    """No intent can be written, so nothing is started; with room again it goes on."""
    done = dead.evacuate(2)
    assert done.code != 0, done.text
    assert "space" in done.msg
    assert dead.fleet() == {2: set(), 3: set()}
    assert not dead.knows("web", 2)
    small_disk.unlink()
    assert {line[1] for line in dead.told()} <= {"accepted", "failed", "conflict"}
    again = dead.evacuate(2)
    assert again.code == 0, again.text
    assert dead.fleet() == {2: {"web"}, 3: set()}
    assert [line[1] for line in dead.told()][-1] == "done"
    dead.verify_audit()
