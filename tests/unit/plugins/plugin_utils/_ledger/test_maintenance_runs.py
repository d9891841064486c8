# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maintenance runs in both stores: compare and set, one open run for each host, and no damage that is not seen."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidState, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import copying
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, read_term
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.runs import change_held_run, list_open_runs
from ansible_collections.kvmfleet.migration.tests.golden.corpus import GOLDEN
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import RUN_ID, at, done, holder, night, passed

GOLDEN_RUN = GOLDEN / "maintenance" / "run.json"
InChild = Callable[[Callable[[], None]], int]
ExitOf = Callable[[int], t.Optional[int]]


def another(*hosts: str) -> MaintenanceRun:
    return dataclasses.replace(night(*hosts), id=str(uuid.uuid4()))


def test_a_run_is_written_and_read(ledger: Ledger) -> None:
    written = ledger.put_maintenance_run(night(), None)
    assert ledger.read_maintenance_run(RUN_ID) == written
    assert (written.version, written.maintenance_run.host_names) == (1, ("kvm1", "kvm2", "kvm3"))
    assert read_term(ledger, "maintenance_runs", Conditions(host="kvm2")) == [written.body]
    assert read_term(ledger, "maintenance_runs", Conditions(host="kvm9")) == []
    with pytest.raises(NotFound, match="no maintenance run"):
        ledger.read_maintenance_run(str(uuid.uuid4()))


def test_a_run_is_changed_by_compare_and_set(ledger: Ledger) -> None:
    first = ledger.put_maintenance_run(night(), None)
    ledger.put_maintenance_run(passed(night(), "kvm1"), first)
    for before in (None, first):
        with pytest.raises(Conflict, match="another process wrote it"):
            ledger.put_maintenance_run(night(), before)


def test_a_host_is_in_one_open_run_only(ledger: Ledger) -> None:
    first = ledger.put_maintenance_run(night("kvm1", "kvm2"), None)
    with pytest.raises(Conflict, match="kvm2 cannot be maintained twice at the same time"):
        ledger.put_maintenance_run(another("kvm2", "kvm3"), None)
    ledger.put_maintenance_run(another("kvm3"), None)
    assert len(list_open_runs(ledger)) == 2
    closed = ledger.put_maintenance_run(transitions.close_run(first.maintenance_run, {}, at()), first)
    ledger.put_maintenance_run(another("kvm2"), None)
    # A stopped run that is continued binds its hosts again.
    with pytest.raises(Conflict, match="kvm2 cannot be maintained twice"):
        ledger.put_maintenance_run(transitions.take_over(closed.maintenance_run, holder(2), at()), closed)


def test_no_run_is_begun_while_one_of_a_later_version_may_be_open(store: Store) -> None:
    ledger = store.open()
    first = ledger.put_maintenance_run(night("kvm1"), None)

    def make_newer(state: str) -> None:
        store.write(f"maintenance/{RUN_ID}.json", encode_document({**first.body, "schema": 2, "state": state}, 1))

    make_newer("resting")
    for host in ("kvm1", "kvm2"):
        with pytest.raises(NotSupported, match=rf"later version .*maintenance/{RUN_ID}\.json.*Nothing was changed.*Update the collection"):
            ledger.put_maintenance_run(another(host), None)
    for state in (m.STOPPED, m.FINISHED):
        make_newer(state)
        ledger.put_maintenance_run(another(f"{state}-host"), None)


def test_a_finished_run_is_never_changed(ledger: Ledger) -> None:
    first = ledger.put_maintenance_run(night("kvm1"), None)
    finished = ledger.put_maintenance_run(transitions.close_run(done(night("kvm1"), "kvm1"), {}, at()), first)
    assert finished.maintenance_run.state == m.FINISHED
    with pytest.raises(InvalidState, match="it is finished"):
        ledger.put_maintenance_run(night("kvm1"), finished)


