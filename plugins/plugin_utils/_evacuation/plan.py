# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One plan for all survivors of a dead host: who starts which of its domains. Made once; each then starts its share."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, KvmfleetError, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._facts_age import Moment
from .._hosts.places import known_id
from .._ledger.places import same_host
from .._ledger.store import Body
from .._scheduler.entries import entry_of
from .._scheduler.host_state import HostState
from . import decide as d
from .job import Job
from .placing import Shares, Survivors, share_out
from .run import Evacuation

_HELD = (s.ACCEPTED, s.PRE_MIGRATING, s.ERROR)


def make_plan(run: Evacuation, names: Sequence[str], since: t.Optional[Moment] = None) -> Shares:
    """Return the shares of these hosts, the one that the task runs on among them. The fleet was asked, and the evidence taken.

    Raises L(InvalidArgument) for a host of which nothing is known.

    :arg since: when the evidence was there. Facts that were received later count, however long the slowest host took to tell its own.
    """
    survivors = _survivors(run, names, since)
    for job in run.open_jobs():
        _judge(job, run, survivors)
    return share_out(run.open_jobs(), survivors, run.context.wish.force)


def _judge(job: Job, run: Evacuation, survivors: Survivors) -> None:
    try:
        if job.uuid in survivors.pinned:
            return
        if run.fleet.is_active_at(job.uuid, run.here):
            raise Unsafe(f"Domain {job.name} is active on {run.context.here}, which answers. It was not started.", "Protect that host.")
        d.decide_record(job, run.fleet)
        d.check_covered(job, run.fleet, run.proofs, source_counts=run.check and run.proofs.would_fence)
    except KvmfleetError as error:
        job.error = error


def _survivors(run: Evacuation, names: Sequence[str], since: t.Optional[Moment]) -> Survivors:
    settings, entries = run.context.settings, run.entries
    known_since = {name: settings.facts_since(name, since) if since else None for name in settings.fleet()}
    facts = {name: told or settings.fresh_facts(name) for name, told in known_since.items() if name != run.source.name}
    facts[run.context.here] = run.seen["facts"]
    silent = [f"{name} ({settings.why_stale(name)})" for name in names if not facts.get(name)]
    if silent:
        raise InvalidArgument(f"The facts that a plan needs are missing: {', '.join(silent)}.", "Run kvmfleet.migration.host_facts there first.")
    known = {name: told for name, told in facts.items() if told}
    records = list(run.context.ledger.records(unsettled_only=True))
    states = {
        name: HostState.of(name, told, records, entry_of(entries, name, told["host_uuid"], told.get("host_id")), settings.scheduler(name))
        for name, told in known.items()
    }
    ids = {name: _host_id(entries, name, known[name]) for name in names}
    present = {name: frozenset(domain["uuid"] for domain in known[name]["domains"]) for name in names}
    return Survivors(states, ids, present, {job.uuid: host for job in run.jobs for host in names if _has_begun(job, known[host], ids[host])})


def _host_id(entries: Sequence[Body], name: str, facts: t.Mapping[str, t.Any]) -> str:
    """Return the host ID by which others were told what the host sees; empty for a host that has none, and that the ledger does not know."""
    return str(facts.get("host_id") or known_id(entries, name, facts["host_uuid"]) or "")


def _has_begun(job: Job, facts: t.Mapping[str, t.Any], host_id: str) -> bool:
    record = job.candidate.record
    if record is None or record["type"] != s.EVACUATION or record["status"] not in _HELD or not same_host(record["source"], job.source.place):
        return False
    return same_host(record["destination"], {"host": None, "host_id": host_id, "host_uuid": facts["host_uuid"]})
