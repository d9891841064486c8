# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves whose process is killed: at every moment of each kind of move, and 1,000 drawn ones with further faults."""

from __future__ import annotations

import json
import pathlib
import random
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import MigrationFailed
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import FakeDomain
from ansible_collections.kvmfleet.migration.tests.unit.fakes.saved import read_image, resumes_running
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._cold.pair import VARIABLES, Pair

KINDS: list[tuple[str, dict[str, t.Any]]] = [
    ("offline", {"state": ds.SHUTOFF}),
    ("offline", {"state": ds.SHUTOFF, "autostart": False}),
    ("offline", {"state": ds.SHUTOFF, "saved": ds.RUNNING}),
    ("offline", {"state": ds.SHUTOFF, "saved": ds.PAUSED, "autostart": False}),
    ("save", {}),
    ("save", {"state": ds.PAUSED}),
    ("shutdown", {}),
    ("shutdown", {"start": True}),
    ("shutdown", {"state": ds.SHUTOFF, "start": True}),
    ("offline", {"state": ds.SHUTOFF, "renamed": True}),
    ("offline", {"state": ds.SHUTOFF, "saved": ds.RUNNING, "renamed": True}),
    ("save", {"renamed": True}),
    ("shutdown", {"start": True, "renamed": True}),
]
# One of each method, with and without what a kill could lose; the others are combinations of these.
SHOWN = [kind for kind in KINDS if kind in (KINDS[0], KINDS[2], KINDS[4], KINDS[7], KINDS[12])]
SHOWN_FIRST = [*SHOWN, *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS if kind not in SHOWN)]
# Only a move that saves the memory can leave a part of it behind.
POWER_CUTS = [
    *(pytest.param(kind, False, marks=() if kind in SHOWN else pytest.mark.long) for kind in KINDS),
    *(pytest.param(kind, True, marks=pytest.mark.long) for kind in KINDS if kind[0] == "save"),
]


def make_pair(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, dict[str, t.Any]], name: str) -> Pair:
    (folder / name).mkdir()
    return Pair(folder / name, monkeypatch, kind[0], **kind[1])


def check_end(pair: Pair, kind: tuple[str, dict[str, t.Any]], what: str) -> None:
    """Check that the domain is in one place, as the record says, with all that belongs to it."""
    method, how = kind
    before, autostart, start = how.get("state", ds.RUNNING), how.get("autostart", True), how.get("start", False)
    assert pair.record.status in (s.COMPLETED, s.FAILED), what
    machine = pair.destination if pair.record.status == s.COMPLETED else pair.source
    domain = pair.at(machine)
    assert list(pair.places()) == [machine.name], what
    assert domain is not None, what
    assert (domain.autostart, domain.persistent) == (autostart, True), what
    assert "<a>b</a>" in domain.xml(), what
    check_names(pair, domain, "kvm2" if how.get("renamed") and machine is pair.destination else "kvm1", what)
    if method == "save":
        assert (domain.state, pair.images()) == (before, []), what
    elif pair.record.status == s.COMPLETED:
        assert domain.state == (ds.RUNNING if method == "shutdown" and start else ds.SHUTOFF), what
    check_memory(pair, how.get("saved"), machine.name, what)
    kept = [path.read_bytes() for path in pair.folder.rglob("*web1_VARS.fd") if "shared" not in path.parts]
    assert VARIABLES in kept, what
    if "saved" not in how:
        assert (pair.folder / machine.name / "web1_VARS.fd").read_bytes() == VARIABLES, what


def check_names(pair: Pair, domain: FakeDomain, host: str, what: str) -> None:
    """Check that all definitions of the domain, that in its memory too, have the names of that host."""
    saved = pair.fleet.machines[host].saved_memory.get("web1")
    in_memory = [domain.live_definition, read_image(saved)["definition"] if saved else ""]
    for definition in filter(None, [domain.xml(), *in_memory]):
        assert ("br7" if host == "kvm2" else "br0") in definition, what
        assert f"{pair.folder}/{host}/web1_VARS.fd" in definition, what


def check_memory(pair: Pair, resumes_as: str | None, host: str, what: str) -> None:
    """Check that the memory of a managed-save image is where the domain is, and nowhere else, and that its guest resumes as before."""
    assert pair.saved() == {name: ["web1.save"] if resumes_as and name == host else [] for name in pair.fleet.machines}, what
    if resumes_as:
        path = pair.fleet.machines[host].saved_memory["web1"]
        assert (read_image(path)["image"], resumes_running(path)) == (pair.memory, resumes_as == ds.RUNNING), what


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_arrives(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, dict[str, t.Any]]) -> None:
    pair = make_pair(tmp_path, monkeypatch, kind, "pair")
    answer = pair.run()
    assert answer is not None
    assert (pair.record.status, answer.error_code) == (s.COMPLETED, None), answer.msg
    check_end(pair, kind, "not killed")


