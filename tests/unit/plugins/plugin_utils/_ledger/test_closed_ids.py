# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ids of closed records, without reading one, from each of the stores."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored

New = Callable[..., dict[str, t.Any]]


def test_they_are_those_of_closed_records_and_no_others(ledger: Ledger, new_move: New, go: Callable[..., Stored]) -> None:
    assert ledger.closed_ids() == set()
    closed = [go(ledger, ledger.open_record(new_move()), s.CONFLICT), go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.FAILED)]
    go(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    done = go(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    assert ledger.closed_ids() == {stored.record["id"] for stored in closed}
    go(ledger, done, s.COMPLETED)
    assert done.record["id"] in ledger.closed_ids()
