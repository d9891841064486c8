# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What every action plugin of the collection is built on: options in, errors as results, and the module's half on the host."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import typing as t
from collections.abc import Iterator

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidArgument, KvmfleetError, Unreachable, error_for_code
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.notices import Notices, notices_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._options import check_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import LedgerPlace, Settings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._task_settings import TaskSettings

Result = dict[str, t.Any]

# A shell's codes for a program that is not there, and for one that it may not run.
_NOT_STARTED = (126, 127)
_NO_INTERPRETER = re.compile(r"python\S*: .*(?:not found|No such file or directory|cannot execute|Permission denied|Exec format error)", re.IGNORECASE)
# What Python says before the module has begun, where nothing can be written: the disk is full, or its file system was made read-only after an error.
_NO_TEMPORARY_FOLDER = re.compile(r"No usable temporary directory found")
_OF_SSH = re.compile(r"(?:Shared c|C)onnection to \S+ closed\.?$")


class FleetAction(ActionBase):
    """An action plugin whose class names its C(MODULE) and returns the module's C(spec); C(act) does the work.

    Each host-side step of a module is a phase: the module itself, called with C(_work).
    """

    TRANSFERS_FILES = False
    MODULE = ""
    _supports_check_mode = True
    _supports_diff = True
    # Refused in act's place, in words and with an error code.
    _supports_async = True
    _notices: Notices | None = None
    _notice_warnings: tuple[str, ...] = ()

    def spec(self) -> Result:
        """Return the argument specification that the module shares."""
        raise NotImplementedError

    def act(self, args: Result, task_vars: Result) -> Result:
        """Return the task's result for these validated options. Raises the errors of the collection."""
        raise NotImplementedError

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run the task. An error of ours becomes C(msg) and C(error_code)."""
        result: Result = super().run(tmp, task_vars)
        try:
            result = {**result, **self.outcome(task_vars or {})}
        except KvmfleetError as error:
            result = {**result, "failed": True, "changed": False, **error.as_result()}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        told = [*self._notice_warnings, *(self._notices.finish() if self._notices else ())]
        if told:
            result["warnings"] = [*result.get("warnings", ()), *told]
        if "warnings" in result:
            result["warnings"] = [printable_text(str(warning)) for warning in result["warnings"]]
        return result

    def outcome(self, task_vars: Result) -> Result:
        """Read the options and act. Raises L(InvalidArgument) for what no option can be, and for C(async)."""
        if self._task.async_val:
            raise InvalidArgument(f"{self.MODULE} does not take the task keyword async.", "Leave async out: it would cut the task in two. Nothing was changed.")
        spec = self.spec()
        check_options(self._task.args, spec)
        try:
            _validation, args = self.validate_argument_spec(spec)
        except AnsibleActionFail as error:
            raise InvalidArgument(f"{str(error).rstrip('.')}.", "Nothing was changed.") from error
        return self.act(args, task_vars)

    def announced(self, ledger: Ledger, settings: Settings, host: str, place: LedgerPlace) -> Ledger:
        """Return the ledger, which from here on tells the receiver in C(kvmfleet_notices) of that host what happens to its records."""
        if not self._task.check_mode:
            self._notices, self._notice_warnings = notices_of(settings, host, ledger, lambda: open_ledger(*place, create=False))
            ledger.witness = self._notices or ledger.witness
        return ledger

    def settings(self, task_vars: Result) -> TaskSettings:
        """Return the collection's variables as this task sees them."""
        return TaskSettings(task_vars, self._loader, self._task.delegate_to)

    def here(self, task_vars: Result) -> str:
        """Return the inventory name of the host that the task runs on."""
        return str(self._task.delegate_to or task_vars["inventory_hostname"])

    def phase(self, phase: str, work: t.Mapping[str, t.Any], uri: str, task_vars: Result, is_secret: bool = False) -> Result:
        """Run one phase of the module on the host. Raises the error it failed with, or L(Unreachable).

        :arg is_secret: whether what the host is told and answers is kept off the screen, at any verbosity.
        """
        host = self.here(task_vars)
        module_args = {"uri": uri, "_work": {**work, "phase": phase}}
        try:
            with self._unspoken() if is_secret else contextlib.nullcontext():
                result = self._execute_module(module_name=f"kvmfleet.migration.{self.MODULE}", module_args=module_args, task_vars=task_vars)
        except AnsibleConnectionFailure as error:
            raise Unreachable(f"{host} cannot be reached: {error}", "Run the task again when it can.") from error
        if result.get("unreachable"):
            raise Unreachable(f"{host} cannot be reached: {result.get('msg')}", "Run the task again when it can.")
        if "error_code" not in result and ("module_stderr" in result or result.get("rc")):
            raise self._unanswered(host, result)
        if result.get("failed") or result.get("rc"):
            raise error_for_code(result.get("error_code", ""))(str(result.get("msg")))
        return t.cast(Result, result)

    @contextlib.contextmanager
    def _unspoken(self) -> Iterator[None]:
        """Keep the connection from printing what goes over it, which it does at high verbosity unless a task has no_log."""
        contexts = [self._play_context, self._connection._play_context]
        before = [context.no_log for context in contexts]
        try:
            for context in contexts:
                context.no_log = True
            yield
        finally:
            for context, value in zip(contexts, before, strict=True):
                context.no_log = value

    def _unanswered(self, host: str, result: Result) -> Internal:
        """Return the error for a module that was killed, that broke, or that no Python has begun."""
        told = [line for key in ("module_stderr", "module_stdout", "msg") for line in _lines(result.get(key))]
        code = result.get("rc")
        if code in _NOT_STARTED or any(_NO_INTERPRETER.search(line) for line in told):
            words = next((line for line in told if _NO_INTERPRETER.search(line)), told[0] if told else "the host said nothing")
            return Internal(
                f"{self.MODULE} could not be started on {host}: {words.rstrip('.')} (exit code {code}).",
                f"Set ansible_python_interpreter of {host} to a Python that runs there, such as /usr/bin/python3. This step has done nothing on the host.",
            )
        last = _last_line(result)
        if _NO_TEMPORARY_FOLDER.search(last):
            return Internal(
                f"{self.MODULE} could not be started on {host}, because nothing can be written there: {last}.",
                f"Free space on {host} (df -h /tmp /var/tmp), or see why its file system is read-only, and run the task again."
                " This step has done nothing on the host.",
            )
        return Internal(
            f"{self.MODULE} ended on {host} before it had answered (exit code {code}): {last}.",
            "What it was about may be done in part. Run the task again: it looks first.",
        )


def _lines(output: t.Any) -> list[str]:
    """Return what was said, without what SSH says of its own connection."""
    return [line.strip() for line in str(output or "").splitlines() if line.strip() and not _OF_SSH.match(line.strip())]


def _last_line(result: Result) -> str:
    told = [_lines(result.get(key)) for key in ("module_stderr", "module_stdout", "msg")]
    return next((lines[-1].rstrip(".") for lines in told if lines), "it said nothing")


def acting() -> str:
    """Return who acts, as records and entries name it: user, control node and process."""
    return f"{getpass.getuser()}@{socket.gethostname()} pid {os.getpid()}"
