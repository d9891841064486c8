# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The domains of one task: which are evacuated, and whether what was saved of them suffices for a start on this host."""

from __future__ import annotations

import functools

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import HostNames, Renaming
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import lockable_paths

from .._maintenance.drills import PlannedDeath, list_planned_deaths
from .._settings.variables import Settings
from . import start_checks
from .job import EvacuationContext, EvacuationJob, ListedDomain, wanted_state
from .reservation import build_request
from .restart_limit import check_restart_limit
from .saved_policy import effective_request
from .source import Source, check_saved_values, has_saved_disks, list_candidates, select_candidates


@dataclass(frozen=True)
class SelectedDomains:
    """The result of a selection.

    :arg jobs: the requested domains, by importance.
    :arg before: the records of requested domains that were evacuated before.
    :arg not_selected: the other domains of the source.
    :arg images: of all its domains, as they were saved.
    """

    jobs: list[EvacuationJob]
    before: list[MoveRecord]
    not_selected: list[ListedDomain]
    images: frozenset[str]


class DomainSelector:
    """Selects the domains of the source that a task asks for."""

    def __init__(self, context: EvacuationContext, source: Source, settings: Settings) -> None:
        self._context = context
        self._source = source
        self._settings = settings
        self._names: dict[str, HostNames] = {}

    def select_domains(self) -> SelectedDomains:
        """Return the domains. One whose saved values do not suffice has its error."""
        context, options = self._context, self._context.options
        found = list_candidates(context.ledger, self._source.host_ref)
        chosen, before = select_candidates(found, options.domains, context.ledger, self._source)
        jobs = [EvacuationJob(one, self._source, wanted_state(one.entry.saved, options.state)) for one in found]
        wanted = {one.uuid for one in chosen}
        selected = [job for job in jobs if job.uuid in wanted]
        for job in selected:
            job.request = effective_request(job.saved, self._settings, context.target_host, self._source.name)
        selected.sort(key=lambda job: job.sort_key)
        for job in selected:
            job.keep_error(self._check_saved)
        images = frozenset(path for job in jobs if has_saved_disks(job.candidate.entry) for path in lockable_paths(job.disks))
        return SelectedDomains(selected, before, [job.as_entry() for job in jobs if job.uuid not in wanted], images)

    @functools.cached_property
    def _planned_deaths(self) -> list[PlannedDeath]:
        return list_planned_deaths([document.maintenance_run for document in self._context.ledger.list_maintenance_runs()])

    def _check_saved(self, job: EvacuationJob) -> None:
        context, entry = self._context, job.candidate.entry
        # A start that has begun is settled.
        if job.candidate.record is None:
            planned = self._planned_deaths if entry.restarts and context.restart_limit else ()
            check_restart_limit(entry, self._source.host_ref, context.restart_limit, planned)
        check_saved_values(entry)
        self._name_resources(job)
        build_request(job)
        start_checks.check_saved(job, context.options.accept_fresh)
        context.warnings += [start_checks.fresh_warning(job, file) for file in job.fresh if job.is_open]

    def _name_resources(self, job: EvacuationJob) -> None:
        """Set what the saved names are on this host. Raises L(InvalidArgument) for an invalid map of either host."""
        # It may have moved since it was saved: the definition has the names of the host that it was saved on.
        job.names = self._names_of(str((job.saved.host and job.saved.host.host) or self._source.name))
        job.renaming = Renaming.between(job.names, self._names_of(self._context.target_host)) or None

    def _names_of(self, host: str) -> HostNames:
        if host not in self._names:
            self._names[host] = HostNames(host, self._settings.resource_maps(host))
        return self._names[host]
