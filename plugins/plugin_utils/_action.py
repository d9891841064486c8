# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The common part of all action plugins: reads the options, turns errors into results, runs the phases of the module on the host, and prints progress lines.

A move in flight has a line on a change of phase, every 10 %, and at least every 10 seconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
import typing as t
from collections.abc import Iterator

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.eta import estimate_rest, has_settled_rate
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Internal,
    InvalidArgument,
    KvmfleetError,
    NotSupported,
    Unreachable,
    error_for_code,
    printable_line,
    printable_text,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import IdentityAnswer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import FINAL
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._kept_modules import COLLECTION, KeptModuleAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import check_own_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger, describe_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.notices import Notices, open_notices
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.mistyped import find_mistyped, list_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import check_options, drop_aliases
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import LedgerLocation, Settings, TaskSettings

# The options or variables of a task, or the result of a module.
Result = dict[str, Json]

# Exit codes of a shell for a program that does not exist, and for one that it must not run.
_NOT_STARTED_CODES = (126, 127)
_WHEN_REACHED = "Run the task again when the host can be reached."
_NO_INTERPRETER = re.compile(r"python\S*: .*(?:not found|No such file or directory|cannot execute|Permission denied|Exec format error)", re.IGNORECASE)
# Python's message before the module starts, if no file can be written: the disk is full, or its file system was made read-only after an error.
_NO_TEMPORARY_FOLDER = re.compile(r"No usable temporary directory found")
# Of a line of a module that a message repeats.
_MAX_LINE = 300
_SSH_MESSAGE = re.compile(r"(?:Shared c|C)onnection to \S+ closed\.?$")


