# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.eta import estimate_rest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection, PredictedMove, Sample
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef

MIB = 1024**2
ENDS = HostRef("kvm1", None, None), HostRef("kvm2", None, None)


def queued(memory_mib: int, predicted_mib: int | None = None) -> MoveRecord:
    record = dataclasses.replace(new_record(s.LIVE_MIGRATION, DomainRef("u", "web1"), *ENDS, {}, "x", {"memory_mib": memory_mib}), status=s.QUEUED)
    return record if predicted_mib is None else dataclasses.replace(record, predicted=PredictedMove(9.0, 6.0, 12.0, 20, predicted_mib * MIB))


def sending(left_mib: int, rate_mib: int, dirty_mib: int = 0) -> MoveRecord:
    record = dataclasses.replace(queued(1024, 900), status=s.RUNNING)
    figures = {"memory_total_bytes": 1024, "memory_remaining_bytes": left_mib, "bandwidth_bytes": rate_mib, "dirty_rate_bytes": dirty_mib}
    return dataclasses.replace(record, progress=dataclasses.replace(record.progress, **{key: value * MIB for key, value in figures.items()}))


def test_what_is_left_is_divided_by_the_rate_that_all_reach_together() -> None:
    assert estimate_rest([sending(300, 30), sending(300, 30)]) == 10


def test_a_rate_that_has_not_settled_does_not_count() -> None:
    begun = dataclasses.replace(sending(900, 1), samples=(Sample(elapsed_ms=900),))
    assert estimate_rest([begun]) is None
    assert estimate_rest([begun, begun]) is None
    assert estimate_rest([begun, sending(100, 50)]) == 20


def test_moves_that_wait_count_with_what_was_predicted_else_with_their_memory() -> None:
    assert estimate_rest([sending(100, 50), queued(8192, 395)]) == pytest.approx(10 + 0.6, abs=1)
    assert estimate_rest([sending(100, 50), queued(395)]) == pytest.approx(10 + 0.6, abs=1)


def test_a_move_that_has_begun_without_figures_counts_as_predicted() -> None:
    begun = dataclasses.replace(queued(8192, 400), status=s.PREPARING)
    assert estimate_rest([sending(100, 50), begun]) == pytest.approx(10, abs=1)


def test_what_a_guest_writes_meanwhile_is_sent_too() -> None:
    assert estimate_rest([sending(100, 20, 10)]) == 10
    assert estimate_rest([sending(100, 20, 19)]) == 20
    assert estimate_rest([sending(100, 20, 40)]) == 20, "what is faster than the link prolongs a move no less than what is nearly as fast"


def test_what_a_guest_writes_after_the_switch_to_post_copy_is_not_sent() -> None:
    """QEMU still reports how fast it wrote before."""
    assert estimate_rest([dataclasses.replace(sending(100, 20, 40), status=s.RUNNING_POST_COPY)]) == 5


def test_a_move_with_a_cap_does_not_get_the_rate_of_those_that_end_before_it() -> None:
    def capped(record: MoveRecord) -> MoveRecord:
        return dataclasses.replace(record, connection=Connection(bandwidth_mib=24))

    assert estimate_rest([capped(sending(1008, 24)), capped(sending(24, 24))]) == 42
    assert estimate_rest([capped(sending(24, 24)), capped(queued(8192, 1200))]) == 52
    assert estimate_rest([capped(sending(1008, 24)), capped(queued(8192, 480))]) == pytest.approx(62, abs=1)
    assert estimate_rest([capped(sending(1008, 84)), capped(sending(84, 84))]) == 12, "its cap was lifted"


def test_the_rest_is_unknown_while_nothing_is_sent() -> None:
    assert estimate_rest([queued(512), queued(512)]) is None
    assert estimate_rest([sending(100, 0)]) is None
    assert estimate_rest([]) is None
