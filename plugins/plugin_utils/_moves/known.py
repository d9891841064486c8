# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Putting together what was seen of a host from afar and what it said of itself within the last minute."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host

Body = Mapping[str, t.Any]
Facts = dict[str, t.Any]

_TRAITS = ("traits", "missing_traits")


def filled(seen: Body, own: t.Optional[Body]) -> Facts:
    """Return what was seen, with what only the host itself could tell (null there) from its own facts, if they are of the same host.

    :arg seen: C(kvmfleet_host) as a survey has it, or C(answered) false with C(msg).
    :arg own: C(kvmfleet_host) that the host's own C(host_facts) gathered within the last minute, or None.
    """
    facts = dict(seen)
    if own is None or not seen.get("answered", True) or not same_host(own, seen):
        return facts
    facts.update({key: value for key, value in own.items() if seen.get(key) is None})
    if "traits" in own:
        # A probe of its own beats what could be guessed of it.
        facts.update({key: own[key] for key in _TRAITS if key in own})
    told = {*facts.get("traits", ()), *facts.get("missing_traits", ())}
    open_before = {*seen.get("unverified", ()), *own.get("unverified", ())}
    facts["unverified"] = sorted(what for what in open_before if what not in told and facts.get(what) is None)
    return facts


def with_profiles(facts: Body, profile_of: Callable[[str], Body]) -> Body:
    """Return a host's facts in which the domains that name a profile, which hosts do not know, have the group that it gives them.

    :arg profile_of: the profile of that name; empty where it cannot be had.
    """
    domains = facts.get("domains") or ()
    if not any((domain.get("policy") or {}).get("profile") for domain in domains):
        return facts
    return {**facts, "domains": [_in_profile(domain, profile_of) for domain in domains]}


def _in_profile(domain: Body, profile_of: Callable[[str], Body]) -> Body:
    name, request = (domain.get("policy") or {}).get("profile"), domain.get("request") or {}
    if not name or request.get("group"):
        return domain
    return {**domain, "request": {**request, "group": profile_of(name).get("group")}}


def with_known_disks(needs: Body, own: t.Optional[Body], uuid: str) -> Facts:
    """Return a domain's needs in which what is not known of a disk's store comes from the facts of the host that it is on."""
    request = next((domain.get("request") or {} for domain in (own or {}).get("domains", ()) if domain.get("uuid") == uuid), {})
    known = {(disk.get("target"), disk.get("source")): disk for disk in request.get("disks", ())}
    disks = [_known_disk(disk, known.get((disk.get("target"), disk.get("source")), {})) for disk in needs.get("disks", ())]
    return {**needs, "disks": disks} if disks else dict(needs)


def _known_disk(disk: Body, known: Body) -> Facts:
    filled_in = {**disk, **{key: known[key] for key in ("shared", "store", "bytes") if disk.get(key) is None and known.get(key) is not None}}
    # From afar only the definition tells what an image is built on; its own host has read the images as well.
    own_files = {key: known[key] for key in ("files", "files_problem") if key in known}
    return {**filled_in, **own_files} if "files" in own_files else filled_in
