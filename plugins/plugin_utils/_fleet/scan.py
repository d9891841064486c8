# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Looking over a whole fleet for what must never be: one domain that runs twice, one image that two domains write."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_answer
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

DOMAIN_TWICE = "domain_twice"
IMAGE_TWICE = "image_twice"

Body = Mapping[str, t.Any]
Finding = dict[str, t.Any]


class Running(t.NamedTuple):
    """A domain that is active on a host."""

    host: str
    domain: Body

    @property
    def words(self) -> str:
        """The domain and its host, for a sentence."""
        return f"{self.domain['name']} ({self.domain['uuid']}) on {self.host}"


def scan(facts: Mapping[str, t.Optional[Body]]) -> dict[str, t.Any]:
    """Return C({findings, unknown}): each finding with its kind, hosts, domains and a sentence; and the hosts of which nothing is known.

    :arg facts: C(kvmfleet_host) by inventory name; None or empty for a host that has none. Two names of one host count once.
    """
    running = list(_running(facts))
    return {"findings": [*_twice(running), *_images(running)], "unknown": sorted(host for host, known in facts.items() if not known)}


def _running(facts: Mapping[str, t.Optional[Body]]) -> Iterable[Running]:
    seen: list[Body] = []
    for host in sorted(facts):
        known = facts[host]
        here = place(host, known.get("host_id"), known["host_uuid"]) if known else {}
        if known and not any(same_answer(here, other) for other in seen):
            seen.append(here)
            yield from (Running(host, domain) for domain in known["domains"] if domain["active"])


def _twice(running: Iterable[Running]) -> Iterable[Finding]:
    """Yield the domains that are active on several hosts and not on their way from one to the other."""
    by_uuid: defaultdict[str, list[Running]] = defaultdict(list)
    for one in running:
        by_uuid[one.domain["uuid"]].append(one)
    for uuid, places in sorted(by_uuid.items()):
        if len(places) > 1 and not _is_moving(places):
            hosts = [one.host for one in places]
            yield {
                "kind": DOMAIN_TWICE,
                "hosts": hosts,
                "domains": [uuid],
                "msg": f"Domain {places[0].domain['name']} ({uuid}) is active on {' and '.join(hosts)}, and is not being moved. "
                "Find out at once which copy is the right one, and stop the other.",
            }


def _is_moving(places: list[Running]) -> bool:
    """Whether these are the two ends of one migration."""
    ends = [_end(one.domain) for one in places]
    return len(ends) == 2 and ("source" in ends or "destination" in ends) and ends[0] != ends[1]


def _end(domain: Body) -> t.Optional[str]:
    if domain["job"] == h.JOB_INCOMING:
        return "destination"
    in_post_copy = domain["state"] == h.PAUSED and domain["reason"] in (h.POST_COPY, h.POST_COPY_FAILED)
    return "source" if domain["job"] == h.JOB_OUTGOING or in_post_copy else None


def _images(running: Iterable[Running]) -> Iterable[Finding]:
    """Yield the images that more than one active domain may write."""
    by_store: defaultdict[str, dict[str, Running]] = defaultdict(dict)
    for one in running:
        for disk in one.domain["request"]["disks"]:
            if _is_written(disk):
                by_store[_identity(one.host, disk)].setdefault(one.domain["uuid"], one)
    for users in (by_store[store] for store in sorted(by_store)):
        if len(users) > 1:
            yield _image_finding(list(users.values()))


def _image_finding(users: list[Running]) -> Finding:
    path = next(disk["source"] for disk in users[0].domain["request"]["disks"] if _is_written(disk) and _shares(users[0], disk, users[1]))
    return {
        "kind": IMAGE_TWICE,
        "hosts": sorted({one.host for one in users}),
        "domains": [one.domain["uuid"] for one in users],
        "msg": f"The image {path} is open for writing by {' and by '.join(one.words for one in users)}. "
        "Stop all but the right one before it is destroyed, or mark it shareable if that is meant.",
    }


def _shares(one: Running, disk: Body, other: Running) -> bool:
    return any(_is_written(theirs) and _identity(other.host, theirs) == _identity(one.host, disk) for theirs in other.domain["request"]["disks"])


def _is_written(disk: Body) -> bool:
    return bool(disk["source"]) and not disk["readonly"] and not disk["shareable"]


def _identity(host: str, disk: Body) -> str:
    """Return what the image is called in the whole fleet; one whose store is not known is a different one on each host."""
    return str(disk.get("store") or f"{host}: {disk['source']}")
