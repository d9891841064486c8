# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which of the domains that were noted on a host are started there again: those that cannot run on another host."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import may_be_off_by_drain
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import FENCED

from .._ledger.documents import DomainEntry, HostEntry
from .._ledger.unreadable_hosts import UnreadableHost
from .._observe.fleet_scan import ImageUsers, list_written
from .release import NotedDomain
from .task_results import DomainVerdict, StartPlan

Facts = Mapping[str, HostFacts | None]

# Which domains are started on a host: those that its boot would have started, also those that ran before the host went down, or none.
AUTOSTART, AS_RECORDED, NO_START = "autostart", "as_recorded", "none"


def read_start_mode(value: Json) -> str:
    """Return which domains are started. C(true) and C(false) are AUTOSTART and NO_START. Raises L(InvalidArgument) for any other value."""
    if isinstance(value, str) and value in (AUTOSTART, AS_RECORDED, NO_START):
        return value
    try:
        return AUTOSTART if boolean(value) else NO_START
    except TypeError as error:
        what = f"{value!r} does not say which domains to start."
        raise InvalidArgument(what, "Set recover_host_start to autostart, as_recorded or none. Nothing was changed.") from error


@dataclass(frozen=True)
class StartInputs:
    """What decides which domains are started on a host.

    :arg facts: C(kvmfleet_host) by name of all hosts of the fleet; None for one that does not answer.
    :arg domains: all domains of the ledger, by UUID.
    :arg held: the unsettled records that hold domains, by the domain's UUID.
    :arg silent: the hosts that may run a domain although they did not answer, see L(list_silent_hosts).
    :arg boot_id: the present boot of the host; null if it is not known.
    :arg noted_on: the UUIDs of the domains that are to be started, by host of the play: each host decides by itself, at the same moment.
    :arg damaged: the UUIDs of the domains whose document was damaged; C(newer) likewise, if a later version wrote it.
    """

    host: str
    facts: Facts
    domains: Mapping[str, DomainEntry] = field(default_factory=dict)
    held: Mapping[str, MoveRecord] = field(default_factory=dict)
    silent: Sequence[str] = ()
    boot_id: t.Optional[str] = None
    damaged: Collection[str] = ()
    newer: Collection[str] = ()
    noted_on: Mapping[str, Collection[str]] = field(default_factory=dict)


def sort_starts(to_start: Iterable[NotedDomain], inputs: StartInputs) -> StartPlan:
    """Return the decision about each of the domains. Raises L(InvalidArgument) if the facts of the host are missing."""
    host_facts, users = inputs.facts[inputs.host], ImageUsers(inputs.facts)
    result: dict[str, list[DomainVerdict]] = {"start": [], "forget": [], "refuse": []}
    for noted in to_start:
        if host_facts is None:
            raise InvalidArgument(f"There are no facts of {inputs.host}.", "Run kvmfleet.migration.host_facts there first. Nothing was started.")
        verdict, reason = _judge_stop(noted, host_facts, inputs.boot_id) or _judge_start(noted, host_facts, inputs, users)
        result[verdict].append(DomainVerdict(noted.uuid, noted.name or noted.uuid, reason))
    return StartPlan(**{verdict: tuple(domains) for verdict, domains in result.items()}, stayed_off=())


def list_silent_hosts(facts: Facts, entries: Iterable[HostEntry], accepted: Collection[str], unreadable: Iterable[UnreadableHost] = ()) -> list[str]:
    """Return the hosts, of the fleet or only in the ledger, that did not answer and are not off according to the ledger or a person.

    :arg unreadable: the hosts whose document cannot be read. The ledger alone may have had their names; they are listed, and accepted, by their keys.
    """
    states = {entry.name: entry.state for entry in entries}
    heard = [replace(known.host, host=name) for name, known in facts.items() if known]
    answering = {where.host_id for where in heard if where.host_id}
    renamed = {entry.name for entry in entries if entry.host_id in answering}
    unheard = {name for name in [*facts, *states] if not facts.get(name)} - renamed
    unknown = {one.host_key for one in unreadable if not any(map(one.is_host, heard))}
    return sorted(name for name in unheard | unknown if states.get(name) != FENCED and name not in accepted)


