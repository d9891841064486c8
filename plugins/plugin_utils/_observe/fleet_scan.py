# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Scans a fleet for states that must never occur: a domain that runs twice, an image that two domains write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, ShapeError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed

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
        return [disk for disk in needs.disks if disk.source and not disk.readonly and not disk.shareable]

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


def _image_name(host: str, disk: DiskNeed) -> str:
    """Return the identity of the image in the fleet; an image on an unknown store is a different one on each host."""
    return disk.store or f"{host}: {disk.source}"
