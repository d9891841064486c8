# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a fleet check is made from: the fleet at one moment, the guests of each host, what C(protect) has proved, and the hosts that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDisk, SavedFile
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict

from .._drain.inputs import DrainInputs
from .._drain.preparation import is_arriving
from .._ledger.documents import DomainEntry, pause_collector
from .._scheduler.fleet import Fleet, HostState
from .._scheduler.loss_rules import SeenImages
from .._scheduler.request import Request


@dataclass(frozen=True)
class FleetView:
    """A fleet that is checked.

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

    def with_comparisons(self, verdicts: Mapping[str, Mapping[str, CpuVerdict]]) -> FleetView:
        """Return the view with libvirt's comparison of CPUs, by host and UUID."""
        states = {name: replace(state, cpu_verdicts=verdicts.get(name, {})) for name, state in self.fleet.states.items()}
        return replace(self, fleet=replace(self.fleet, states=states))


@pause_collector()
def view_fleet(hosts: Sequence[str], inputs: DrainInputs, documents: Iterable[DomainEntry] = ()) -> FleetView:
    """Return the fleet.

    :arg hosts: names of the hosts that are checked.
    :arg documents: the ledger's domains.
    """
    listed = list(documents)
    states = {host: inputs.host_state(host) for host in hosts}
    guests: dict[str, list[Request]] = {}
    uncertain: dict[str, str] = {}
    for host, state in states.items():
        if state.unanswered is not None:
            guests[host] = []
            if why := _why_uncertain(host, state, inputs, listed):
                uncertain[host] = why
            continue
        guests[host], unreadable = _read_guests(host, inputs)
        if unreadable:
            uncertain[host] = f"what {', '.join(unreadable)} needs is not known."
    silent = {host: state.unanswered for host, state in states.items() if state.unanswered is not None and host in uncertain}
    seen = _read_seen(listed, [request for requests in guests.values() for request in requests])
    return FleetView(Fleet(states), guests, silent, uncertain, seen)


def _why_uncertain(host: str, state: HostState, inputs: DrainInputs, documents: Iterable[DomainEntry]) -> str:
    """Return why it is not known what runs on a silent host; empty if the ledger has closed it and no domain may be on it."""
    entry = next((entry for entry in inputs.entries if entry.name == host), None)
    if entry is None or state.state == ENABLED:
        return f"it did not answer: {state.unanswered or ''}"
    names = sorted(document.name or document.uuid for document in documents if document.includes_host(entry.host_ref))
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


def _read_seen(documents: Iterable[DomainEntry], requests: Iterable[Request]) -> dict[str, SeenImages]:
    """Return what C(protect) has proved of the images that guests have now, by UUID."""
    saved = {document.uuid: document for document in documents if document.saved}
    found = {}
    for request in requests:
        images = _list_seen(saved[request.uuid]) if request.uuid in saved else None
        if images is None:
            continue
        known, paths = images
        if {image.source for image in request.images if image.kind in ("file", "block", "dir")} <= paths:
            found[request.uuid] = known
    return found


def _list_seen(document: DomainEntry) -> tuple[SeenImages, frozenset[str]] | None:
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
    images |= {f"{file.what} {file.path}": file.seeing_hosts for file in files if not file.is_everywhere}
    paths = {path for disk in disks for path in (disk.path, *(disk.backing or ()), *(disk.backing_devices or ()))}
    return images, frozenset(paths)
