# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The domains that ran on a host before it went down, according to the ledger, and that are off: they are started, or listed with how to start them."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable, Iterable
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import RAN, EarlierState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED, DONE, EVACUATION

from .._ledger.documents import DomainEntry
from .._ledger.ledger import Ledger
from .release import NotedDomain
from .starts import AS_RECORDED, Facts
from .task_results import DomainVerdict, StartPlan


@dataclass(frozen=True)
class RecordedDomain:
    """A domain that ran on a host before the host went down, and is off.

    :arg before: its state then.
    :arg is_defined: whether the host still has its definition.
    :arg is_saved: whether the ledger has its definition.
    :arg is_certain: false for one that came to a host that nobody protects. If it was stopped there, nothing has saved that.
    """

    uuid: str
    name: str
    before: EarlierState
    is_defined: bool
    is_saved: bool = True
    is_certain: bool = True

    @property
    def as_noted(self) -> NotedDomain:
        """The domain as one that is to be started."""
        return NotedDomain(self.uuid, self.name, ("recorded",))

    def describe(self, what: str, host: str) -> DomainVerdict:
        """Return the entry of a result: the earlier state, and this."""
        if not self.is_certain:
            return DomainVerdict(
                self.uuid,
                self.name,
                f"It was {self.before.state} when it came to {host} ({self.before.at}), and is off. {host} is not protected, "
                f"so the ledger does not show whether somebody has stopped it since. {what}",
            )
        at = f" (saved at {self.before.at})" if self.before.at else ""
        return DomainVerdict(self.uuid, self.name, f"It was {self.before.state} before the host went down{at}, and is off. {what}")


@dataclass(frozen=True)
class Arrival:
    """How a domain came to a host: its state, and whether it was persistent."""

    before: EarlierState
    is_persistent: bool


FindArrival = Callable[[DomainEntry, HostRef], t.Optional[Arrival]]


def find_recorded(
    host: str, facts: Facts, domains: Iterable[DomainEntry], boot_id: t.Optional[str], find_arrival: FindArrival, is_protected: bool = True
) -> list[RecordedDomain]:
    """Return the domains of the host that ran before it went down, according to the ledger, and that are off.

    Omitted are domains that are active, that were stopped since the boot, and those without definition here that another host may have, that were missing
    before the host went down, or that came as persistent ones to a host that is not protected: no boot loses these, and nothing notes who has deleted them.

    :arg boot_id: the present boot of the host; null if it is not known.
    :arg find_arrival: returns how a domain came to the host after it was saved on another one.
    :arg is_protected: whether the host is.
    """
    host_facts = facts[host]
    if host_facts is None:
        return []
    own_ref = replace(host_facts.host, host=host)
    result: list[RecordedDomain] = []
    for entry in domains:
        if not entry.includes_host(own_ref):
            continue
        found = host_facts.find_domain(entry.uuid)
        if found and (found.active or found.reason in domain_states.STOPPED_REASONS):
            continue
        if found is None and (not entry.is_only_on(own_ref) or any(known and known.find_domain(entry.uuid) for known in facts.values())):
            continue
        if found is None and entry.missing and entry.is_missing and entry.missing.boot_id != boot_id:
            continue
        saved = entry.saved
        is_saved_here = bool(saved and saved.host and saved.host.is_same(own_ref))
        arrival = None if is_saved_here else find_arrival(entry, own_ref)
        if found is None and arrival and arrival.is_persistent and not is_protected:
            continue
        before = saved.state_before(boot_id) if saved and is_saved_here else arrival and arrival.before
        if before:
            name = str((found.name if found else entry.name) or entry.uuid)
            result.append(RecordedDomain(entry.uuid, name, before, found is not None, bool(saved and saved.definition), is_protected or is_saved_here))
    return result


def make_arrivals(ledger: Ledger | None) -> FindArrival:
    """Return a function that reads from the ledger how a domain came to a host; null for one that did not run then."""
    if ledger is None:
        return lambda _entry, _host: None
    done = sorted(ledger.list_records(types=[EVACUATION], statuses=[DONE]), key=lambda record: record.generation)
    newest = {record.domain.uuid.lower(): record for record in done}

    def find_arrival(entry: DomainEntry, host: HostRef) -> Arrival | None:
        records = [newest[entry.uuid]] if entry.uuid in newest else []
        if entry.last_record:
            with contextlib.suppress(KvmfleetError):
                records.append(ledger.read_record(entry.last_record).record)
        record = next((one for one in records if one.status in (COMPLETED, DONE) and one.destination.is_same(host)), None)
        state = (record.wanted_state or state_after_move(record)) if record else None
        return Arrival(EarlierState(state, record.updated_at), record.before.persistent is True) if record and state in RAN else None

    return find_arrival


def state_after_move(record: MoveRecord) -> str:
    """Return the state in which the move of a record has left its domain."""
    if record.cold and record.method == SHUTDOWN:
        return domain_states.RUNNING if record.cold.start else domain_states.SHUTOFF
    return record.before.state or domain_states.RUNNING


def with_recorded(plan: StartPlan, verdicts: StartPlan, recorded: Iterable[RecordedDomain], host: str, mode: str) -> StartPlan:
    """Return the plan with the domains that ran before the host went down: they are started, or listed with how to start them.

    A domain of which this is not certain is never started.

    :arg verdicts: the decisions about those of them that are defined. One that is elsewhere now is omitted.
    """
    by_uuid = {domain.uuid: domain for domain in recorded}
    to_act = {uuid for uuid, domain in by_uuid.items() if domain.is_certain and mode == AS_RECORDED}
    start = [replace(one, paused=True) if by_uuid[one.uuid].before.state == domain_states.PAUSED else one for one in verdicts.start if one.uuid in to_act]
    refuse = [one for one in verdicts.refuse if one.uuid in to_act]
    off = [domain.describe(_undefined_text(domain, host), host) for domain in by_uuid.values() if not domain.is_defined]
    off += [by_uuid[one.uuid].describe(_start_text(by_uuid[one.uuid], host), host) for one in verdicts.start if one.uuid not in to_act]
    off += [by_uuid[one.uuid].describe(f"It cannot be started now: {one.reason}", host) for one in verdicts.refuse if one.uuid not in to_act]
    stayed_off = tuple(sorted(off, key=lambda one: (str(one.name), one.uuid)))
    return StartPlan((*plan.start, *start), plan.forget, (*plan.refuse, *refuse), stayed_off)


def _start_text(domain: RecordedDomain, host: str) -> str:
    if domain.is_certain:
        return f"To start it, recover {host} again with recover_host_start=as_recorded, or run kvmfleet.migration.domain_start there."
    return f"If it is to run, run kvmfleet.migration.domain_start there. Then protect {host}."


def _undefined_text(domain: RecordedDomain, host: str) -> str:
    origin = f"its document in the ledger (domains/{domain.uuid}.json, protected.definition)" if domain.is_saved else "a backup (the ledger does not have it)"
    return f"{host} has no definition of it any more, so recover cannot start it. If it ran nowhere else, define it there from {origin}, and start it."
