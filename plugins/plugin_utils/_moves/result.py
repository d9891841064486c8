# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(live_migrate) returns for its jobs."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Job

Result = dict[str, t.Any]


def result_of(jobs: Sequence[Job], warnings: list[str], missing: Sequence[Result], diff: bool) -> Result:
    """Return the task's result: all records, a truthful C(changed), and of several failures the first one's code.

    :arg missing: moves that hosts remember and the ledger is behind.
    """
    migrations: list[Result] = []
    for job in jobs:
        migrations += [job.record] if job.record else (job.error.result.get("migrations", []) if job.error else [])
    result: Result = {"changed": any(job.moved for job in jobs), "migrations": migrations, "missing_records": list(missing)}
    if warnings:
        result["warnings"] = warnings
    if diff:
        result["diff"] = _diff(migrations)
    errors = [(job, job.error) for job in jobs if job.error]
    if errors:
        result.update(failed=True, msg=_message(errors, len(jobs)), error_code=errors[0][1].error_code)
        result["failures"] = [_failure(job, error) for job, error in errors]
    return result


def _failure(job: Job, error: KvmfleetError) -> Result:
    return {"domain": job.request.label, "uuid": job.domain_uuid, "msg": str(error), "error_code": error.error_code}


def _message(errors: list[tuple[Job, KvmfleetError]], moves: int) -> str:
    first = str(errors[0][1])
    return first if moves == 1 else f"{len(errors)} of {moves} moves failed. {first}"


def _diff(migrations: Sequence[Result]) -> dict[str, str]:
    """Return where each domain was and is, or will be."""
    before = [f"{record['domain']['name']}: {record['source']['host']}\n" for record in migrations]
    arrived = ("completed", "scheduled")
    after = [f"{record['domain']['name']}: {record['destination' if record['status'] in arrived else 'source']['host']}\n" for record in migrations]
    return {"before": "".join(before), "after": "".join(after)}