def test_of_two_runs_over_one_host_one_is_written(store: Store, in_child: InChild, exit_of: ExitOf) -> None:
    store.open()
    for host in ("a", "b", "c"):
        pids = [in_child(lambda host=host: t.cast(None, store.open().put_maintenance_run(another(host), None))) for _number in range(3)]
        assert sorted(t.cast("list[int]", [exit_of(pid) for pid in pids])) == [0, 99, 99]
    assert len(list_open_runs(store.open())) == 3


def test_the_hosts_of_a_batch_change_one_run_at_the_same_time(store: Store, in_child: InChild, exit_of: ExitOf) -> None:
    hosts = [f"kvm{number}" for number in range(1, 5)]
    store.open().put_maintenance_run(night(*hosts, max_unavailable=4), None)

    def take_steps(host: str) -> None:
        ledger = store.open()
        change_held_run(ledger, RUN_ID, holder(), lambda run, now: (transitions.begin_host(run, host, now), None))
        for step in m.STEPS:
            change_held_run(ledger, RUN_ID, holder(), lambda run, now, step=step: (transitions.begin_step(run, host, step, now), None))
        change_held_run(ledger, RUN_ID, holder(), lambda run, now: (transitions.complete_host(run, host, now), None))

    pids = [in_child(lambda host=host: take_steps(host)) for host in hosts]
    assert [exit_of(pid) for pid in pids] == [0] * 4
    run = store.open().read_maintenance_run(RUN_ID).maintenance_run
    assert [(one.status, len(one.steps)) for one in run.hosts] == [(m.DONE, len(m.STEPS))] * 4


def test_a_process_of_an_earlier_term_changes_nothing(ledger: Ledger) -> None:
    first = ledger.put_maintenance_run(night(), None)
    ledger.put_maintenance_run(transitions.take_over(night(), holder(2), at()), first)
    with pytest.raises(Conflict, match="does not hold the maintenance run"):
        change_held_run(ledger, RUN_ID, holder(), lambda run, now: (transitions.begin_host(run, "kvm1", now), None))


def test_a_copied_ledger_has_the_runs(store: Store, other_store: Store) -> None:
    ledger = store.open()
    ledger.put_maintenance_run(passed(night(), "kvm1"), None)
    path = f"maintenance/{RUN_ID}.json"
    copying.copy_ledger(store.open(create=False, moved=True), other_store.target(), "me")
    assert other_store.read(path) == store.read(path)
    copied = other_store.open(create=False)
    assert copied.read_maintenance_run(RUN_ID).maintenance_run.hosts[0].status == m.IN_PROGRESS
    assert copied.examine_contents(find_problems).all_problems == []


@pytest.mark.parametrize("spoil", [lambda data: data[:-20], lambda data: data.replace(b'"kvm1"', b'"kvm7"', 1)])
def test_a_damaged_run_is_reported(store: Store, spoil: Callable[[bytes], bytes]) -> None:
    ledger = store.open()
    ledger.put_maintenance_run(night(), None)
    path = f"maintenance/{RUN_ID}.json"
    store.write(path, spoil(t.cast(bytes, store.read(path))))
    (found,) = ledger.examine_contents(find_problems).all_problems
    assert path in found
    assert ledger.list_maintenance_runs() == []


def test_the_golden_run_is_read_and_written_back_byte_for_byte(store: Store) -> None:
    data = GOLDEN_RUN.read_bytes()
    document = decode_document(data)
    run = document.maintenance_run
    assert encode_document(run, document.version) == data
    assert (run.state, run.term, run.extra["of_a_later_version"]) == (m.PAUSED, 2, True)
    store.open()
    store.write(f"maintenance/{run.id}.json", data)
    ledger = store.open()
    after = ledger.put_maintenance_run(transitions.end_step(run, "kvm2", at(500)), ledger.read_maintenance_run(run.id))
    assert after.body["of_a_later_version"] is True
    assert encode(after.maintenance_run) == after.body
