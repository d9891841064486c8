# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceMeasurement, BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.measuring import measure_run
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import ended, move, states_after
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, decide, guest, host, hosts


def balanced() -> dict[str, Document]:
    """Three hosts after a balance: g3 and g4 have left kvm1, which would be busy with them."""
    stayed = (guest(f"g{number}", 3.0) for number in range(3))
    return hosts(host("kvm1", *stayed), host("kvm2", guest("g3", 3.0)), host("kvm3", guest("g4", 3.0)))


def measured(run: BalanceRun, facts: dict[str, Document], minutes: float = 90) -> BalanceRun:
    found = measure_run(run, states_after(facts, minutes))
    assert found is not None
    return found


def test_the_gain_of_a_move_is_what_the_score_would_rise_by_without_it() -> None:
    run = measured(ended(move("g3"), move("g4", destination="kvm3")), balanced())
    crowded = hosts(host("kvm1", *(guest(f"g{number}", 3.0) for number in range(5))), host("kvm2"), host("kvm3"))
    without_one = hosts(host("kvm1", *(guest(f"g{number}", 3.0) for number in range(4))), host("kvm2"), host("kvm3", guest("g4", 3.0)))
    assert run.measured == BalanceMeasurement("2026-11-24T03:30:00.000Z", 0.0, pytest.approx(decide(crowded).score_before, abs=1e-4))
    assert [one.measured_gain for one in run.moves] == [pytest.approx(decide(without_one).score_before, abs=1e-4)] * 2
    assert run.measured.gain > 0


def test_domains_of_a_unit_are_measured_together() -> None:
    facts = hosts(host("kvm1", *(guest(f"g{number}", 3.0) for number in range(3))), host("kvm2", guest("g3", 1.5), guest("g4", 1.5)), host("kvm3"))
    run = measured(ended(move("g3", unit="g3"), move("g4", unit="g3")), facts)
    alone = measured(ended(move("g3")), hosts(facts["kvm1"], host("kvm2", guest("g3", 3.0)), host("kvm3")))
    assert [one.measured_gain for one in run.moves] == [alone.moves[0].measured_gain] * 2
    assert run.measured == alone.measured


def test_a_domain_that_is_elsewhere_or_has_not_moved_is_not_measured() -> None:
    run = ended(move("g3"), move("g4", destination="kvm2"), move("g9", destination="kvm3"))
    run = replace(run, moves=(replace(run.moves[0], status="failed"), *run.moves[1:]))
    found = measured(run, balanced())
    assert [one.measured_gain for one in found.moves] == [None, None, None]
    assert isinstance(found.measured, BalanceMeasurement)
    assert found.measured.gain == 0


def test_a_run_without_moves_is_measured_for_its_score() -> None:
    assert measured(ended(), balanced()).measured == BalanceMeasurement("2026-11-24T03:30:00.000Z", 0.0, 0.0)


@pytest.mark.parametrize(
    ("minutes", "interval_seconds", "is_shown"), [(59.9, 300, False), (60, 300, True), (60, 3600, True), (61, 3700, False), (-60, 300, False)]
)
def test_only_load_of_later_than_an_hour_after_the_end_counts(minutes: float, interval_seconds: float, is_shown: bool) -> None:
    states = states_after(balanced(), minutes, interval_seconds=interval_seconds)
    assert (measure_run(ended(move("g3")), states) is not None) is is_shown


def test_a_host_that_is_missing_or_silent_postpones_the_measurement() -> None:
    states = states_after(balanced(), 90)
    run = ended(move("g3"))
    assert measure_run(run, {name: state for name, state in states.items() if name != "kvm3"}) is None
    assert measure_run(run, {**states, "kvm3": replace(states["kvm3"], unanswered="it is off")}) is None
    # A host that took no part does not.
    assert measure_run(replace(run, hosts=("kvm1", "kvm2")), {**states, "kvm3": replace(states["kvm3"], unanswered="it is off")}) is not None


def test_a_run_that_is_open_or_measured_is_not_measured_again() -> None:
    states, run = states_after(balanced(), 90), ended(move("g3"))
    once = measure_run(run, states)
    assert once is not None
    assert measure_run(once, states_after(balanced(), 180)) is None
    assert measure_run(replace(run, state="running", ended_at=None), states) is None
    assert run.measured is ABSENT
