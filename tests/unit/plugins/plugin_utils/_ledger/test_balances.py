# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Balance runs in both stores: one open run for each host, ends that are written once, kills between any two writes, and no damage that is not seen."""

from __future__ import annotations

import dataclasses
import os
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import FINISHED, BalanceMeasurement, BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, ShapeError, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidState, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import close_run, list_runs, measure_runs, open_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import copying
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, read_term
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import identify_process
from ansible_collections.kvmfleet.migration.tests.golden.corpus import GOLDEN
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import (
    RUN_ID,
    carry_out,
    ended,
    holder,
    move,
    plan,
    states_after,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import guest, host, hosts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, night

GOLDEN_RUN = GOLDEN / "balances" / "run.json"
PATH = f"balances/{RUN_ID}.json"
COMPLETED = (s.RUNNING, s.COMPLETED)
FACTS = hosts(host("kvm1", *(guest(f"g{number}", 3.0) for number in range(3))), host("kvm2", guest("g3", 3.0)), host("kvm3"))
InChild = Callable[[Callable[[], None]], int]
ExitOf = Callable[[int], t.Optional[int]]


def this_process() -> t.Any:
    return identify_process(os.getpid(), "ann@control", "2026-11-24T01:00:00.000Z")


def only_run(ledger: Ledger) -> BalanceRun:
    (run,) = list_runs(ledger)
    return run


def test_a_run_is_opened_closed_and_measured(ledger: Ledger) -> None:
    run = open_run(ledger, plan(move("g3"), move("g4", destination="kvm3")), holder())
    assert (run.is_open, run.moves[0].record, run.score_predicted) == (True, None, 0.5)
    record = carry_out(ledger, run.moves[0], *COMPLETED)
    failed = carry_out(ledger, run.moves[1], s.FAILED)
    closed = close_run(ledger, run.id, holder())
    assert [(one.record, one.status) for one in closed.moves] == [(record, s.COMPLETED), (failed, s.FAILED)]
    assert (closed.state, closed.is_interrupted, closed.measured) == (FINISHED, ABSENT, ABSENT)
    assert close_run(ledger, run.id, holder()) == closed
    assert measure_runs(ledger, states_after(FACTS, 30, of=str(closed.ended_at))) == []
    (measured,) = measure_runs(ledger, states_after(FACTS, 90, of=str(closed.ended_at)))
    assert only_run(ledger) == measured
    assert isinstance(measured.measured, BalanceMeasurement)
    assert measured.measured.gain == measured.moves[0].measured_gain
    assert measure_runs(ledger, states_after(FACTS, 180, of=str(closed.ended_at))) == []


def test_neither_a_balance_nor_a_drill_is_open_beside_the_other(ledger: Ledger) -> None:
    drill = Drill(90, 300, "run", (), (), None, (), None, None, None, ())
    first = ledger.put_maintenance_run(dataclasses.replace(night("kvm7"), drill=drill), None)
    with pytest.raises(Conflict, match=rf"kvm1, kvm2, kvm3 cannot be balanced now: the drill {night().id} .* is open.*request=stop"):
        open_run(ledger, plan(move("g3")), holder())
    ledger.put_maintenance_run(transitions.close_run(first.maintenance_run, {}, at()), first)
    run = open_run(ledger, plan(move("g3")), holder())
    other = dataclasses.replace(night("kvm7"), id=str(uuid.uuid4()))
    with pytest.raises(
        Conflict, match=rf"kvm7 cannot be taken out of service now: the balance run {run.id} is open\..* balance_mode=apply.* balance_take_over=true"
    ):
        ledger.put_maintenance_run(dataclasses.replace(other, drill=drill), None)
    # A maintenance run moves guests by plans of its own.
    ledger.put_maintenance_run(other, None)


def test_neither_is_begun_while_the_other_of_a_later_version_may_be_open(store: Store) -> None:
    ledger, drill = store.open(), Drill(90, 300, "run", (), (), None, (), None, None, None, ())
    first = ledger.put_maintenance_run(dataclasses.replace(night("kvm7"), drill=drill), None)
    path = f"maintenance/{first.maintenance_run.id}.json"
    store.write(path, encode_document({**first.body, "schema": 2}, 1))
    with pytest.raises(NotSupported, match=f"later version .*{path}"):
        open_run(ledger, plan(move("g3")), holder())
    store.write(path, encode_document({**first.body, "schema": 2, "state": FINISHED}, 1))
    run = open_run(ledger, plan(move("g3")), holder())
    store.write(f"balances/{run.id}.json", encode_document({**encode(run), "schema": 2}, 1))
    with pytest.raises(NotSupported, match=f"later version .*balances/{run.id}"):
        ledger.put_maintenance_run(dataclasses.replace(night("kvm7"), id=str(uuid.uuid4()), drill=drill), None)


def test_a_drill_that_has_cut_the_power_is_continued_beside_a_balance(ledger: Ledger) -> None:
    drill = Drill(90, 300, "run", (), (), at().at, (), None, None, None, ())
    first = ledger.put_maintenance_run(dataclasses.replace(night("kvm7"), drill=drill), None)
    left = ledger.put_maintenance_run(transitions.close_run(first.maintenance_run, {}, at()), first)
    open_run(ledger, plan(move("g3")), holder())
    # The host may be off.
    again = transitions.take_over(left.maintenance_run, holder(), at())
    assert ledger.put_maintenance_run(again, left).maintenance_run.is_open


def test_the_run_is_read_by_its_id_and_by_its_hosts(ledger: Ledger) -> None:
    run = open_run(ledger, plan(move("g3")), holder())
    assert ledger.read_balance_run(run.id).balance_run == run
    assert read_term(ledger, "balance_runs", Conditions(host="kvm2")) == [encode(run)]
    assert read_term(ledger, "balance_runs", Conditions(host="kvm9")) == []
    with pytest.raises(NotFound, match="no balance run"):
        ledger.read_balance_run(str(uuid.uuid4()))


def test_a_move_that_was_repeated_has_the_record_that_completed(ledger: Ledger) -> None:
    carry_out(ledger, move("g3"), *COMPLETED)
    run = open_run(ledger, plan(move("g3"), move("g4"), move("g5")), holder())
    carry_out(ledger, run.moves[0], s.FAILED)
    record = carry_out(ledger, run.moves[0], *COMPLETED)
    # A move of another task, to another host.
    carry_out(ledger, move("g4", destination="kvm3"), *COMPLETED)
    closed = close_run(ledger, run.id, holder())
    assert [(one.record, one.status) for one in closed.moves] == [(record, s.COMPLETED), (None, None), (None, None)]


def test_a_host_is_in_one_open_run_only(ledger: Ledger) -> None:
    mine = this_process()
    first = open_run(ledger, plan(hosts=("kvm1", "kvm2")), mine)
    with pytest.raises(Conflict, match="that process still runs"):
        open_run(ledger, plan(hosts=("kvm2", "kvm3")), holder(2))
    with pytest.raises(Conflict, match="kvm2 cannot be balanced twice at the same time"):
        ledger.put_balance_run(dataclasses.replace(first, id=str(uuid.uuid4()), hosts=("kvm2",)), None)
    assert open_run(ledger, plan(hosts=("kvm3",)), holder(2)).is_open
    assert len(list_runs(ledger)) == 2


def test_the_same_process_begins_its_next_run(ledger: Ledger) -> None:
    first = open_run(ledger, plan(move("g3")), holder())
    assert open_run(ledger, plan(move("g4")), holder()).is_open
    before = ledger.read_balance_run(first.id).balance_run
    assert (before.state, before.is_interrupted) == (FINISHED, ABSENT)


def test_a_process_that_cannot_be_seen_keeps_its_run_for_a_day_unless_a_person_confirms(ledger: Ledger) -> None:
    first = open_run(ledger, plan(move("g3")), holder(node="other"))
    with pytest.raises(Conflict, match="cannot be verified from here"):
        open_run(ledger, plan(move("g4")), holder())
    assert open_run(ledger, plan(move("g4")), holder(), is_confirmed=True).is_open
    assert ledger.read_balance_run(first.id).balance_run.is_interrupted is True


def test_a_run_of_yesterday_is_abandoned(ledger: Ledger) -> None:
    old = dataclasses.replace(ended(move("g3")), state="running", ended_at=None, created_at="2026-11-20T01:00:00.000Z")
    ledger.put_balance_run(old, None)
    assert open_run(ledger, plan(move("g4")), holder(2, "other")).is_open
    assert ledger.read_balance_run(RUN_ID).balance_run.is_interrupted is True


def test_another_process_does_not_close_a_run(ledger: Ledger) -> None:
    run = open_run(ledger, plan(move("g3")), holder())
    with pytest.raises(Conflict, match="holds it since"):
        close_run(ledger, run.id, holder(2))
    assert only_run(ledger).is_open


@pytest.mark.parametrize("killed_after", ["the run was opened", "the move was reserved", "the move was completed", "the run was closed"])
def test_a_process_that_is_killed_leaves_a_run_that_the_next_one_completes(store: Store, in_child: InChild, exit_of: ExitOf, killed_after: str) -> None:
    store.open()

    def balance() -> None:
        ledger, mine = store.open(), this_process()
        run = open_run(ledger, plan(move("g3")), mine)
        if killed_after == "the run was opened":
            os._exit(7)
        carry_out(ledger, run.moves[0], *(() if killed_after == "the move was reserved" else COMPLETED))
        if killed_after != "the run was closed":
            os._exit(7)
        close_run(ledger, run.id, mine)
        os._exit(7)

    assert exit_of(in_child(balance)) == 7
    ledger = store.open()
    second = open_run(ledger, plan(move("g4")), this_process())
    first = next(run for run in list_runs(ledger) if run.id != second.id)
    statuses = {"the run was opened": None, "the move was reserved": s.ACCEPTED}
    assert (first.state, first.moves[0].status) == (FINISHED, statuses.get(killed_after, s.COMPLETED))
    assert first.is_interrupted is (ABSENT if killed_after == "the run was closed" else True)


def test_a_move_that_ends_after_its_run_was_closed_is_measured(ledger: Ledger) -> None:
    run = open_run(ledger, plan(move("g3")), holder(node="other"))
    carry_out(ledger, run.moves[0], s.RUNNING)
    second = open_run(ledger, plan(move("g4")), holder(), is_confirmed=True)
    stored = ledger.find_unsettled(run.moves[0].domain.uuid)
    assert stored is not None
    ledger.update_record(stored, stored.record.advance(s.COMPLETED, "ann@other"))
    (measured,) = measure_runs(ledger, states_after(FACTS, 90, of=second.created_at))
    assert (measured.id, measured.moves[0].status) == (run.id, s.COMPLETED)
    assert measured.moves[0].measured_gain


def test_of_several_measurements_at_once_one_is_written(store: Store, in_child: InChild, exit_of: ExitOf) -> None:
    run = ended(move("g3"))
    store.open().put_balance_run(run, None)
    pids = [in_child(lambda minutes=minutes: measure_runs(store.open(), states_after(FACTS, minutes))) for minutes in (70, 80, 90)]
    assert [exit_of(pid) for pid in pids] == [0, 0, 0]
    assert store.open().read_balance_run(RUN_ID).version == 2


def test_of_two_runs_over_one_host_one_is_opened(store: Store, in_child: InChild, exit_of: ExitOf) -> None:
    store.open()
    pids = [in_child(lambda pid=pid: t.cast(None, open_run(store.open(), plan(move("g3")), holder(pid)))) for pid in (1, 2, 3)]
    assert sorted(t.cast("list[int]", [exit_of(pid) for pid in pids])) == [0, 99, 99]
    assert len(list_runs(store.open())) == 1


def test_what_was_planned_never_changes_and_the_ends_are_written_once(ledger: Ledger) -> None:
    first = ledger.put_balance_run(ended(move("g3")), None)
    run = first.balance_run
    with pytest.raises(Internal, match="must not change"):
        ledger.put_balance_run(dataclasses.replace(run, score_before=9.0), first)
    with pytest.raises(Internal, match="must not be opened again"):
        ledger.put_balance_run(dataclasses.replace(run, state="running"), first)
    measured = ledger.put_balance_run(dataclasses.replace(run, measured=BalanceMeasurement("2026-11-24T03:00:00.000Z", 0.1, 0.2)), first)
    with pytest.raises(InvalidState, match="finished and measured"):
        ledger.put_balance_run(dataclasses.replace(run, measured=BalanceMeasurement("2026-11-24T04:00:00.000Z", 0.1, 0.2)), measured)
    with pytest.raises(Conflict, match="another process wrote it meanwhile"):
        ledger.put_balance_run(run, first)


def test_a_domain_moves_once_in_a_run(ledger: Ledger) -> None:
    with pytest.raises(ShapeError, match="different domains"):
        open_run(ledger, plan(move("g3"), move("g3", destination="kvm3")), holder())
    assert list_runs(ledger) == []


def test_a_copied_ledger_has_the_runs(store: Store, other_store: Store) -> None:
    ledger = store.open()
    ledger.put_balance_run(ended(move("g3")), None)
    copying.copy_ledger(store.open(create=False, moved=True), other_store.target(), "me")
    assert other_store.read(PATH) == store.read(PATH)
    copied = other_store.open(create=False)
    assert copied.read_balance_run(RUN_ID).balance_run.moves[0].status == s.COMPLETED
    assert copied.examine_contents(find_problems).all_problems == []


@pytest.mark.parametrize("spoil", [lambda data: data[:-20], lambda data: data.replace(b'"kvm1"', b'"kvm7"', 1)])
def test_a_damaged_run_is_reported(store: Store, spoil: Callable[[bytes], bytes]) -> None:
    ledger = store.open()
    ledger.put_balance_run(ended(move("g3")), None)
    store.write(PATH, spoil(t.cast(bytes, store.read(PATH))))
    (found,) = ledger.examine_contents(find_problems).all_problems
    assert PATH in found
    assert ledger.list_balance_runs() == []


def test_the_golden_run_is_read_and_written_back_byte_for_byte(store: Store) -> None:
    data = GOLDEN_RUN.read_bytes()
    document = decode_document(data)
    run = document.balance_run
    assert encode_document(run, document.version) == data
    assert (run.state, run.extra["of_a_later_version"], run.moves[0].extra["also_of_a_later_version"]) == (FINISHED, True, 1)
    store.open()
    store.write(f"balances/{run.id}.json", data)
    ledger = store.open()
    assert read_term(ledger, "balance_runs", Conditions()) == [encode(run)]
    assert ledger.examine_contents(find_problems).all_problems == []