class FleetAction(KeptModuleAction):
    """An action plugin whose class names its C(MODULE) and returns the module's C(spec); C(act) does the work.

    Each host-side step of a module is a phase: the module itself, called with C(_work).
    """

    TRANSFERS_FILES = False
    MODULE = ""
    _supports_check_mode = True
    _supports_diff = True
    # Refused later, with a message and an error code.
    _supports_async = True
    _notices: Notices | None = None
    _notice_warnings: tuple[str, ...] = ()
    _role_warnings: t.Sequence[str] = ()

    def argument_spec(self) -> Spec:
        """Return the argument specification that the module shares."""
        raise NotImplementedError

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Return the task's result for these validated options. Raises the errors of the collection."""
        raise NotImplementedError

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run the task. An error of the collection becomes C(msg) and C(error_code)."""
        result: Result = super().run(tmp, task_vars)
        try:
            result = {**result, **self.run_with_options(task_vars or {})}
        except KvmfleetError as error:
            result = {**result, "failed": True, "changed": False, **error.as_result()}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        warnings = [*self._role_warnings, *self._notice_warnings, *(self._notices.finish() if self._notices else ())]
        if warnings:
            result["warnings"] = [*_warnings_in(result), *warnings]
        if "warnings" in result:
            result["warnings"] = [printable_text(str(warning)) for warning in _warnings_in(result)]
        return result

    def run_with_options(self, task_vars: Result) -> JsonObject:
        """Read the options and act. Raises L(InvalidArgument) for invalid options, and for C(async)."""
        if self._task.async_val:
            raise InvalidArgument(f"{self.MODULE} does not support the task keyword async.", "Remove async: it would split the task. Nothing was changed.")
        spec = self.argument_spec()
        check_options(self._task.args, spec)
        try:
            _validation, args = self.validate_argument_spec(spec)
        except AnsibleActionFail as error:
            raise InvalidArgument(f"{str(error).rstrip('.')}.", "Nothing was changed.") from error
        return self.run_task(drop_aliases(args, spec), task_vars)

    def attach_notifier(self, ledger: Ledger, settings: Settings, host: str, location: LedgerLocation) -> Ledger:
        """Return the ledger. From now on it sends the changes of its records to the receiver in C(kvmfleet_notices) of that host."""
        if not self._task.check_mode:
            self._notices, self._notice_warnings = open_notices(settings, host, ledger, lambda: open_ledger(*location, create=False))
            ledger.witness = self._notices or ledger.witness
        return ledger

    def check_unprotected(self, uri: str, task_vars: Result) -> None:
        """Raise L(Conflict) if the host was protected, so that the ledger of its fleet is missing or elsewhere: an empty one would hide that."""
        answer = decode(IdentityAnswer, self.run_phase("read", {}, uri, task_vars, module="host"))
        check_own_ledger(self.target_host(task_vars), answer.identity.ledger_id, None)

    def settings(self, task_vars: Result) -> TaskSettings:
        """Return the collection's variables as this task sees them."""
        return TaskSettings(task_vars, self._loader, self._task.delegate_to)

    def target_host(self, task_vars: Result) -> str:
        """Return the inventory name of the host that the task runs on."""
        return str(self._task.delegate_to or task_vars["inventory_hostname"])

    def refuse_free_strategy(self, what_happened: str = "Nothing was changed.") -> None:
        """Raise L(NotSupported) if the hosts of the play do not take each step together, as with C(free), C(host_pinned) and C(mitogen_free)."""
        strategy = str(self._task.get_play().strategy).rpartition(".")[2]
        if strategy.endswith(("free", "host_pinned")):
            raise NotSupported(
                f"The play has strategy: {strategy}, under which no plan can be made for all hosts together.", f"Remove it from the play. {what_happened}"
            )

    def warn_of_mistyped_options(self, task_vars: Result) -> None:
        """Have the result warn of variables that look like a mistyped option of the role of the task. For a task with which a role begins."""
        role = getattr(self._task, "_role", None)
        name = role.get_name() if role else ""
        if role and name.startswith(COLLECTION):
            specs = self._loader.load_from_file(os.path.join(role.get_role_path(), "meta/argument_specs.yml"))
            self._role_warnings = find_mistyped(task_vars, name.removeprefix(COLLECTION), list_options(specs))

    def run_phase(self, phase: str, work: JsonObject, uri: str, task_vars: Result, is_secret: bool = False, module: str | None = None) -> Result:
        """Run one phase of the module on the host. Raises the error it failed with, with its C(migrations) and C(changed), or L(Unreachable).

        :arg is_secret: whether request and answer are hidden at any verbosity.
        :arg module: another module of the collection, whose phase it is.
        """
        host = self.target_host(task_vars)
        module_args = {"uri": uri, "_work": {**work, "phase": phase}}
        with connection_errors(host, _WHEN_REACHED), self._hide_values() if is_secret else contextlib.nullcontext():
            result = self._execute_module(module_name=f"kvmfleet.migration.{module or self.MODULE}", module_args=module_args, task_vars=task_vars)
        if result.get("unreachable"):
            raise Unreachable(_unreached_text(host, str(result.get("msg"))), _WHEN_REACHED)
        if "error_code" not in result and ("module_stderr" in result or result.get("rc")):
            hidden = {"module_stdout": ""} if is_secret else {}
            raise self._unanswered_error(host, {**result, **hidden})
        if result.get("failed") or result.get("rc"):
            kept = {key: result[key] for key in ("migrations", "changed") if key in result}
            raise error_for_code(result.get("error_code", ""))(str(result.get("msg")), **kept)
        return t.cast(Result, result)

    @contextlib.contextmanager
    def _hide_values(self) -> Iterator[None]:
        """Keep the connection from printing its data, which it does at high verbosity, and the host from logging the options, unless a task has no_log."""
        contexts = [self._play_context, self._connection._play_context, self._task]
        before = [context.no_log for context in contexts]
        try:
            for context in contexts:
                context.no_log = True
            yield
        finally:
            for context, value in zip(contexts, before, strict=True):
                context.no_log = value

    def _unanswered_error(self, host: str, result: Result) -> Internal:
        """Return the error for a module that was killed, that crashed, or that no Python could start."""
        lines = [line for key in ("module_stderr", "module_stdout", "msg") for line in _output_lines(result.get(key))]
        code = result.get("rc")
        if code in _NOT_STARTED_CODES or any(_NO_INTERPRETER.search(line) for line in lines):
            words = next((line for line in lines if _NO_INTERPRETER.search(line)), lines[0] if lines else "the host said nothing")
            return Internal(
                f"{self.MODULE} could not be started on {host}: {words.rstrip('.')} (exit code {code}).",
                f"Set ansible_python_interpreter of {host} to a Python that runs there, such as /usr/bin/python3. This step has done nothing on the host.",
            )
        last = _last_line(result)
        if _NO_TEMPORARY_FOLDER.search(last):
            return Internal(
                f"{self.MODULE} could not be started on {host}, because no file can be written there: {last}.",
                f"Free space on {host} (df -h /tmp /var/tmp), or find out why its file system is read-only, then run the task again."
                " This step has done nothing on the host.",
            )
        return Internal(
            f"{self.MODULE} ended on {host} before it had answered (exit code {code}): {last}.",
            "The operation may be incomplete. Run the task again; it checks before it acts.",
        )


