# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The metrics by name. Their labels have few and fixed values: no domain, host or record becomes one."""

from __future__ import annotations

import time

from .._ledger.store import Ledger
from .exposition import Family, by_label, histogram, single
from .present import Present
from .totals import Totals


def families_of(totals: Totals, present: Present, notices_waiting: int | None, ledger: Ledger) -> list[Family]:
    """Return all but what L(export_of) says."""
    return [
        by_label("kvmfleet_moves_total", "counter", "Live migrations that have ended.", "outcome", totals.moves),
        by_label("kvmfleet_moves_cancelled_total", "counter", "Live migrations that were cancelled, by reason.", "reason", totals.cancelled),
        by_label("kvmfleet_moves_completed_total", "counter", "Live migrations that were completed, by the mode they ended in.", "mode", totals.modes),
        single("kvmfleet_moves_forced_total", "counter", "Ended live migrations whose destination was forced on the scheduler.", totals.forced),
        single("kvmfleet_moves_transferred_bytes_total", "counter", "Bytes that ended live migrations have transferred.", totals.transferred_bytes),
        histogram("kvmfleet_move_duration_seconds", "How long completed live migrations took.", totals.durations),
        histogram("kvmfleet_move_downtime_seconds", "How long guests stood still in completed live migrations.", totals.downtimes),
        by_label("kvmfleet_evacuations_total", "counter", "Evacuations of a domain that have ended, cleaned up or not.", "outcome", totals.evacuations),
        *_present_families(present),
        single("kvmfleet_notices_waiting", "gauge", "Notices on this control node that were not sent yet.", notices_waiting),
        single("kvmfleet_ledger_problems", "gauge", "Documents of the ledger that could not be read.", len(ledger.problems)),
    ]


def _present_families(present: Present) -> list[Family]:
    return [
        by_label("kvmfleet_moves_open", "gauge", "Live migrations that have not ended, by status.", "status", present.open_moves),
        by_label("kvmfleet_evacuations_open", "gauge", "Evacuations that have not ended, or wait for cleanup, by status.", "status", present.open_evacuations),
        by_label("kvmfleet_hosts", "gauge", "Hosts in the ledger, by state.", "state", present.hosts),
        single("kvmfleet_protected_domains", "gauge", "Domains whose definition is saved for an evacuation.", present.protected_domains),
        single("kvmfleet_newest_protect_timestamp_seconds", "gauge", "When any host was protected last.", present.newest_protect),
        single("kvmfleet_oldest_protect_timestamp_seconds", "gauge", "When the host was protected that was so longest ago.", present.oldest_protect),
        single("kvmfleet_oldest_open_record_timestamp_seconds", "gauge", "When the oldest record was opened that is not settled.", present.oldest_open),
    ]


def export_of(began: float) -> list[Family]:
    """Return what is said of this export itself.

    :arg began: on the monotonic clock.
    """
    return [
        single("kvmfleet_export_timestamp_seconds", "gauge", "When these metrics were written.", round(time.time(), 3)),
        single("kvmfleet_export_duration_seconds", "gauge", "How long it took to gather them.", round(time.monotonic() - began, 6)),
    ]
