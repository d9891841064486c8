# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Asking the scheduler about one domain and its candidates, with all that is known of both."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import required_traits
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.copying import copied_bytes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.known import Facts, with_known_disks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.check import Verdict, check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.weighers import weigh

Body = Mapping[str, t.Any]


@dataclass(frozen=True)
class Subject:
    """Who wants a place, and what it needs; C(source) is empty for a request of no domain in particular."""

    uuid: str
    name: str
    needs: Body
    source: str
    source_uuid: str
    source_id: t.Optional[str] = None


@dataclass(frozen=True)
class Judge:
    """One domain before its candidates.

    :arg request: for the URIs of the candidates, C(unsafe) and C(force).
    :arg domain: the survey's part about the domain: what was asked about it at each candidate.
    :arg copied: what would be copied to a host: bytes by the disk's target.
    """

    view: FleetView
    subject: Subject
    request: MoveRequest
    domain: Facts
    copied: Callable[[str], Mapping[str, int]]

    def check(self) -> None:
        """Raise L(InvalidArgument) where what the domain needs could not be read; before a record is opened."""
        Request.of(self.subject.needs, self.subject.uuid, self.subject.name, self.subject.source)

    def needs(self, host: str) -> Request:
        """Return the scheduler's request for a move to that host; what is copied differs between hosts."""
        subject = self.subject
        return Request.of(
            subject.needs,
            subject.uuid,
            subject.name,
            subject.source,
            subject.source_uuid,
            copied=self.copied(host),
            unsafe=self.request.options.unsafe,
            source_id=subject.source_id,
        )

    def facts(self, host: str) -> Facts:
        """Return what a candidate that answered has said of itself."""
        return self.view.facts(host, self.request.uris[host])

    def rank(self, hosts: Iterable[str]) -> dict[str, Verdict]:
        """Return a verdict for each of these candidates, from the ledger as it is now; those that passed are weighed against each other."""
        names = list(hosts)
        uris = {host: self.request.uris[host] for host in names}
        fleet = self.view.fleet(self.domain, self.subject.uuid, uris, has_group=bool(self.subject.needs.get("group")))
        # What is copied differs between hosts, and so may the request that each of them is judged by.
        verdicts = {host: check(self.needs(host), fleet.states[host], fleet, force=self.request.force) for host in names}
        passed = [fleet.states[host] for host, verdict in verdicts.items() if verdict.passed]
        weights = weigh(self.needs(passed[0].name), passed, fleet) if passed else {}
        return {host: replace(verdict, weight=weights.get(host, 0.0)) for host, verdict in verdicts.items()}


def judge_of(view: FleetView, request: MoveRequest, domain: Facts) -> Judge:
    """Return the judge of a surveyed domain's move. Its request's policy and place have to be known."""
    return Judge(view, subject_of(view, request, domain), request, domain, lambda host: copied_bytes(request, domain, host))


def subject_of(view: FleetView, request: MoveRequest, domain: Facts) -> Subject:
    """Return a domain that was found on the source, with the traits and the place that its policy asks for."""
    info = domain["info"]
    known = with_known_disks(domain["request"], view.own_facts(), info["uuid"])
    needs = {**known, "traits": required_traits(request.policy), **request.place}
    return Subject(info["uuid"], info["name"], needs, view.source, view.survey["source"]["host_uuid"], view.survey["source"].get("host_id"))
