# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ids of closed records, without reading one, from each of the stores."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger

New = Callable[..., MoveRecord]


def test_closed_ids_are_those_of_closed_records(ledger: Ledger, new_move: New, advance_record: Callable[..., Stored]) -> None:
    assert ledger.list_closed_ids() == set()
    closed = [advance_record(ledger, ledger.open_record(new_move()), s.CONFLICT), advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.FAILED)]
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    done = advance_record(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    assert ledger.list_closed_ids() == {stored.record.id for stored in closed}
    advance_record(ledger, done, s.COMPLETED)
    assert done.record.id in ledger.list_closed_ids()
