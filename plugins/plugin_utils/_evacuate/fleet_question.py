# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the host that the task runs on is asked before a start: about the dead host, the other hosts, and the domains and images here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SshEndpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainToProbe, HostTokens

from .._ledger.documents import HostEntry
from .fleet_answers import list_dead_names, list_libvirt_uris
from .image_locks import list_images
from .job import EvacuationContext, EvacuationJob
from .renaming import rename_tokens
from .source import Source


class FleetQuestion:
    """:arg entries: of all hosts, as the ledger has them; C(list_endpoints) returns the addresses of the source that have to be silent."""

    def __init__(self, context: EvacuationContext, source: Source, entries: Sequence[HostEntry], list_endpoints: Callable[[], list[SshEndpoint]]) -> None:
        self._context = context
        self._source = source
        self._entries = entries
        self._list_endpoints = list_endpoints

    def list_uris(self) -> dict[str, str]:
        """Return the libvirt URIs of all other hosts."""
        return list_libvirt_uris(self._context.settings, self._entries, self._context.target_host, self._source)

    def build_question(self, jobs: Sequence[EvacuationJob], uris: dict[str, str]) -> JsonObject:
        """Return the question about these domains, to be asked at these hosts too."""
        domains = [encode(self._domain_to_probe(job)) for job in jobs]
        paths = list_images(job for job in jobs if job.wanted != domain_states.SHUTOFF)
        endpoints = self._list_endpoints()
        dead = list_dead_names(self._source, self._entries, uris)
        return {"ledger_id": self._context.ledger.ledger_id, "ask": uris, "dead": dead, "knock": encode(endpoints), "domains": domains, "paths": paths}

    def list_tokens(self, jobs: Iterable[EvacuationJob]) -> dict[str, HostTokens]:
        """Return by UUID the tokens that identify the disks of the domains."""
        return {job.uuid: self._tokens_for(job) for job in jobs}

    def _domain_to_probe(self, job: EvacuationJob) -> DomainToProbe:
        return DomainToProbe(job.uuid, job.disks_here, job.files_here, job.fresh_here, self._tokens_for(job), job.saved.request or {}, job.wanted)

    def _tokens_for(self, job: EvacuationJob) -> HostTokens:
        """Return the tokens of the host that the domain was saved on, by the folders as this host calls them."""
        saved_on = str((job.saved.host and job.saved.host.host_id) or "")
        entry = next((entry for entry in self._entries if saved_on and entry.host_id == saved_on), None)
        tokens = HostTokens(saved_on, (entry.folders or {}) if entry else {})
        return rename_tokens(tokens, job.renaming) if job.renaming else tokens