@contextlib.contextmanager
def connection_errors(host: str, next_step: str | None = None) -> Iterator[None]:
    """Raise L(Unreachable) if the connection of the block failed, or if this machine has no process, memory or file left for the SSH client now.

    Any other error, such as a rejected password, is raised unchanged: to repeat it could lock the account.
    """
    try:
        yield
    except (AnsibleError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
        if not isinstance(error, AnsibleConnectionFailure) and not isinstance(cause, OSError):
            raise
        why = f"{str(error).rstrip('.')}: {cause}" if isinstance(cause, OSError) and str(cause) not in str(error) else str(error)
        raise Unreachable(_unreached_text(host, why), next_step) from error


def _unreached_text(host: str, why: str) -> str:
    """Return one sentence. The message of SSH, with which Ansible's ends, has no period, and may be empty."""
    return f"{host} cannot be reached: {why.rstrip(' .:')}."


def _warnings_in(result: JsonObject) -> t.Sequence[Json]:
    return t.cast("t.Sequence[Json]", result.get("warnings", ()))


def _output_lines(output: Json) -> list[str]:
    """Return the output without SSH's messages about its own connection, and without a part of the module's answer."""
    lines = (line.strip() for line in str(output or "").splitlines())
    return [line[:_MAX_LINE] for line in lines if line and not line.startswith("{") and not _SSH_MESSAGE.match(line)]


def _last_line(result: Result) -> str:
    outputs = [_output_lines(result.get(key)) for key in ("module_stderr", "module_stdout", "msg")]
    return next((lines[-1].rstrip(".") for lines in outputs if lines), "it said nothing")


# Variables that AWX sets in each of its jobs; earlier versions and Ansible Tower have the second prefix only.
_AWX_PREFIXES = ("awx", "tower")
_MAX_ACTOR_PART = 100


def describe_actor(task_vars: t.Mapping[str, Json]) -> str:
    """Return the actor for records and entries: user, control node and process, and in a job of AWX also AWX's user and job.

    E.g. C(root@control pid 4711), or C(root@awx-task pid 17, AWX user ann, job 42).
    """
    actor = describe_process()
    user, job = (_read_awx_value(task_vars, name) for name in ("user_name", "job_id"))
    in_awx = ", ".join([*([f"user {user}"] if user else []), *([f"job {job}"] if job else [])])
    return f"{actor}, AWX {in_awx}" if in_awx else actor


def _read_awx_value(task_vars: t.Mapping[str, Json], name: str) -> str:
    """Return AWX's value of that name on one line; empty for none, and for anything but a text or a number."""
    values = (task_vars.get(f"{prefix}_{name}") for prefix in _AWX_PREFIXES)
    plain = (str(value) for value in values if isinstance(value, (str, int)) and not isinstance(value, bool))
    return next((printable_line(text.strip())[:_MAX_ACTOR_PART] for text in plain if text.strip()), "")


MIB = 1024**2
EVERY_SECONDS = 10.0
EVERY_PERCENT = 10
# For a move that waits for its admission.
EVERY_WAITING_SECONDS = 30.0


# From this number of open moves on, lines have the time until all of them will have ended.
_SEVERAL = 2


def progress_line(record: MoveRecord, waits_for: str | None = None, beside: t.Sequence[MoveRecord] = ()) -> str:
    """Return one line on a move, e.g. C(kvm1 -> kvm2  web1  running  62 %  312 MiB left  940 MiB/s  dirty 210 MiB/s  pause <= 95 ms  eta 8 s).

    :arg waits_for: what the move waits for, a phrase.
    :arg beside: all moves of the run that are left; of several, the line ends e.g. with C(5 moves left: eta 34 s).
    """
    rest = estimate_rest(beside) if len(beside) >= _SEVERAL else None
    parts = [f"{record.source.label} -> {record.destination.label}", record.domain.name or record.domain.uuid, record.status]
    if record.reason:
        parts.append(f"({record.reason})")
    if waits_for:
        parts.append(waits_for)
    elif record.status.startswith("running") and record.progress.memory_total_bytes:
        parts += _figure_texts(record, rest)
    elif record.result.elapsed_ms is not None:
        parts.append(f"{record.result.elapsed_ms / 1000:.1f} s")
    elif record.turn:
        until = f" until {record.turn.until}" if record.turn.until else ""
        parts.append(f"waits for its turn{until}: {record.turn.waits_for}")
    if record.result.downtime_ms is not None:
        parts.append(f"paused {record.result.downtime_ms} ms")
    if len(beside) >= _SEVERAL:
        parts.append(f"{len(beside)} moves left: eta {'unknown' if rest is None else f'{rest} s'}")
    return printable_line("  ".join(parts))


def _figure_texts(record: MoveRecord, rest: int | None) -> list[str]:
    """:arg rest: the seconds until all moves of the run will have ended, if known: at its rate of now, a move that shares its link seems to last longer."""
    progress = record.progress
    left = progress.memory_remaining_bytes + progress.disk_remaining_bytes
    rate = progress.bandwidth_bytes
    parts = [f"{progress.percent} %", f"{left // MIB} MiB left", f"{rate // MIB} MiB/s", f"dirty {progress.dirty_rate_bytes // MIB} MiB/s"]
    if record.samples:
        parts.append(f"pause <= {record.samples[-1].allowed_downtime_ms} ms")
    net = rate - progress.dirty_rate_bytes
    # If the guest writes nearly as fast as the link transfers, the quotient is meaningless.
    is_known = net > rate / 10 and has_settled_rate(record)
    parts.append(f"eta {left // net if rest is None else min(left // net, rest)} s" if is_known else "eta unknown")
    return parts


class ProgressLines:
    """Decides which states become lines, and passes these to C(show)."""

    def __init__(self, show: t.Callable[[str], None], clock: t.Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._last: dict[str, tuple[tuple[str, int, bool], float]] = {}
        # The newest record of each move that has not ended.
        self._open: dict[str, MoveRecord] = {}

    def show_record(self, record: MoveRecord, waits_for: str | None = None) -> None:
        """Print a line on this record if one is due.

        :arg waits_for: what the move waits for, a phrase.
        """
        self._open[record.record_id] = record
        if record.status in FINAL:
            del self._open[record.record_id]
        now, waits = self._clock(), bool(record.turn or waits_for)
        shown = (record.status, record.progress.percent // EVERY_PERCENT, waits)
        every = EVERY_SECONDS if record.status.startswith("running") else EVERY_WAITING_SECONDS if waits else math.inf
        last = self._last.get(record.record_id)
        if last and last[0] == shown and now - last[1] < every:
            return
        self._last[record.record_id] = (shown, now)
        self._show(progress_line(record, waits_for, list(self._open.values())))
