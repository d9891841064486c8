# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Asking both hosts and the ledger about the moves of a task, and deciding on each. Changes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import check_known, missing_records, sentence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.arrivals import Arrivals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Job, guarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.judging import judge_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.policy import place_of, policy_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest, check_unique
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.traits import check_source


def gather(context: Context, requests: t.Sequence[MoveRequest]) -> tuple[FleetView, list[Job]]:
    """Return the fleet as it is seen now, and a job with its decision or its error for each request.

    Raises L(InvalidArgument) for a domain that is named twice, and for settings of a host that cannot be.
    """
    arrivals = Arrivals(context.ledger)
    for request in requests:
        known = context.ledger.find_domains(request.name) if request.name else []
        request.known_uuids = [document.body["uuid"] for document in known]
    survey = context.source.phase("prepare", {"wanted": [request.wanted() for request in requests]})["survey"]
    jobs = [Job(request, domain=domain) for request, domain in zip(requests, survey["domains"], strict=True)]
    for job in jobs:
        if job.domain["found"]:
            job.request.label = job.domain["info"]["name"]
    uuids = [job.domain["info"]["uuid"] for job in jobs if job.domain["found"]]
    check_unique(uuids)
    uris = {host: uri for request in requests for host, uri in request.uris.items()}
    view = FleetView(context.ledger, context.settings, context.source.name, survey, uris, arrivals, frozenset(uuids))
    context.missing = missing_records(context.ledger, view.remembered())
    context.warnings += [told for told in map(sentence, context.missing) if told not in context.warnings]
    for job in jobs:
        guarded(job, lambda job: _decide(context, view, job))
    view.check_settings({host for job in jobs if isinstance(job.decision, d.Start) for host in job.decision.candidates})
    return view, jobs


def _decide(context: Context, view: FleetView, job: Job) -> None:
    stored = _unsettled(context, job)
    # Another record that holds the domain may be settled, which moves nothing.
    if job.domain["found"] and (stored is None or stored.record["id"] in {one["id"] for one in context.missing}):
        check_known(job.request.label, job.domain_uuid, context.missing)
    job.domain["seen_devices"] = view.seen_devices(job.domain, job.request.uris)
    job.decision = d.decide(job.request, context.source.name, view.survey, job.domain, stored)
    if isinstance(job.decision, (d.Start, d.AdoptForeign)):
        _ask_policy(context, view, job)
    if isinstance(job.decision, d.Start) and not job.error:
        context.warnings += check_source(job.request, view.source_facts(), context.source.name)


def _ask_policy(context: Context, view: FleetView, job: Job) -> None:
    """Work the domain's own policy into the request. A wrong one is this domain's trouble, and not that of the task's other moves."""
    try:
        job.request.policy, warnings = policy_of(job.request, job.domain, context.settings, context.source.name)
        job.request.place = place_of(job.domain, context.settings, context.source.name)
        judge_of(view, job.request, job.domain).check()
    except InvalidArgument as error:
        job.error = error
    else:
        context.warnings += warnings


def _unsettled(context: Context, job: Job) -> Stored | None:
    if job.domain["found"]:
        return context.ledger.unsettled_of(job.domain["info"]["uuid"])
    uuids = [job.request.uuid] if job.request.uuid else job.request.known_uuids
    held = [stored for stored in map(context.ledger.unsettled_of, uuids) if stored is not None]
    if len(held) > 1 or (len(uuids) > 1 and not job.domain["there"]):
        raise Conflict(f"The ledger knows {len(uuids)} domains named {job.request.label}: {', '.join(uuids)}.", "Name the one you mean by its UUID.")
    return held[0] if held else None
