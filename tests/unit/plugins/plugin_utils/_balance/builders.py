# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets with loads, and the decision about them, for tests."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.decision import Balance, decide_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.inputs import BalanceInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator import loads

NOW = datetime.datetime.fromisoformat(f.GATHERED_AT)
Document = dict[str, t.Any]


def guest(name: str, cores: float, memory_mib: int = 4096, vcpus: int = 4, dirty_rate_mib: float | None = 5.0, **needs: t.Any) -> Document:
    """A domain that keeps so many CPUs busy, with further keys of its request and its policy."""
    plain = loads.busy_domain(name, memory_mib, vcpus, cores, dirty_rate_mib)
    own = {key: needs[key] for key in ("priority", "drain", "group", "labels") if key in needs}
    return {**plain, "policy": own, "request": {**plain["request"], **needs}}


def host(name: str, *guests: Document, memory_mib: int = 65536, cpus: int = 16, pressure: float | None = None) -> Document:
    """A host whose load is that of its guests."""
    return loads.busy_host(name, memory_mib, list(guests), pressure, cpus)


def hosts(*listed: Document) -> dict[str, Document]:
    """Facts by the name of the host."""
    return {str(one["name"]): one for one in listed}


def crowded(count: int = 5, cores: float = 3.0) -> dict[str, Document]:
    """One host with so many busy guests, and two empty ones."""
    return hosts(host("kvm1", *(guest(f"g{number}", cores) for number in range(count))), host("kvm2"), host("kvm3"))


def inputs_of(facts: Mapping[str, Document], last_moves: Mapping[str, datetime.datetime] | None = None, **changes: t.Any) -> BalanceInputs:
    """What is known, received just now."""
    return BalanceInputs(DrainInputs(facts, **changes), NOW, dict.fromkeys(facts, 0.0), last_moves or {})


def states_of(inputs: BalanceInputs) -> dict[str, HostState]:
    """The hosts as the scheduler sees them."""
    return {name: inputs.drain.host_state(name) for name in inputs.drain.facts}


def decide(facts: Mapping[str, Document], last_moves: Mapping[str, datetime.datetime] | None = None, drain: t.Any = None, **options: t.Any) -> Balance:
    """The decision about these hosts."""
    inputs = inputs_of(facts, last_moves, **(drain or {}))
    return decide_balance(states_of(inputs), inputs, BalanceOptions(**options))


def routes(balance: Balance) -> list[tuple[str, str, str]]:
    """Domain, source and destination of each move."""
    return [(move.leaver.request.name, move.leaver.request.source, move.destination) for move in balance.moves]


def names(balance: Balance) -> Sequence[str]:
    """The names of the domains that move."""
    return [move.leaver.request.name for move in balance.moves]
