# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(evacuate) returns. Never a definition: it may hold passwords."""

from __future__ import annotations

import typing as t

from .._facts_age import Moment
from .._ledger.store import Body
from .._protect.answer import age_seconds
from .job import Job
from .placing import Shares
from .run import Evacuation

_STARTED = ("done", "completed")


def result_of(run: Evacuation, diff: bool) -> Body:
    """Return the task's result: all records, a truthful C(changed), what was left out and why, and of several failures the first one's code."""
    records = [job.record for job in run.jobs if job.record]
    result: Body = {"changed": any(job.changed for job in run.jobs), "evacuations": [*records, *run.before], **lists_of(run)}
    if run.proofs.documents:
        result["evidence"] = run.proofs.documents
    if diff:
        result["diff"] = _diff(run)
    return {**result, **failures_of(run)}


def lists_of(run: Evacuation) -> Body:
    """Return the domains that are not started, and why; and how old what was saved of each is."""
    return {
        "source": run.source.place,
        "not_selected": run.not_selected,
        "lost_until_return": [{**job.as_entry(), "reasons": job.lost} for job in run.jobs if job.lost],
        "unaccounted": run.unaccounted,
        "missing_records": run.missing_records,
        "ages": {job.name: age_seconds(job.saved.get("at")) for job in run.jobs},
    }


def failures_of(run: Evacuation) -> Body:
    """Return C(failed), C(msg), C(error_code) and C(failures), or nothing where nothing failed.

    A disk that only the dead host had is no failure, unless its domain was asked for by name.
    """
    errors = [{"domain": job.name, "uuid": job.uuid, "msg": str(job.error), "error_code": job.error.error_code} for job in run.jobs if job.error]
    if run.context.wish.domains is not None:
        errors += [_lost(job) for job in run.jobs if job.lost]
    else:
        errors += [_damaged(run, uuid) for uuid in run.damaged]
    if not errors:
        return {}
    first = errors[0]["msg"]
    msg = first if len(errors) == 1 else f"{len(errors)} domains were not evacuated: {' '.join(error['msg'] for error in errors)}"
    return {"failed": True, "msg": msg, "error_code": errors[0]["error_code"], "failures": errors}


def looked(run: Evacuation) -> Body:
    """Return what a first look has found: the domains that would be started, and all that would not."""
    domains = [{**job.as_entry(), "wanted_state": job.wanted} for job in run.open_jobs()]
    damaged = [{"uuid": uuid, "name": uuid, "reason": _damaged(run, uuid)["msg"]} for uuid in run.damaged]
    return {"changed": False, **lists_of(run), "domains": domains, "refused": [*(_refused(job) for job in run.jobs if job.error), *damaged]}


def proved(run: Evacuation, since: Moment) -> Body:
    """Return what the evidence leaves to be started, the evidence, and when it was there: what hosts tell later may be planned with."""
    return {**looked(run), "evidence": run.proofs.documents, "since": dict(since), "changed": bool(run.proofs.documents) and not run.check}


def planned(run: Evacuation, shares: Shares) -> Body:
    """Return the plan with its evidence."""
    uncovered = [{**one, "reason": " ".join(f"{host}: {why}" for host, why in sorted(one["reasons"].items()))} for one in shares.uncovered]
    return {**looked(run), "evidence": run.proofs.documents, "shares": dict(shares.by_host), "uncovered": uncovered, "changed": False}


def _refused(job: Job) -> Body:
    return {"uuid": job.uuid, "name": job.name, "reason": str(job.error)}


def _lost(job: Job) -> Body:
    why = "; ".join(job.lost)
    return {"domain": job.name, "uuid": job.uuid, "msg": f"Domain {job.name} is lost until {job.source.name} returns: {why}.", "error_code": "unsafe"}


def _damaged(run: Evacuation, uuid: str) -> Body:
    msg = (
        f"The ledger's document of domain {uuid} was damaged and set aside: the domain may have been on {run.source.name}, and was not started. "
        "Put the document back from a copy, or protect the host that has the domain."
    )
    return {"domain": None, "uuid": uuid, "msg": msg, "error_code": "internal"}


def _diff(run: Evacuation) -> dict[str, t.Any]:
    """Return where each domain may be, before and after."""
    started = [job for job in run.jobs if job.record and (job.record["status"] in _STARTED or (run.check and job.prediction))]
    before = "".join(f"{job.name}: {', '.join(str(place.get('host')) for place in job.candidate.places)}\n" for job in started)
    return {"before": before, "after": "".join(f"{job.name}: {run.context.here}\n" for job in started)}