@pytest.mark.parametrize("lost", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", SHOWN_FIRST)
def test_a_move_that_is_killed_at_any_moment_is_settled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, dict[str, t.Any]], lost: bool
) -> None:
    whole = make_pair(tmp_path, monkeypatch, kind, "whole")
    whole.run()
    moments = whole.moment
    assert moments > 20
    for moment in range(1, moments + 1):
        pair = make_pair(tmp_path, monkeypatch, kind, f"killed-{moment}")
        assert pair.run(die_at=moment) is None
        if lost:
            pair.forget_state()
        pair.run()
        check_end(pair, kind, f"killed at moment {moment} of {moments}")


def check_end_after_power_cut(pair: Pair, kind: tuple[str, dict[str, t.Any]], what: str) -> None:
    """Check that the domain is in one place, as the record says; its guest may have ended with the source."""
    assert pair.record.status in (s.COMPLETED, s.FAILED), (what, pair.answers[-1].msg)
    machine = pair.destination if pair.record.status == s.COMPLETED else pair.source
    domain = pair.at(machine)
    assert (list(pair.places()), pair.images()) == ([machine.name], []), what
    assert domain is not None, what
    assert (domain.autostart, domain.persistent) == (kind[1].get("autostart", True), True), what
    assert (pair.folder / machine.name / "web1_VARS.fd").exists() or "saved" in kind[1], what
    pair.check()


@pytest.mark.parametrize(("kind", "partial"), POWER_CUTS)
def test_a_move_whose_source_loses_its_power_at_any_moment_is_settled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, dict[str, t.Any]], partial: bool
) -> None:
    whole = make_pair(tmp_path, monkeypatch, kind, "whole")
    whole.run()
    for moment in range(1, whole.moment + 1):
        pair = make_pair(tmp_path, monkeypatch, kind, f"cut-{moment}")
        image = pair.record.cold.image if pair.record.cold else None
        assert pair.run(die_at=moment) is None
        if partial and pair.guest.active and not pair.images() and pair.at(pair.destination):
            pathlib.Path(str(image)).write_bytes(b"LibvirtQemudPart" + 100 * b"\0")
        pair.cut_power()
        pair.run()
        check_end_after_power_cut(pair, kind, f"power lost at moment {moment} of {whole.moment}")


def test_an_image_may_be_missing_as_long_as_its_folder_is_not_proved(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = make_pair(tmp_path, monkeypatch, ("save", {}), "pair")
    # Both hosts have the definition, and the guest is about to be saved.
    pair.on_moment = lambda moment: setattr(pair, "die_at", moment if pair.at(pair.destination) and not pair.guest.autostart else None)
    assert pair.run() is None
    pair.cut_power()
    seen_there = pair.destination.folders.pop(str(pair.shared))
    pair.on_moment = lambda moment: None
    answer = pair.run()
    assert answer is not None
    assert answer.record is not None
    assert (answer.record.status, answer.error_code) == (s.ERROR, "internal"), answer.msg
    assert pair.places() == {"kvm1": ds.SHUTOFF, "kvm2": ds.SHUTOFF}
    pair.destination.folders[str(pair.shared)] = seen_there
    pair.run()
    assert "Its guest ended before its memory was saved, and will start from its disks." in pair.answers[-1].msg
    check_end_after_power_cut(pair, ("save", {}), "once the folder is proved")


def cut_power_once_restored(pair: Pair) -> None:
    """Let the source lose its power when the destination has just restored the memory."""
    pair.on_moment = lambda moment: setattr(pair, "die_at", moment if pair.places().get("kvm2") == ds.PAUSED else None)
    assert pair.run() is None
    pair.on_moment = lambda moment: None
    pair.cut_power()
    assert (pair.places(), pair.images()) == ({"kvm1": ds.SHUTOFF, "kvm2": ds.PAUSED}, [""])


@pytest.mark.parametrize("state", [ds.RUNNING, ds.PAUSED])
@pytest.mark.parametrize("is_stale", [False, True])
def test_a_restored_guest_waits_for_its_image_while_the_source_does_not_see_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, state: str, is_stale: bool
) -> None:
    """The folder is not mounted yet after the boot of the source, or its server has forgotten it."""
    pair = make_pair(tmp_path, monkeypatch, ("save", {"state": state}), "pair")
    cut_power_once_restored(pair)
    unmounted = pair.folder / "unmounted"
    pair.shared.rename(unmounted)
    if is_stale:
        pair.shared.symlink_to(pair.shared)
    answer = pair.run()
    assert answer is not None
    assert answer.record is not None
    assert (answer.record.status, answer.error_code) == (s.ERROR, "internal"), answer.msg
    assert "Make sure that the source sees the folder" in answer.msg
    assert pair.places() == {"kvm1": ds.SHUTOFF, "kvm2": ds.PAUSED}
    pair.shared.unlink(missing_ok=True)
    unmounted.rename(pair.shared)
    pair.run()
    check_end(pair, ("save", {"state": state}), "once the folder is seen")


