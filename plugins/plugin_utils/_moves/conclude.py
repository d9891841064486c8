# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a job comes to: its last record, its error, and whether it goes on as a new move."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Facts, Job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.verdict import error_of


def conclude(job: Job) -> None:
    """Take the result of a move that was followed from its record."""
    if job.error or not job.mirror:
        return
    job.record = job.mirror.record
    job.moved = job.record["status"] == s.COMPLETED and job.was_at_source
    job.error = error_of(job.record)


def goes_on(job: Job) -> bool:
    """Whether this was an earlier move that was only settled now, and did not bring the domain where it is wanted."""
    if job.mirror is None or job.record is None or job.record["status"] not in s.CLOSED:
        return False
    if job.record["status"] == s.COMPLETED:
        return job.request.destination not in (None, job.record["destination"]["host"])
    if isinstance(job.decision, d.Conclude):
        return True
    if isinstance(job.decision, d.Observe):
        return bool(job.record["reason"] == s.REASON_CONTROLLER_LOST)
    was_in_flight = job.domain["found"] and job.domain["info"]["view"]["job"] != "none"
    return isinstance(job.decision, d.Adopt) and not was_in_flight


def already_there(context: Context, survey: Facts, job: Job, decision: d.AlreadyThere) -> schema.Record:
    """Return the record of the move that brought the domain there, or one without an id that says that it is there."""
    document = context.ledger.domain(decision.uuid)
    last = document.body.get("last_record") if document else None
    if last:
        record = context.ledger.get(last).record
        if record["status"] == s.COMPLETED and record["destination"]["host"] == decision.host:
            return record
    there = survey["destinations"][job.request.uris[decision.host]]
    record = schema.new_record(
        s.LIVE_MIGRATION,
        domain={"uuid": decision.uuid, "name": job.request.name},
        source=schema.place(None),
        destination=schema.place(decision.host, there.get("host_id"), there["host_uuid"]),
        policy=job.request.policy,
        by=context.by,
    )
    schema.advance(record, s.COMPLETED, context.by, "The domain was there already.")
    record["id"] = None
    return record
