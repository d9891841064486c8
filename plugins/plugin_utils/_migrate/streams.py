# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The connections of a move: what the control node knows about hosts and domain, for the decision in C(module_utils/_migration/streams)."""

from __future__ import annotations

import urllib.parse

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.streams import StreamChoice, StreamFacts, choose_streams
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest


def choose_connections(view: FleetView, request: MoveRequest, domain: SurveyedDomain, host: str, post_copy: bool, migrate_uri: str | None) -> StreamChoice:
    """Return how the memory of the domain gets to that host.

    :arg post_copy: whether the policy of the move permits it.
    :arg migrate_uri: where the memory is sent; null if libvirt chooses, which is TCP.
    """
    needs, source, destination = domain.request or None, view.source_facts(), view.candidate_facts(host, request.uris[host])
    cpus = [facts.cpus for facts in (source, destination) if facts.cpus]
    facts = StreamFacts(
        link_mib=request.link_mib,
        memory_mib=needs.memory_mib if needs else 0,
        cpus=min(cpus) if len(cpus) == 2 else None,
        is_pinned=needs is None or _is_pinned(needs),
        post_copy=post_copy,
        is_tcp=migrate_uri is None or urllib.parse.urlsplit(migrate_uri).scheme == "tcp",
        memory_lock_bytes=domain.memory_lock_bytes if isinstance(domain.memory_lock_bytes, int) else None,
        versions={view.source: view.versions_under(domain), host: destination.versions or {}},
    )
    return choose_streams(request.options, facts)


def _is_pinned(needs: DomainRequest) -> bool:
    return bool(needs.pinning and (needs.pinning.vcpus or needs.pinning.emulator))