@pytest.mark.parametrize("runs", [2, 3])
def test_memory_that_may_be_restored_at_a_silent_destination_is_not_restored_by_a_later_run_either(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """The first settling run has no state file, and writes one itself."""
    pair = make_pair(tmp_path, monkeypatch, ("save", {}), "pair")
    cut_power_once_restored(pair)
    pair.destination.go_dark()
    for _run in range(runs):
        answer = pair.run()
        assert answer is not None
        assert answer.record is not None
        assert (answer.record.status, pair.guest.state, pair.images()) == (s.ERROR, ds.SHUTOFF, [""])
    pair.destination.come_back()
    pair.run()
    check_end(pair, ("save", {}), "once the destination answers")


def test_a_state_file_that_an_earlier_version_wrote_for_a_lost_one_proves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not write that the acts before were lost."""
    pair = make_pair(tmp_path, monkeypatch, ("save", {}), "pair")
    cut_power_once_restored(pair)
    pair.destination.go_dark()
    pair.run()
    (path,) = (tmp_path / "pair/run").glob("*.json")
    state = json.loads(path.read_text())
    assert [one["act"] for one in state["acts"]] == ["state_lost"]
    path.write_text(json.dumps({**state, "acts": []}))
    answer = pair.run()
    assert answer is not None
    assert answer.record is not None
    assert (answer.record.status, pair.guest.state, pair.images()) == (s.ERROR, ds.SHUTOFF, [""])


def test_a_guest_stays_paused_if_a_silent_destination_may_have_its_memory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ("offline", {"state": ds.SHUTOFF, "saved": ds.RUNNING})
    pair = make_pair(tmp_path, monkeypatch, kind, "pair")
    pair.on_moment = lambda moment: setattr(pair, "die_at", moment if pair.guest.state == ds.PAUSED else None)
    assert pair.run() is None
    pair.on_moment = lambda moment: None
    pair.forget_state()
    pair.destination.go_dark()
    for _run in range(2):
        answer = pair.run()
        assert answer is not None
        assert answer.record is not None
        assert (answer.record.status, pair.guest.state) == (s.ERROR, ds.PAUSED)
    pair.destination.come_back()
    pair.run()
    check_end(pair, kind, "once the destination answers")


def draw_fault(pair: Pair, dice: random.Random) -> None:
    """Let something else go wrong during the next run: the destination refuses a call, or does not answer from some moment on."""
    kind, moment = dice.choice(("none", "refusal", "silence")), dice.randint(1, 40)
    pair.destination.refuse.clear()
    pair.on_moment = lambda now: None
    if kind == "refusal":
        call = dice.choice(("save_managed", "migrate", "define", "restore", "undefine", "set_autostart", "make_folder", "resume", "start"))
        pair.destination.refuse[call] = MigrationFailed(f"Failed to {call}.")
    elif kind == "silence":
        pair.on_moment = lambda now: pair.destination.go_dark() if now == moment else None


def clear_faults(pair: Pair) -> None:
    pair.destination.refuse.clear()
    pair.on_moment = lambda now: None
    pair.destination.come_back()


@pytest.mark.parametrize("hundred", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 10))])
def test_of_1000_moves_with_kills_and_faults_none_starts_twice_or_loses_a_definition(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, hundred: int
) -> None:
    kills = 0
    for seed in range(hundred * 100, hundred * 100 + 100):
        dice = random.Random(seed)
        kind = dice.choice(KINDS)
        pair = make_pair(tmp_path, monkeypatch, kind, f"seed-{seed}")
        for _run in range(dice.randint(2, 3)):
            if pair.record.status in s.CLOSED:
                break
            draw_fault(pair, dice)
            kills += pair.run(die_at=dice.randint(1, 45)) is None
            clear_faults(pair)
            pair.check()
            if dice.random() < 0.5:
                pair.forget_state()
        if pair.record.status not in s.CLOSED:
            pair.run()
        check_end(pair, kind, f"seed {seed}")
    assert kills >= 100
