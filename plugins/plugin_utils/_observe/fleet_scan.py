# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Scans a fleet for what the collection has not done.

These are states that must never occur (a domain that runs twice, an image that two domains write), and acts of others: the difference between the document of a
domain and what its host reports. No clocks are compared. The document must have the version that it had before the host was asked, or nothing is written.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, ShapeError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import MOVED, SHUTOFF, STARTED, STOPPED, ForeignAct, SeenDomain
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskFile, DiskNeed, DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import RAN, DomainProtection

from .._ledger.documents import Document, DomainEntry, HostEntry
from .._ledger.ledger import Ledger
from .._ledger.remembered import find_missing_records

DOMAIN_TWICE = "domain_twice"
IMAGE_TWICE = "image_twice"


@dataclass(frozen=True)
class FleetFinding:
    """One domain that runs twice, or one image with two writers.

    :arg kind: C(domain_twice) or C(image_twice).
    :arg domains: their UUIDs.
    :arg msg: a sentence.
    """

    kind: str
    hosts: tuple[str, ...]
    domains: tuple[str, ...]
    msg: str


@dataclass(frozen=True)
class FleetScan:
    """The states that must never occur, and the hosts without facts."""

    findings: tuple[FleetFinding, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class RunningDomain:
    """A domain that is active on a host."""

    host: str
    domain: DomainFacts

    @property
    def description(self) -> str:
        """The domain and its host, for a sentence."""
        return f"{self.domain.name} ({self.domain.uuid}) on {self.host}"

    @property
    def written_disks(self) -> list[DiskNeed]:
        """The disks that the domain writes. Raises L(ShapeError) if its host did not report its disks."""
        needs = self.domain.needs
        if needs is None or not isinstance(needs.disks, tuple):
            raise ShapeError("request.disks", f"the list of the disks of {self.description}")
        return list_written(needs)

    def image_names(self) -> set[str]:
        """Return the names, in the whole fleet, of the images that the domain writes."""
        return {_image_name(self.host, disk) for disk in self.written_disks}


def scan_fleet(facts: Mapping[str, HostFacts | None]) -> FleetScan:
    """Return the states that must never occur. Raises L(ShapeError) for facts that lack the necessary values.

    :arg facts: C(kvmfleet_host) by inventory name; None for a host that has none. Two names of one host count once.
    """
    running = list(_running_domains(facts))
    findings = (*_find_domains_twice(running), *_find_images_twice(running))
    return FleetScan(findings, tuple(sorted(host for host, known in facts.items() if known is None)))


def list_contradicting(findings: Iterable[FleetFinding]) -> tuple[str, ...]:
    """Return the hosts whose facts have to be gathered again before the findings are believed: facts are of different moments, and a domain may have moved."""
    return tuple(dict.fromkeys(host for finding in findings for host in finding.hosts))


def _running_domains(facts: Mapping[str, HostFacts | None]) -> Iterable[RunningDomain]:
    seen: list[HostRef] = []
    for host, known in sorted(facts.items()):
        if known is None:
            continue
        if known.host_uuid is ABSENT:
            raise ShapeError("host_uuid", f"the UUID of {host}")
        answering = HostRef(host, known.host_id or None, known.host_uuid)
        if not any(answering.is_same_answer(other) for other in seen):
            seen.append(answering)
            yield from (RunningDomain(host, domain) for domain in known.domains or () if domain.active)


def _find_domains_twice(running: Iterable[RunningDomain]) -> Iterable[FleetFinding]:
    """Yield the domains that are active on several hosts without a migration between them."""
    by_uuid: defaultdict[str, list[RunningDomain]] = defaultdict(list)
    for one in running:
        by_uuid[one.domain.uuid].append(one)
    for uuid, copies in sorted(by_uuid.items()):
        if len(copies) > 1 and not _is_moving(copies):
            hosts = tuple(one.host for one in copies)
            yield FleetFinding(
                DOMAIN_TWICE,
                hosts,
                (uuid,),
                f"Domain {copies[0].domain.name} ({uuid}) is active on {' and '.join(hosts)}, and is not being moved. "
                "Find out immediately which copy is correct, and stop the other.",
            )


def _is_moving(copies: Sequence[RunningDomain]) -> bool:
    """Whether these are the source and the destination of one migration."""
    sides = [_move_side(one.domain) for one in copies]
    return len(sides) == 2 and ("source" in sides or "destination" in sides) and sides[0] != sides[1]


def _move_side(domain: DomainFacts) -> str | None:
    if domain.job == domain_states.JOB_INCOMING:
        return "destination"
    in_post_copy = domain.state == domain_states.PAUSED and domain.reason in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
    return "source" if domain.job == domain_states.JOB_OUTGOING or in_post_copy else None


def _find_images_twice(running: Iterable[RunningDomain]) -> Iterable[FleetFinding]:
    """Yield the images that more than one active domain may write."""
    by_image: defaultdict[str, dict[str, RunningDomain]] = defaultdict(dict)
    for one in running:
        for name in one.image_names():
            by_image[name].setdefault(one.domain.uuid, one)
    for users in (by_image[name] for name in sorted(by_image)):
        if len(users) > 1:
            yield _image_finding(list(users.values()))


class ImageUsers:
    """The active domains that write each image, or are built on it.

    :arg facts: as for L(scan_fleet).
    """

    def __init__(self, facts: Mapping[str, HostFacts | None]) -> None:
        self._users: defaultdict[str, list[tuple[RunningDomain, bool]]] = defaultdict(list)
        for host, known in facts.items():
            for one in [RunningDomain(host, domain) for domain in (known.domains if known else ()) or () if domain.active]:
                # What a host does not report proves nothing, and prevents nothing.
                with contextlib.suppress(ShapeError):
                    for disk in list_written(one.domain.needs):
                        for image, is_written in _list_images(disk):
                            self._users[_image_name(host, image)].append((one, is_written))

    def find_other(self, uuid: str, host: str, disks: Iterable[DiskNeed]) -> str:
        """Return which image of a domain another domain uses, in words; empty for none. Both may be built on an image that neither writes.

        :arg host: whose names the disks have.
        :arg disks: that the domain would write.
        """
        for disk in disks:
            for image, is_written in _list_images(disk):
                users = self._users.get(_image_name(host, image), ())
                user = next((one for one, writes in users if one.domain.uuid != uuid and (writes or is_written)), None)
                if user:
                    what = disk.source if is_written else f"{disk.source}, built on {image.source}"
                    return f"its disk {disk.target} ({what}) is in use by {user.description}, which is running"
        return ""


def _list_images(disk: DiskNeed) -> list[tuple[DiskNeed | DiskFile, bool]]:
    """Return the images of a disk, each with whether the domain writes it."""
    return [(disk, True), *((file, False) for file in disk.files or ())]


def list_written(needs: DomainRequest | None) -> list[DiskNeed]:
    """Return the disks that a domain alone may write."""
    return [disk for disk in (needs.disks if needs else ()) or () if disk.source and not disk.readonly and not disk.shareable]


def _image_finding(users: Sequence[RunningDomain]) -> FleetFinding:
    shared = users[1].image_names()
    path = next(disk.source for disk in users[0].written_disks if _image_name(users[0].host, disk) in shared)
    return FleetFinding(
        IMAGE_TWICE,
        tuple(sorted({one.host for one in users})),
        tuple(one.domain.uuid for one in users),
        f"The image {path} is open for writing by {' and by '.join(one.description for one in users)}. "
        "Stop all but the correct one before the image is destroyed, or mark it shareable if that is intended.",
    )


def _image_name(host: str, image: DiskNeed | DiskFile) -> str:
    """Return the identity of the image in the fleet; an image on an unknown store is a different one on each host."""
    return image.store or f"{host}: {image.source}"


def find_foreign_act(known: DomainEntry, seen: SeenDomain, host: HostRef, by: str) -> ForeignAct | None:
    """Return what somebody has done to a domain without this collection since it was seen last; None if nothing is proved.

    The caller excludes domains with an unsettled record, and those of a record that the ledger has lost.

    :arg known: as the ledger had it before the host was asked.
    :arg host: that reports the domain.
    """
    saved = known.saved or DomainProtection()
    act = _name_act(known, saved, seen, host)
    if act is None:
        return None
    only = known.possible_hosts[0] if len(known.possible_hosts) == 1 else None
    source = None if only is None or only.is_same(host) else only
    return ForeignAct(act, utc_now(), by, host, source, saved.state or None, seen.state, seen.reason, known.generation or 0)


def _name_act(known: DomainEntry, saved: DomainProtection, seen: SeenDomain, host: HostRef) -> str | None:
    # While a job uses the domain, or the host is held, its state proves nothing.
    if not known.possible_hosts or seen.state is None or seen.reason == domain_states.MIGRATION:
        return None
    if not known.includes_host(host):
        if not seen.active:
            return None
        if seen.reason == domain_states.MIGRATED or (saved.state != SHUTOFF and seen.reason != _BOOTED):
            return None if _is_last_move(known, host) else MOVED
        return STARTED if _is_of_others(saved, seen) else None
    if not known.is_only_on(host) or not _is_of_others(saved, seen):
        return None
    is_same_boot = bool(seen.boot_id) and saved.boot_id == seen.boot_id
    if not seen.active and saved.state in RAN:
        return STOPPED if _was_stopped(seen.reason, is_same_boot) else None
    if seen.active and saved.state == SHUTOFF:
        # After a boot, libvirt has started what is marked for autostart.
        return STARTED if is_same_boot or not seen.autostart else None
    return None


def _was_stopped(reason: str, is_same_boot: bool) -> bool:
    """Whether somebody has stopped the domain, or its guest itself. libvirt forgets the reason when its daemon ends, and any reboot ends all domains."""
    return reason not in _NOT_STOPPED and (is_same_boot or reason in domain_states.STOPPED_REASONS)


_BOOTED = "booted"
_NOT_STOPPED = (*domain_states.FAILED_REASONS, domain_states.MIGRATED)


def _is_of_others(saved: DomainProtection, seen: SeenDomain) -> bool:
    """Whether the last start or stop by this collection was seen already. Otherwise, or if it is not known, the state may be the collection's own work."""
    return saved.own_act is not ABSENT and seen.own_act is not ABSENT and (seen.own_act is None or seen.own_act == saved.own_act)


def _is_last_move(known: DomainEntry, host: HostRef) -> bool:
    """Whether the last act was the same move, without a move of the collection since. Both ends of a job may report the domain for some time."""
    last = known.foreign_acts[-1] if known.foreign_acts else None
    return last is not None and last.act == MOVED and last.host.is_same(host) and last.generation == (known.generation or 0)


@dataclass(frozen=True)
class HostLook:
    """What a host reports of its domains.

    :arg remembered: the moves that it remembers; null if its user may not know them.
    :arg held: whether its boot guard holds this boot; null likewise.
    :arg ledger_id: the ledger under which the host was protected; null for none.
    """

    host_id: str | None
    host_uuid: str | None
    domains: tuple[SeenDomain, ...]
    remembered: Maybe[tuple[JsonObject, ...]] = ABSENT
    held: Maybe[bool] = ABSENT
    ledger_id: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class FoundAct:
    """An act of others that was found; C(problem), why it could not be written."""

    domain: DomainEntry
    act: ForeignAct
    problem: str = ""

    @property
    def text(self) -> str:
        """The act in a sentence without its end."""
        return f"{self.domain.name or self.domain.uuid} {self.act.description}"

    def as_json(self) -> JsonObject:
        """Return the act as a task returns it."""
        return {"uuid": self.domain.uuid, "name": self.domain.name, "act": self.act.act, "msg": f"Domain {self.text}."}


def find_seen_twice(looks: Mapping[str, HostLook], excluded: frozenset[str]) -> list[FleetFinding]:
    """Return the domains that several hosts report as active, by the names of the hosts in the inventory.

    The hosts were not asked at one moment: a domain that another tool has moved in between looks the same.

    :arg excluded: UUIDs of domains that are being moved, or were moved since the hosts were asked.
    """
    sights: defaultdict[str, list[tuple[HostRef, SeenDomain]]] = defaultdict(list)
    for host in _different_hosts(looks):
        for seen in looks[host.label].domains:
            if seen.active and seen.uuid not in excluded:
                sights[seen.uuid].append((host, seen))
    return [_seen_twice_finding(copies) for _uuid, copies in sorted(sights.items()) if len(copies) > 1]


def _different_hosts(looks: Mapping[str, HostLook]) -> list[HostRef]:
    """Return the hosts that have answered. One that was reached by several names is returned once."""
    hosts: list[HostRef] = []
    for name, look in sorted(looks.items()):
        host = HostRef(name, look.host_id, look.host_uuid)
        if not any(host.is_same_answer(other) for other in hosts):
            hosts.append(host)
    return hosts


def _seen_twice_finding(copies: Sequence[tuple[HostRef, SeenDomain]]) -> FleetFinding:
    hosts, seen = tuple(host.label for host, _seen in copies), copies[0][1]
    both, other = ("both", "other") if len(hosts) == 2 else ("several", "others")
    return FleetFinding(
        DOMAIN_TWICE,
        hosts,
        (seen.uuid,),
        f"Domain {seen.name} ({seen.uuid}) was seen active on {' and '.join(hosts)}, and no move of it is known. The hosts are not asked at one moment: run "
        f"the playbook again. If the domain is on {both} hosts then, find out immediately which copy is correct, and stop the {other}.",
    )


def record_foreign_acts(
    ledger: Ledger, documents: Mapping[str, Document], excluded: frozenset[str], looks: Sequence[tuple[HostRef, HostLook]], by: str, write: bool
) -> list[FoundAct]:
    """Write the acts of others that hosts report, and return them. An act whose document has changed meanwhile is left to the next look.

    :arg documents: of domains, as they were before the hosts were asked.
    :arg excluded: UUIDs of domains with a record, about which reports prove nothing.
    """
    lost = find_missing_records(ledger, [(host.label, look.remembered or None) for host, look in looks]) if documents else []
    excluded |= {move.domain.uuid for move in lost}
    running = [seen.uuid for _host, look in looks for seen in look.domains if seen.active]
    found: list[FoundAct] = []
    for host, look in looks:
        for seen in look.domains:
            document = documents.get(seen.uuid)
            if document is None or seen.uuid in excluded or running.count(seen.uuid) > 1:
                continue
            act = find_foreign_act(document.domain, seen, host, by)
            if act is not None:
                # What could not be written is not tried again for the next domain: each try may wait for the ledger.
                problem = found[-1].problem if found else ""
                one = _write_act(ledger, document, act, seen) if write and not problem else FoundAct(document.domain, act, problem)
                found += [one] if one else []
    return found


def name_hosts(entries: Sequence[HostEntry], looks: Mapping[str, HostLook]) -> list[tuple[HostRef, HostLook]]:
    """Return the looks with the hosts that the ledger has under these names, without those of other hosts: an address proves nothing."""
    return [(entry.host_ref, looks[entry.name]) for entry in entries if entry.name in looks and _is_of_host(entry, looks[entry.name])]


def _is_of_host(entry: HostEntry, look: HostLook) -> bool:
    return look.host_id == entry.host_id if look.host_id and entry.host_id else bool(look.host_uuid) and look.host_uuid == entry.host_uuid


def _write_act(ledger: Ledger, document: Document, act: ForeignAct, seen: SeenDomain) -> FoundAct | None:
    """Write the act, and what is seen of the domain; return None if another process has written the document."""
    entry = with_seen_state(document.domain, act, seen)
    try:
        ledger.put_domain(entry, document.version, act)
    except Conflict:
        return None
    except KvmfleetError as error:
        return FoundAct(document.domain, act, str(error))
    return FoundAct(entry, act)


def with_seen_state(known: DomainEntry, act: ForeignAct, seen: SeenDomain) -> DomainEntry:
    """Return the entry with the host and the state that were found, so that the next look finds nothing new. The saved definition stays as it is."""
    known = replace(known, possible_hosts=(act.host,) if seen.active else known.possible_hosts, missing=ABSENT, updated_at=act.at)
    if not known.protected or act.act == MOVED:
        return known
    state = {"state": seen.state, "state_at": act.at, "boot_id": seen.boot_id or None, "own_act": seen.own_act or None, "ran_before": None}
    return replace(known, protected={**known.protected, **state})
