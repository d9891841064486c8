# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(live_migrate): decides, keeps the ledger, shows progress. The work itself is in C(plugin_utils/_moves)."""

from __future__ import annotations

import getpass
import os
import socket
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import SourceHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import requests_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.run import Job, MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._progress import ProgressLines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings


class ActionModule(ActionBase):
    """Action plugin of the module of the same name."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True
    # Refused below, in words that say why.
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task. An error of ours becomes C(msg) and C(error_code)."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        try:
            result = {**result, **self._moves(task_vars or {})}
        except KvmfleetError as error:
            result = {**result, "failed": True, "changed": False, **error.as_result()}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _moves(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        if self._task.async_val:
            raise InvalidArgument("live_migrate does not take the task keyword async.", "Leave async out: the move is watched on the source host in any case.")
        args = self._arguments()
        source_name = self._task.delegate_to or task_vars["inventory_hostname"]
        settings = Settings(task_vars)
        requests = requests_of(args, settings, source_name)
        ledger = open_ledger(settings.ledger(source_name, args["ledger"]))
        lines = ProgressLines(lambda line: Display().display(f"[{source_name}] {line}"))
        silent = self._task.no_log or args["progress"] == "none"
        run = MoveRun(
            ledger,
            settings,
            SourceHost(self, task_vars, source_name),
            {"uri": args["uri"]},
            args["parallel"],
            f"{getpass.getuser()}@{socket.gethostname()} pid {os.getpid()}",
            (lambda state: None) if silent else lines.see,
        )
        jobs = run.predict(requests) if self._task.check_mode else run.execute(requests)
        return self._result(jobs, run.warnings + ledger.problems)

    def _arguments(self) -> dict[str, t.Any]:
        try:
            _validation, args = self.validate_argument_spec(live_migrate_spec())
        except AnsibleActionFail as error:
            raise InvalidArgument(str(error), "Nothing was moved.") from error
        return t.cast("dict[str, t.Any]", args)

    def _result(self, jobs: list[Job], warnings: list[str]) -> dict[str, t.Any]:
        migrations: list[dict[str, t.Any]] = []
        for job in jobs:
            migrations += [job.record] if job.record else (job.error.result.get("migrations", []) if job.error else [])
        result: dict[str, t.Any] = {"changed": any(job.moved for job in jobs), "migrations": migrations}
        if warnings:
            result["warnings"] = warnings
        if self._task.diff:
            result["diff"] = _diff(migrations)
        errors = [(job, job.error) for job in jobs if job.error]
        if errors:
            result.update(failed=True, msg=_message(errors, len(jobs)), error_code=errors[0][1].error_code)
            result["failures"] = [_failure(job, error) for job, error in errors]
        return result


def _failure(job: Job, error: KvmfleetError) -> dict[str, t.Any]:
    return {"domain": job.request.label, "uuid": job.domain_uuid, "msg": str(error), "error_code": error.error_code}


def _message(errors: list[tuple[Job, KvmfleetError]], moves: int) -> str:
    first = str(errors[0][1])
    return first if moves == 1 else f"{len(errors)} of {moves} moves failed. {first}"


def _diff(migrations: list[dict[str, t.Any]]) -> dict[str, str]:
    """Return where each domain was and is, or will be."""
    before = [f"{record['domain']['name']}: {record['source']['host']}\n" for record in migrations]
    arrived = ("completed", "scheduled")
    after = [f"{record['domain']['name']}: {record['destination' if record['status'] in arrived else 'source']['host']}\n" for record in migrations]
    return {"before": "".join(before), "after": "".join(after)}
