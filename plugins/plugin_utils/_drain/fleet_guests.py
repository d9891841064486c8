# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The guests of a whole fleet, from the facts of its hosts and the ledger: the guests of each host, and the hosts of which that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .._ledger.documents import pause_collector
from .._scheduler.fleet import Fleet, HostState
from .._scheduler.fleet_guests import FleetGuests, read_seen
from .._scheduler.request import Request
from .inputs import DrainInputs
from .preparation import is_arriving


@pause_collector()
def collect_guests(hosts: Iterable[str], inputs: DrainInputs) -> FleetGuests:
    """Return these hosts with their guests."""
    states = {host: inputs.host_state(host) for host in hosts}
    guests: dict[str, Sequence[Request]] = {}
    uncertain: dict[str, str] = {}
    for host, state in states.items():
        if state.unanswered is not None:
            guests[host] = []
            if why := _why_uncertain(host, state, inputs):
                uncertain[host] = why
            continue
        guests[host], unreadable = _read_guests(host, inputs)
        if unreadable:
            uncertain[host] = f"what {', '.join(unreadable)} needs is not known."
    silent = {host: state.unanswered for host, state in states.items() if state.unanswered is not None and host in uncertain}
    seen = read_seen(inputs.documents, [request for requests in guests.values() for request in requests])
    return FleetGuests(Fleet(states), guests, silent, uncertain, seen)


def _why_uncertain(host: str, state: HostState, inputs: DrainInputs) -> str:
    """Return why it is not known what runs on a silent host; empty if the ledger has closed it and no domain may be on it."""
    entry = next((entry for entry in inputs.entries if entry.name == host), None)
    if entry is None or state.state == ENABLED:
        return f"it did not answer: {state.unanswered or ''}"
    names = sorted(document.name or document.uuid for document in inputs.documents if document.includes_host(entry.host_ref))
    return f"it did not answer, and {', '.join(names)} may be on it." if names else ""


def _read_guests(host: str, inputs: DrainInputs) -> tuple[list[Request], list[str]]:
    """Return what the active guests of a host need, and the names of those that cannot be read."""
    ref = inputs.host_ref(host)
    found, unreadable = [], []
    for domain in inputs.list_domains(host):
        if not domain.active or (is_arriving(domain) and inputs.hosts_where_active(domain.uuid, ref)):
            continue
        try:
            found.append(_make_request(domain, host, ref.host_uuid or "", ref.host_id))
        except InvalidArgument:
            unreadable.append(domain.name)
    return found, unreadable


def _make_request(domain: DomainFacts, host: str, host_uuid: str, host_id: str | None) -> Request:
    needs: JsonObject = domain.request or {}
    return Request.from_needs(needs, domain.uuid, domain.name, host, host_uuid, source_id=host_id)
