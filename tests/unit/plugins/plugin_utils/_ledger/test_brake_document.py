# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The brake in both stores: one document, written over the version that was read, by any number of processes, and copied with the ledger."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import copying
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import BrakeDisarming, BrakeDocument, BrakeSlot
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

InChild = Callable[[Callable[[], None]], int]
ExitOf = Callable[[int], int | None]
SLOT = BrakeSlot("evacuate", "kvm1", "2026-11-26T03:00:00.000Z")


def path_of(ledger: Ledger) -> str:
    return f"brake/{ledger.ledger_id}.json"


def test_the_brake_is_written_over_the_version_that_was_read(ledger: Ledger) -> None:
    assert ledger.read_brake() is None
    first = ledger.put_brake(BrakeDocument(ledger.ledger_id, (SLOT,), ()), None)
    assert ledger.read_brake() == first
    assert first.brake.slots == (SLOT,)
    for before in (None, first):
        after = BrakeDocument(ledger.ledger_id, (), (), disarmed=BrakeDisarming("2026-11-26T03:00:00.000Z", "ann"))
        if before is None:
            with pytest.raises(Conflict):
                ledger.put_brake(after, before)
        else:
            assert ledger.put_brake(after, before).version == 2


def test_processes_on_several_control_nodes_get_only_as_many_slots_as_there_are(store: Store, in_child: InChild, exit_of: ExitOf) -> None:
    store.open()

    def take(number: int) -> None:
        request = brake.SlotRequest("evacuate", f"kvm{number}", 3, 60)
        now = datetime.datetime.now(datetime.timezone.utc)
        brake.change_brake(store.open(), lambda before: brake.request_slot(before, request, now, "ann"))

    children = [in_child(lambda number=number: take(number)) for number in range(6)]  # type: ignore[misc]
    assert sorted(exit_of(child) == 0 for child in children) == [False] * 3 + [True] * 3
    found = store.open().read_brake()
    assert found
    assert len({slot.host for slot in found.brake.slots}) == 3


def test_the_brake_is_copied_with_the_ledger(store: Store, ledger: Ledger, other_store: Store) -> None:
    written = ledger.put_brake(BrakeDocument(ledger.ledger_id, (SLOT,), (), extra={"later": 1}), None)
    copying.copy_ledger(ledger, other_store.target(), "ann")
    assert other_store.open().read_brake() == written


def test_a_damaged_brake_is_named_set_aside_and_blocks(store: Store, ledger: Ledger) -> None:
    ledger.put_brake(BrakeDocument(ledger.ledger_id, (SLOT,), ()), None)
    store.write(path_of(ledger), b"{")
    (problem,) = store.open().examine_contents(find_problems).documents
    assert path_of(ledger) in problem
    again = store.open()
    with pytest.raises(Unsafe, match="was damaged"):
        brake.read_brake(again)
    request = brake.SlotRequest("evacuate", "kvm2", 1, 60)
    now = datetime.datetime.now(datetime.timezone.utc)
    with pytest.raises(Unsafe):
        brake.change_brake(again, lambda before: brake.request_slot(before, request, now, "ann"))
    brake.change_brake(again, brake.BrakeDecision, may_begin_anew=True)
    assert brake.read_brake(again).slots == ()


def test_a_time_that_is_none_blocks(store: Store, ledger: Ledger) -> None:
    document = ledger.put_brake(BrakeDocument(ledger.ledger_id, (SLOT,), ()), None)
    body = {**document.body, "slots": [{"reaction": "evacuate", "host": "kvm1", "at": "yesterday"}]}
    store.write(path_of(ledger), encode_document(body, 1))
    assert decode_document(store.read(path_of(ledger)) or b"").version == 1
    with pytest.raises(Unsafe, match="yesterday"):
        brake.read_slots(brake.read_brake(store.open()))
