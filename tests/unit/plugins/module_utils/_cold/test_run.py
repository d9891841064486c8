# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phase that acts: its lock, its generation, and which host may be asked for a record."""

from __future__ import annotations

import dataclasses
import errno
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _run_folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import hosts, journal, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.mover import ColdMover
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.run import carry_out_order
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.steps import STAYED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import ColdAnswer, ColdOrder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import MigrationFailed, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._cold.pair import THERE, Pair

# Longer than LOCK_SECONDS by any clock.
MANY = 5


@pytest.fixture
def pair(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(run, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(hosts, "SILENT_SECONDS", 0.0)
    return Pair(tmp_path, monkeypatch, "offline", state=ds.SHUTOFF)


def carry_out(pair: Pair, adopt: bool = False, **changes: t.Any) -> ColdAnswer:
    order = ColdOrder(dataclasses.replace(pair.record, **changes), THERE, adopt)
    return carry_out_order(LOCAL_URI, order, pair.fleet.open, str(pair.folder / "run"))


def refuses(pair: Pair, answer: ColdAnswer) -> str:
    """Return why the order was refused; nothing was changed."""
    assert (answer.record, answer.error_code) == (None, "conflict")
    assert pair.places() == {"kvm1": ds.SHUTOFF}
    return answer.msg


def leaves_open(pair: Pair, answer: ColdAnswer) -> str:
    """Return why the order was refused whose move another process may have begun; this one has changed nothing."""
    assert answer.record is not None
    assert (answer.record.status, answer.error_code, pair.places()) == (s.ERROR, "internal", {"kvm1": ds.SHUTOFF})
    return answer.msg


def test_another_host_than_the_source_does_not_act(pair: Pair) -> None:
    other = HostRef("kvm3", None, "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c09")
    assert "This host is not kvm3" in refuses(pair, carry_out(pair, source=other))


def test_an_order_waits_for_the_lock_of_its_domain(pair: Pair) -> None:
    ownership = Ownership(UUID, str(pair.folder / "run"))
    try:
        assert "Another process on this host moves domain" in refuses(pair, carry_out(pair))
    finally:
        ownership.release_lock()


def test_a_repeated_order_waits_as_long_as_the_first_one_works(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Ownership(UUID, str(pair.folder / "run"))
    first.begin_record(pair.record.record_id, pair.record.generation)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == MANY:
            first.release_lock()

    monkeypatch.setattr(run.time, "sleep", wait)
    answer = carry_out(pair, status=s.RUNNING)
    assert len(waits) == MANY
    # The first one has ended without doing anything, and its move is finished.
    assert answer.record is not None
    assert (answer.record.status, pair.places()) == (s.COMPLETED, {"kvm2": ds.SHUTOFF})


def begin_first(pair: Pair) -> None:
    """Let an earlier process begin the order, and lose its state file."""
    first = Ownership(UUID, str(pair.folder / "run"))
    first.begin_record(pair.record.record_id, pair.record.generation)
    first.release_lock()


def test_a_repeated_order_that_cannot_be_followed_leaves_the_record_open(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process may still move the domain. A record that was closed with "Nothing was changed" would book nothing at its destination."""
    begin_first(pair)

    def refuse(uri: str) -> t.NoReturn:
        raise Unreachable("libvirt did not answer.")

    monkeypatch.setattr(pair.fleet, "open", refuse)
    msg = leaves_open(pair, carry_out(pair, status=s.RUNNING))
    assert "cannot be followed: libvirt did not answer. Run the task again: it verifies on both hosts whether the move has begun." in msg


def test_a_repeated_order_that_cannot_be_taken_over_leaves_the_record_open(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_first(pair)
    monkeypatch.setattr(run, "identify_watcher", lambda run_id: refuse_to_write("/proc/self/stat", None))
    assert "No space left on device" in leaves_open(pair, carry_out(pair, status=s.RUNNING))


def test_a_lock_file_that_cannot_be_read_does_not_hide_the_answers_of_others(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> t.NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(_run_folder, "read_json", refuse)
    assert "Too many open files" in leaves_open(pair, carry_out(pair, status=s.RUNNING))
    monkeypatch.undo()
    monkeypatch.setattr(run, "has_begun_last", refuse)
    assert "Too many open files" in leaves_open(pair, under_way(pair, -1))


def test_another_run_that_settles_the_record_does_not_wait_for_longer(pair: Pair) -> None:
    working = Ownership(UUID, str(pair.folder / "run"))
    working.begin_record(pair.record.record_id, pair.record.generation)
    try:
        assert "Another process on this host moves domain" in refuses(pair, carry_out(pair, adopt=True, status=s.RUNNING))
    finally:
        working.release_lock()


@pytest.mark.parametrize("ended", [s.FAILED, s.COMPLETED])
def test_an_order_that_comes_again_after_its_move_has_ended_changes_nothing(pair: Pair, ended: str) -> None:
    pair.destination.refuse = {"define": MigrationFailed("Failed to define.")} if ended == s.FAILED else {}
    first = carry_out(pair, status=s.RUNNING)
    assert first.record is not None
    assert first.record.status == ended
    pair.destination.refuse = {}
    before = pair.places()
    again = carry_out(pair, status=s.RUNNING)
    assert (again, pair.places()) == (first, before)
    # Nor does it hinder the next record.
    assert carry_out(pair, generation=pair.record.generation + 1, status=s.RUNNING).record is not None


def test_the_end_of_an_earlier_move_is_not_that_of_an_order_that_comes_again(pair: Pair) -> None:
    """The first process was killed before it replaced the state file."""
    earlier = dataclasses.replace(pair.record, id="2f0f8f8e-8f0c-4c1e-9d5e-0a6a3b7d1c99")
    journal.ColdJournal(earlier, Watcher(4711, 1, "r"), False, str(pair.folder / "run")).finish(STAYED, "The destination refused it.", None)
    begin_first(pair)
    answer = carry_out(pair, status=s.RUNNING)
    assert answer.record is not None
    assert (answer.record.id, answer.record.status, pair.places()) == (pair.record.id, s.COMPLETED, {"kvm2": ds.SHUTOFF})


def test_a_repeated_order_finishes_the_move_of_a_process_that_was_killed(pair: Pair) -> None:
    journal.ColdJournal(pair.record, Watcher(4711, 1, "r"), False, str(pair.folder / "run")).begin()
    begin_first(pair)
    answer = carry_out(pair, status=s.RUNNING)
    assert answer.record is not None
    assert (answer.record.status, answer.error_code, pair.places()) == (s.COMPLETED, None, {"kvm2": ds.SHUTOFF})


def test_an_order_of_another_generation_does_not_wait_for_longer(pair: Pair) -> None:
    settling = Ownership(UUID, str(pair.folder / "run"))
    settling.take_over(pair.record.record_id, pair.record.generation)
    try:
        assert "Another process on this host moves domain" in leaves_open(pair, carry_out(pair, status=s.RUNNING))
    finally:
        settling.release_lock()


def test_an_order_that_comes_after_its_record_was_taken_over_is_refused(pair: Pair) -> None:
    """By another run that settles it; or by the second process of three, of which each was killed with its connection."""
    ownership = Ownership(UUID, str(pair.folder / "run"))
    ownership.take_over(pair.record.record_id, pair.record.generation)
    ownership.release_lock()
    assert "came too late" in leaves_open(pair, carry_out(pair, status=s.RUNNING))
    assert "came too late" in leaves_open(pair, under_way(pair, -1))


def test_a_record_before_the_source_was_ordered_is_undone(pair: Pair) -> None:
    answer = carry_out(pair, adopt=True, status=s.QUEUED)
    assert answer.record is not None
    assert (answer.record.status, answer.record.generation > pair.record.generation) == (s.FAILED, True)
    assert pair.places() == {"kvm1": ds.SHUTOFF}


def test_another_host_under_the_uri_of_the_destination_gets_nothing(pair: Pair) -> None:
    pair.destination.host_id = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
    answer = carry_out(pair, destination=HostRef("kvm2", "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02", None))
    assert answer.record is not None
    assert (answer.record.status, answer.error_code, pair.places()) == (s.ERROR, "internal", {"kvm1": ds.SHUTOFF})
    assert "Another host than kvm2 answers" in answer.msg


OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"


def refuse_to_write(path: str, document: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", path)


def test_nothing_is_changed_without_space_for_the_state_file(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "write_json", refuse_to_write)
    answer = carry_out(pair, status=s.RUNNING)
    assert (answer.record, answer.error_code, pair.places()) == (None, "internal", {"kvm1": ds.SHUTOFF})
    assert "No space left on device. Nothing was started. Free space there" in answer.msg
    # The end of a move that was begun before needs none.
    assert carry_out(pair, adopt=True, status=s.RUNNING).record is not None
    assert pair.places() == {"kvm2": ds.SHUTOFF}


def test_a_lock_that_cannot_be_made_is_reported(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(domain_uuid: str, folder: str) -> Ownership:
        raise OSError(errno.ENOSPC, "No space left on device", f"{folder}/{domain_uuid}.lock")

    monkeypatch.setattr(run, "Ownership", refuse)
    answer = carry_out(pair)
    assert (answer.record, answer.error_code) == (None, "internal")
    assert f"cannot begin on its source: [Errno 28] No space left on device: '{pair.folder}/run/{UUID}.lock'. Nothing was changed." in answer.msg


def test_an_error_in_one_move_does_not_hide_the_answers_of_the_others(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(mover: ColdMover) -> ColdAnswer:
        if mover.order.uuid == UUID:
            raise OSError(errno.EIO, "Input/output error", "/run/kvmfleet")
        return ColdAnswer(mover.order.uuid, mover.journal.record, None, "")

    monkeypatch.setattr(ColdMover, "carry_out", fail)
    monkeypatch.setattr(run, "require_root", lambda: None)
    monkeypatch.setattr(run, "prepare_run_folder", lambda: None)
    folder = str(pair.folder / "run")
    one = ColdOrder(dataclasses.replace(pair.record, status=s.RUNNING), THERE, adopt=False)
    other = dataclasses.replace(one, record=dataclasses.replace(one.record, domain=dataclasses.replace(one.record.domain, uuid=OTHER)))

    def carry_out_here(uri: str, order: ColdOrder, arrived: BootMoment) -> ColdAnswer:
        return carry_out_order(uri, order, pair.fleet.open, folder, arrived)

    monkeypatch.setattr(run, "carry_out_order", carry_out_here)
    failed, ended = run.carry_out_moves(LOCAL_URI, {"orders": encode([one, other])})["answers"]
    assert (failed["uuid"], failed["record"]["status"], failed["error_code"]) == (UUID, s.ERROR, "internal")
    assert "The move ended early: [Errno 5] Input/output error: '/run/kvmfleet'" in failed["msg"]
    assert (ended["uuid"], ended["record"]["status"], ended["error_code"]) == (OTHER, s.RUNNING, None)


def under_way(pair: Pair, seconds: float, boot_id: str | None = None, **changes: t.Any) -> ColdAnswer:
    """Return the answer to an order that may begin for that many seconds from now, and may be of another boot."""
    now = boot_moment()
    until = dataclasses.replace(now, seconds=now.seconds + seconds, boot_id=boot_id or now.boot_id)
    order = ColdOrder(dataclasses.replace(pair.record, **{"status": s.RUNNING, **changes}), THERE, adopt=False, begin_until=until)
    return carry_out_order(LOCAL_URI, order, pair.fleet.open, str(pair.folder / "run"))


def test_an_order_that_was_under_way_for_too_long_begins_nothing(pair: Pair) -> None:
    late = under_way(pair, -1)
    assert late.record is not None
    assert (late.record.status, late.error_code, pair.places()) == (s.FAILED, "conflict", {"kvm1": ds.SHUTOFF})
    assert "came too late" in late.msg
    # The next record of the domain, with the generation that the ledger gives it after this one.
    assert under_way(pair, 60, generation=late.record.generation + 1).record is not None
    assert pair.places() == {"kvm2": ds.SHUTOFF}
    # The command was repeated: the move has begun, and is followed to its end however long that took.
    again = under_way(pair, -1, generation=late.record.generation + 1).record
    assert again is not None
    assert again.status == s.COMPLETED


def test_an_order_that_was_refused_as_late_does_not_begin_in_a_process_in_which_it_waits(pair: Pair) -> None:
    """A connection broke in hour two, and SSH has repeated the command. The first process still works on other domains, and this one is next."""
    assert under_way(pair, -1).error_code == "conflict"
    assert "came too late" in leaves_open(pair, under_way(pair, 60))


def test_an_order_that_waits_for_others_of_its_task_is_not_late(pair: Pair) -> None:
    now = boot_moment()
    order = ColdOrder(dataclasses.replace(pair.record, status=s.RUNNING), THERE, adopt=False, begin_until=now)
    arrived = dataclasses.replace(now, seconds=now.seconds - 1)
    assert carry_out_order(LOCAL_URI, order, pair.fleet.open, str(pair.folder / "run"), arrived).record is not None
    assert pair.places() == {"kvm2": ds.SHUTOFF}


def test_an_order_that_is_repeated_after_the_source_was_booted_leaves_the_move_to_the_next_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may have restored the memory at the destination, which is silent now; the boot has removed all that this host knew of it."""
    monkeypatch.setattr(hosts, "SILENT_SECONDS", 0.0)
    pair = Pair(tmp_path, monkeypatch, "save")
    pair.on_moment = lambda moment: setattr(pair, "die_at", moment if pair.places().get("kvm2") == ds.PAUSED else None)
    assert pair.run() is None
    pair.on_moment = lambda moment: None
    pair.cut_power()
    pair.destination.go_dark()
    for answer in (under_way(pair, 60, "another boot"), carry_out(pair, adopt=True, status=s.ERROR)):
        assert answer.record is not None
        assert (answer.record.status, answer.error_code) == (s.ERROR, "internal")
        assert (pair.places(), pair.images()) == ({"kvm1": ds.SHUTOFF, "kvm2": ds.PAUSED}, [""])
    pair.destination.come_back()
    ended = carry_out(pair, adopt=True, status=s.ERROR)
    assert ended.record is not None
    assert (ended.record.status, pair.places(), pair.images()) == (s.COMPLETED, {"kvm2": ds.RUNNING}, [])


def test_a_move_does_not_begin_after_its_task_has_ended(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has cancelled the job in AWX, while earlier moves of its task had their turn."""
    monkeypatch.setattr(run, "has_lost_task", lambda: True)
    answer = carry_out(pair, status=s.RUNNING)
    assert (answer.record, answer.error_code, pair.places()) == (None, "aborted", {"kvm1": ds.SHUTOFF})
    # What has begun is carried out, and so is what another task settles.
    assert carry_out(pair, adopt=True, status=s.RUNNING).record is not None
    assert pair.places() == {"kvm2": ds.SHUTOFF}
