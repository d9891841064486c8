# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A fleet with what the active guests of each host need: as it is, and as it would be after moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import describe_file
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JOB_INCOMING
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDisk, SavedFile
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED, MAINTENANCE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict

from .._ledger.documents import DomainEntry, HostEntry, pause_collector
from .fleet import Fleet, HostState
from .loss_rules import SeenImages
from .request import Request


@dataclass(frozen=True)
class FleetGuests:
    """A fleet and its guests.

    :arg guests: what the active guests of each host need.
    :arg silent: why hosts did not answer.
    :arg uncertain: why it is not known what runs on a host, or what its guests need.
    :arg seen: the images of protected guests, and the hosts that were proved to see them.
    """

    fleet: Fleet
    guests: Mapping[str, Sequence[Request]]
    silent: Mapping[str, str] = field(default_factory=dict)
    uncertain: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, SeenImages] = field(default_factory=dict)

    @property
    def requests(self) -> list[Request]:
        """What all guests need."""
        return [request for requests in self.guests.values() for request in requests]

    def with_comparisons(self, verdicts: Mapping[str, Mapping[str, CpuVerdict]]) -> FleetGuests:
        """Return it with libvirt's comparison of CPUs, by host and UUID."""
        states = {name: replace(state, cpu_verdicts=verdicts.get(name, {})) for name, state in self.fleet.states.items()}
        return replace(self, fleet=replace(self.fleet, states=states))

    def place_guest(self, request: Request, destination: str) -> FleetGuests:
        """Return it with a guest on another host, under the names that the guest has there. A guest that runs nowhere is added."""
        return self.place_guests([(request, destination)])

    def place_guests(self, moves: Iterable[tuple[Request, str]]) -> FleetGuests:
        """Return it with guests on other hosts, one after the other. See L(place_guest)."""
        known = {one.uuid: (host, one) for host, requests in self.guests.items() for one in requests}
        guests, fleet, seen = dict(self.guests), self.fleet, dict(self.seen)
        for request, destination in moves:
            source, guest = known.get(request.uuid, ("", request))
            if source == destination:
                continue
            arrived = request_on(fleet, guest, destination)
            known[guest.uuid] = (destination, arrived)
            guests[destination] = [*guests[destination], arrived]
            fleet = fleet.with_domain(guest, destination)
            if source:
                guests[source] = [one for one in guests[source] if one.uuid != guest.uuid]
                fleet = fleet.without_domain(guest.uuid, source)
                if guest.uuid in seen:
                    seen[guest.uuid] = _add_host(seen[guest.uuid], guest.source_id)
        return replace(self, fleet=fleet, guests=guests, seen=seen)

    def leave_out(self, uuids: Collection[str]) -> FleetGuests:
        """Return it without what these guests need after a loss. They keep their room on their hosts."""
        return replace(self, guests={host: [one for one in requests if one.uuid not in uuids] for host, requests in self.guests.items()})

    def empty_hosts(self, hosts: Iterable[str]) -> FleetGuests:
        """Return it with these hosts out of service and without guests."""
        names = list(hosts)
        states = {name: replace(self.fleet.states[name], state=MAINTENANCE, state_reason="it is being emptied") for name in names}
        fleet = replace(self.fleet, states={**self.fleet.states, **states}).without_guests(names)
        uncertain = {host: why for host, why in self.uncertain.items() if host not in states}
        return replace(self, fleet=fleet, guests={**self.guests, **dict.fromkeys(names, ())}, uncertain=uncertain)


def request_on(fleet: Fleet, request: Request, host: str) -> Request:
    """Return what a domain needs that has arrived on the host, with its names there."""
    state = fleet.states[host]
    there = fleet.request_at(request, state)
    return replace(there, source=host, source_uuid=state.host_uuid, source_id=state.host_id, at_source=None, unnamed=(), renamed=())


def _add_host(images: SeenImages, host_id: str) -> SeenImages:
    """Return the images with a host that sees all of them, because their guest runs on it."""
    return {image: hosts | {host_id} for image, hosts in images.items()} if host_id else images