def _judge_stop(noted: NotedDomain, host_facts: HostFacts, boot_id: t.Optional[str]) -> t.Optional[tuple[str, str]]:
    """Return the verdict on a domain that somebody has started and stopped since it was noted; None if that is not proved.

    libvirt forgets why a domain is off when its host goes down. In the boot of a drain, it is off because of the drain.
    """
    domain = host_facts.find_domain(noted.uuid)
    if domain is None or domain.active or domain.reason not in domain_states.STOPPED_REASONS:
        return None
    return None if may_be_off_by_drain(noted.why, noted.boot_id, boot_id) else ("forget", f"It was started and stopped again ({domain.reason}).")


def _judge_start(noted: NotedDomain, host_facts: HostFacts, inputs: StartInputs, users: ImageUsers) -> tuple[str, str]:
    host, facts, record = inputs.host, inputs.facts, inputs.held.get(noted.uuid)
    domain = host_facts.find_domain(noted.uuid)
    if domain is None:
        return "forget", "It is no longer defined here."
    if domain.active:
        return "start", "It is active already."
    elsewhere = sorted(name for name, known in facts.items() if name != host and known and (found := known.find_domain(noted.uuid)) and found.active)
    if elsewhere:
        return "forget", f"It is active on {', '.join(elsewhere)}."
    if record is not None:
        return "refuse", f"Its record {record.id} is not settled ('{record.status}')."
    if noted.uuid in inputs.newer:
        return "refuse", f"Its document in the ledger was written by a later version. Update the collection on this control node, and recover {host} again."
    if noted.uuid in inputs.damaged:
        return "refuse", (
            "Its document in the ledger was damaged and set aside, so it is not known which hosts may have it. Restore that document from a backup. Or find "
            f"out where the domain is: if it runs nowhere and its definition on {host} is the right one, start it with kvmfleet.migration.domain_start there."
        )
    entry = inputs.domains.get(noted.uuid)
    possible_hosts = entry.possible_hosts if entry else ()
    others = [place for place in possible_hosts if not place.is_same(replace(host_facts.host, host=host))]
    names = ", ".join(str(place.host) for place in others)
    if others and len(others) == len(possible_hosts):
        if all(_lacks_domain(place, noted.uuid, facts) for place in others):
            return "refuse", (
                f"According to the ledger, it is on {names}, which answers and does not have it. "
                f"If it runs nowhere and its definition on {host} is the right one, start it with kvmfleet.migration.domain_start there. "
                "Otherwise undefine it there."
            )
        return "forget", f"According to the ledger, it is on {names}."
    if others:
        return "refuse", f"According to the ledger, it may be on {names} too."
    rivals = [] if possible_hosts else _list_rivals(noted, host_facts, inputs)
    if rivals:
        return "refuse", (
            f"{', '.join(rivals)} would start it too, and the ledger does not know it, so it is not known which definition is the right one. "
            f"Undefine it on the other host, or start it with kvmfleet.migration.domain_start on the right one and protect that host."
        )
    if inputs.silent:
        return "refuse", f"It may run on {', '.join(inputs.silent)}, which did not answer. Fence them, or accept them by name (recover_host_accept_silent)."
    used = users.find_other(noted.uuid, host, list_written(domain.needs))
    if used:
        return "refuse", (
            f"{used[0].upper()}{used[1:]}. If that domain has replaced it, undefine it on {host}. If not, stop that domain, and recover {host} again."
        )
    return "start", f"It is to be started again ({', '.join(noted.why)})."


def _lacks_domain(place: HostRef, uuid: str, facts: Facts) -> bool:
    """Whether the host answers, and does not have the domain."""
    return any(known and place.is_same(replace(known.host, host=name)) and not known.find_domain(uuid) for name, known in facts.items())


def _list_rivals(noted: NotedDomain, host_facts: HostFacts, inputs: StartInputs) -> list[str]:
    """Return the other hosts that would start the domain too: they are recovered in the same run, or have marked it for autostart.

    A mark alone does not tell where the domain ran last. Any other reason of a note does, and then the mark on another host is left over.
    """
    others = {name: known for name, known in inputs.facts.items() if known and not known.host.is_same_answer(host_facts.host)}
    noted_on = {name for name in others if noted.uuid in inputs.noted_on.get(name, ())}
    marked_on = {name for name, known in others.items() if (found := known.find_domain(noted.uuid)) and found.autostart}
    return sorted(noted_on | marked_on if tuple(noted.why) == (AUTOSTART,) else noted_on)
