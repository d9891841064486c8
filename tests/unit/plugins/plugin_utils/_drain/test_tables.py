# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as a person reads it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import Rejection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines, summarize_rejections
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator import fleets

GUESTS = [
    f.domain("web", 1024, dirty_rate_mib=2, priority=3),
    f.domain("wild", 512, dirty_rate_mib=900),
    f.domain("batch", drain="shutdown"),
    f.domain("db", drain="leave"),
    f.domain("huge", 60000),
]


def lines(facts: dict[str, dict[str, t.Any]], wish: DrainOptions | None = None) -> list[str]:
    return plan_lines(make_plan(DrainInputs(facts), ["kvm1"], [name for name in facts if name != "kvm1"], wish))


def test_the_table_shows_order_destination_predictions_and_every_reason() -> None:
    shown = lines({"kvm1": f.host("kvm1", domains=GUESTS), "kvm2": f.host("kvm2", 4096), "kvm3": f.host("kvm3", 800)}, DrainOptions(n_plus_one=True))
    assert shown[0].split() == ["DOMAIN", "MEMORY", "FROM", "TO", "PREDICTED", "DOWNTIME", "WHY"]
    assert shown[1].split()[:6] == ["1", "web", "1024", "MiB", "kvm1", "kvm2"]
    assert re.search(r"  [0-9.]+ s \([0-9.]+ to [0-9.]+\) +[0-9]+ ms  ", shown[1])
    text = "\n".join(shown)
    assert "  web not to kvm3: It is 224 MiB short of memory" in text
    assert "WARN   wild to kvm2: " in text
    assert "STOPS  batch on kvm1: " in text
    assert "STAYS  huge on kvm1: No host can accept it. kvm2: " in text
    assert "LEFT   db on kvm1: " in text
    assert "N+1 does NOT hold: if kvm2 were lost, 1024 MiB would be missing for web." in text


def test_the_table_of_an_empty_plan_says_nothing_to_move() -> None:
    assert lines({"kvm1": f.host("kvm1"), "kvm2": f.host("kvm2")}, DrainOptions(n_plus_one=True)) == [
        "Nothing to move.",
        "N+1 holds: the remaining hosts could lose any one of them and still place its domains.",
    ]


def test_the_table_summarizes_the_reasons_of_many_hosts() -> None:
    drain = fleets.large(100, 300, 2)
    shown = lines({name: drain.facts[name] for name in [drain.source, *drain.candidates]})
    about = [line for line in shown if line.startswith("  g0 not to ")]
    assert 1 <= len(about) <= 5
    assert any(" more: " in line for line in about)


def test_the_table_says_a_reason_once_for_all_guests_and_hosts_that_it_is_about() -> None:
    guests = [f.domain("web1", 64), f.domain("web2", 64), f.domain("huge", 60000)]
    hosts = {"kvm2": f.host("kvm2", 4096), **{name: f.host(name, 30) for name in ("kvm3", "kvm4")}}
    shown = lines({"kvm1": f.host("kvm1", domains=guests), **hosts})
    (refused,) = [line for line in shown if line.startswith("  web") and " not to " in line]
    assert refused.startswith("  web1, web2 not to kvm3, kvm4: It is 34 MiB short of memory")
    (stays,) = [line for line in shown if line.startswith("STAYS")]
    assert stays.startswith("STAYS  huge on kvm1: No host can accept it. kvm2: ")
    assert "; kvm3, kvm4: " in stays


def test_figures_are_left_out_only_where_hosts_differ_in_them() -> None:
    same = [Rejection(f"kvm{number}", "It is 34 MiB short of memory.") for number in range(12)]
    assert summarize_rejections(same) == [("kvm0 and 11 more", "It is 34 MiB short of memory.")]
    assert summarize_rejections([*same, Rejection("kvm12", "It is 35 MiB short of memory.")]) == [("kvm0 and 12 more", "It is … MiB short of memory.")]