@pause_collector()
def collect_guests(
    states: Mapping[str, HostState],
    domains: Mapping[str, Sequence[DomainFacts]],
    entries: Iterable[HostEntry] = (),
    documents: Iterable[DomainEntry] = (),
    accept_fresh: Collection[str] = (),
) -> FleetGuests:
    """Return these hosts with their guests.

    :arg domains: of the hosts that answered, with the additions of their profiles.
    :arg entries: the ledger's hosts; C(documents) its domains.
    :arg accept_fresh: kinds of files of which an evacuation accepts new ones, so that no other host must see them.
    """
    listed, closed = list(documents), {entry.name: entry for entry in entries}
    active = [(domain.uuid, host) for host in states for domain in domains.get(host, ()) if domain.active]
    guests: dict[str, Sequence[Request]] = {}
    uncertain: dict[str, str] = {}
    for host, state in states.items():
        if state.unanswered is not None:
            guests[host] = ()
            uncertain[host] = _why_uncertain(state, closed.get(host), listed)
            continue
        elsewhere = {uuid for uuid, other in active if other != host}
        guests[host], unreadable = _read_guests(state, domains.get(host, ()), elsewhere)
        uncertain[host] = f"what {', '.join(unreadable)} needs is not known." if unreadable else ""
    uncertain = {host: why for host, why in uncertain.items() if why}
    silent = {host: state.unanswered for host, state in states.items() if state.unanswered is not None and host in uncertain}
    seen = _read_seen(listed, [request for requests in guests.values() for request in requests], accept_fresh)
    return FleetGuests(Fleet(states), guests, silent, uncertain, seen)


def _why_uncertain(state: HostState, entry: HostEntry | None, documents: Iterable[DomainEntry]) -> str:
    """Return why it is not known what runs on a silent host; empty if the ledger has closed it and no domain may be on it."""
    if entry is None or state.state == ENABLED:
        return f"it did not answer: {state.unanswered or ''}"
    names = sorted(document.name or document.uuid for document in documents if document.is_expected_on(entry.host_ref))
    return f"it did not answer, and {', '.join(names)} may be on it." if names else ""


def _read_guests(state: HostState, domains: Iterable[DomainFacts], elsewhere: Collection[str]) -> tuple[list[Request], list[str]]:
    """Return what the active guests of a host need, and the names of those that cannot be read.

    :arg elsewhere: the UUIDs of domains that are active on another host. Those that are arriving here are guests of that host.
    """
    found, unreadable = [], []
    for domain in domains:
        if not domain.active or (domain.job == JOB_INCOMING and domain.uuid in elsewhere):
            continue
        try:
            found.append(Request.from_needs(domain.request or {}, domain.uuid, domain.name, state.name, state.host_uuid, source_id=state.host_id or None))
        except InvalidArgument:
            unreadable.append(domain.name)
    return found, unreadable


def _read_seen(documents: Iterable[DomainEntry], requests: Iterable[Request], accept_fresh: Collection[str]) -> dict[str, SeenImages]:
    """Return what C(protect) has proved of the images that guests have now, by UUID."""
    saved = {document.uuid: document for document in documents if document.saved}
    found = {}
    for request in requests:
        images = _list_seen(saved[request.uuid], accept_fresh) if request.uuid in saved else None
        if images is None:
            continue
        known, paths = images
        if {image.source for image in request.images if image.kind in ("file", "block", "dir")} <= paths:
            found[request.uuid] = known
    return found


def _list_seen(document: DomainEntry, accept_fresh: Collection[str]) -> tuple[SeenImages, frozenset[str]] | None:
    """Return the disks and files that another host must see, each with the hosts that see it, and the paths of all of them; None if they were not saved."""
    saved = document.saved
    if saved is None or not isinstance(saved.disks, tuple):
        return None
    try:
        disks = [decode(SavedDisk, disk) for disk in saved.disks]
        files = [decode(SavedFile, file) for file in saved.files or ()]
    except ShapeError:
        return None
    images = {f"disk {disk.target}": disk.seeing_hosts for disk in disks if disk.is_needed and not disk.is_everywhere}
    needed = [file for file in files if not file.is_everywhere and file.what not in accept_fresh]
    images |= {describe_file(file.what, file.path): file.seeing_hosts for file in needed}
    paths = {path for disk in disks for path in (disk.path, *(disk.backing or ()), *(disk.backing_devices or ()))}
    return images, frozenset(paths)
