# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The common part of the action plugins that evacuate: an evacuation from the options of a task, its phases on the host, and its result.

A result never contains a definition, because a definition may contain passwords.
"""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import list_name_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import RunProcess

from .ansible_probe import AnsibleProbe, make_probe
from .detection import read_detection
from .evacuation import Evacuation
from .job import EvacuationContext, EvacuationJob, EvacuationTask, ListedDomain, check_numbers
from .plan import Shares
from .restart_limit import RestartLimit
from .result import EvacuationPlan, HostLabel
from .source import age_seconds

_STARTED_STATUSES = ("done", "completed")


@dataclass(frozen=True)
class DomainFailure:
    """A domain that was not evacuated, and why. C(domain) is its name, null if it is not known."""

    domain: t.Optional[str]
    uuid: str
    msg: str
    error_code: str


def build_result(run: Evacuation, diff: bool) -> JsonObject:
    """Return the task's result: all records, C(changed), the skipped domains with reasons, and of several failures the code of the first."""
    records = [encode(job.record) for job in run.jobs if job.record]
    skipped = encode(replace(build_assessment(run), refused=ABSENT))
    skipped.pop("domains")
    result: Result = {"changed": run.proofs.has_fenced or any(job.changed for job in run.jobs), "evacuations": [*records, *encode(run.before)], **skipped}
    if run.proofs.all_evidence:
        result["evidence"] = encode(run.proofs.all_evidence)
    if diff:
        result["diff"] = _diff_hosts(run)
    return {**result, **list_failures(run)}


@contextlib.contextmanager
def note_fencing(run: Evacuation) -> Iterator[None]:
    """Have an error in this context say that something was changed if the source was switched off before it."""
    try:
        yield
    except KvmfleetError as error:
        error.result["changed"] = run.proofs.has_fenced or error.result.get("changed", False)
        raise


def build_assessment(run: Evacuation) -> EvacuationPlan:
    """Return the domains that would be started, those that would not, with reasons, and the age of what was saved of each."""
    # Whether a document that cannot be read is that of a named domain is not known.
    is_whole = run.context.options.domains is None
    unreadable = [ListedDomain(one.uuid, one.uuid, reason=one.msg) for one in _list_unreadable(run)] if is_whole else []
    return EvacuationPlan(
        source=decode(HostLabel, encode(run.source.host_ref)),
        not_selected=tuple(run.not_selected),
        lost_until_return=tuple(replace(job.as_entry(), reasons=tuple(job.lost)) for job in run.jobs if job.lost),
        unaccounted=decode(tuple[ListedDomain, ...], encode(run.unaccounted)),
        missing_records=tuple(encode(run.missing_records)),
        ages={job.name: age_seconds(job.saved.at or None) for job in run.jobs},
        domains=tuple(replace(job.as_entry(), wanted_state=job.wanted) for job in run.open_jobs()),
        refused=(*(ListedDomain(job.uuid, job.name, reason=str(job.error)) for job in run.jobs if job.error), *unreadable),
    )


def list_failures(run: Evacuation) -> JsonObject:
    """Return C(failed), C(msg), C(error_code) and C(failures), or nothing if nothing failed.

    A disk that only the dead host had is not a failure, unless its domain was named in the task.
    """
    errors = _list_errors(run.jobs)
    if run.context.options.domains is not None:
        errors += [_lost_failure(job) for job in run.jobs if job.lost]
    else:
        errors += _list_unreadable(run)
    return _describe_failures(errors, "evacuated")


def build_settled(jobs: Sequence[EvacuationJob]) -> JsonObject:
    """Return the result of a task that settles what an earlier run has begun: a record that is still unsettled is a failure, a failed start is not."""
    failed = _list_errors(job for job in jobs if job.record is None or job.record.is_unsettled)
    records = [encode(job.record) for job in jobs if job.record]
    return {"changed": bool(records), "evacuations": records, **_describe_failures(failed, "settled")}


def _list_errors(jobs: Iterable[EvacuationJob]) -> list[DomainFailure]:
    return [DomainFailure(job.name, job.uuid, str(job.error), job.error.error_code) for job in jobs if job.error]


def _describe_failures(errors: Sequence[DomainFailure], what: str) -> JsonObject:
    if not errors:
        return {}
    msg = errors[0].msg if len(errors) == 1 else f"{len(errors)} domains were not {what}: {' '.join(error.msg for error in errors)}"
    return {"failed": True, "msg": msg, "error_code": errors[0].error_code, "failures": encode(errors)}


def add_proof(run: Evacuation, since: BootMoment) -> EvacuationPlan:
    """Return the domains to start under the evidence, the evidence, and its time: facts received later may be used for the plan."""
    return replace(build_assessment(run), evidence=tuple(encode(run.proofs.all_evidence)), since=encode(since))


def add_shares(run: Evacuation, shares: Shares) -> EvacuationPlan:
    """Return the plan with its evidence."""
    by_host = {host: tuple(uuids) for host, uuids in shares.by_host.items()}
    return replace(build_assessment(run), evidence=tuple(encode(run.proofs.all_evidence)), shares=by_host, uncovered=tuple(shares.uncovered))


def _lost_failure(job: EvacuationJob) -> DomainFailure:
    why = "; ".join(job.lost)
    return DomainFailure(job.name, job.uuid, f"Domain {job.name} is lost until {job.source.name} returns: {why}.", "unsafe")


def _list_unreadable(run: Evacuation) -> Iterator[DomainFailure]:
    """Yield the domains whose document cannot be read: nobody knows whether they were on the source."""
    for uuid in run.domains.damaged:
        msg = f"The ledger's document of domain {uuid} was damaged and set aside: {_may_have_been_on(run)}"
        yield DomainFailure(None, uuid, f"{msg} Put the document back from a copy, or protect the host that has the domain.", "internal")
    for uuid in run.domains.newer:
        msg = f"The ledger's document of domain {uuid} was written by a later version: {_may_have_been_on(run)}"
        yield DomainFailure(None, uuid, f"{msg} Update the collection on this control node, and evacuate the host again.", "not_supported")


def _may_have_been_on(run: Evacuation) -> str:
    return f"the domain may have been on {run.source.name}, and was not started."


def _diff_hosts(run: Evacuation) -> JsonObject:
    """Return where each domain may be, before and after, and what differs in its definition there."""
    started = [job for job in run.jobs if job.record and (job.record.status in _STARTED_STATUSES or (run.check and job.prediction))]
    before, after = list[str](), list[str]()
    for job in started:
        record = t.cast(JsonObject, encode(job.record))
        before += [f"{job.name}: {', '.join(str(host.host) for host in job.candidate.possible_hosts)}\n", *list_name_lines(record, "before")]
        after += [f"{job.name}: {run.context.target_host}\n", *list_name_lines(record, "after")]
    return {"before": "".join(before), "after": "".join(after)}


@dataclass(frozen=True)
class _Order:
    """A restart order. Its definition is sent separately."""

    uuid: str
    definition: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _Orders:
    orders: Maybe[tuple[_Order, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)


class EvacuationAction(FleetAction):
    """An action plugin whose module has the phases of C(evacuate)."""

    _definitions: t.Mapping[str, Maybe[str]] = {}

    def prepare_evacuation(self, task: EvacuationTask, task_vars: Result, connects_as_ansible: bool = False) -> Evacuation:
        """Return the evacuation that a task asks for. Raises L(InvalidArgument) for invalid options, L(NotFound) for an unknown source.

        :arg connects_as_ansible: whether it tries to connect to the source as Ansible does, too.
        """
        check_numbers(task.parallel, task.lock_wait_seconds)
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)
        ledger = self.attach_notifier(open_ledger(*location, create=False), settings, target_host, location)
        warnings = list[str]()
        context = EvacuationContext(
            ledger=ledger,
            settings=settings,
            target_host=target_host,
            uri=task.uri,
            by=describe_actor(task_vars),
            options=task,
            phase=lambda phase, work: self._run_evacuation_phase(phase, work, task.uri, task_vars),
            run_process=RunProcess(),
            warnings=warnings,
            make_probe=(lambda host: self.make_probe(host, task_vars)) if connects_as_ansible else None,
            restart_limit=RestartLimit.from_option(task.restart_limit or None),
            detection=read_detection(task.detection or None, warnings=warnings),
            show=lambda line: None if self._task.no_log else Display().display(f"[{task.source}] {line}"),
        )
        return Evacuation(context, self._task.check_mode)

    def make_probe(self, host: str, task_vars: Result) -> AnsibleProbe:
        """Return an attempt to connect to a host of the inventory as Ansible does."""
        return make_probe(self, host, task_vars)

    def with_warnings(self, run: Evacuation, result: JsonObject) -> JsonObject:
        """Return the result of the task with all its warnings."""
        warnings = list(dict.fromkeys([*run.context.warnings, *run.proofs.warnings, *run.context.ledger.problems]))
        return {**result, "warnings": warnings} if warnings else result

    def _run_evacuation_phase(self, phase: str, work: JsonObject, uri: str, task_vars: Result) -> Result:
        """Run a phase. Definitions go to the host in an option of their own, which nothing logs or prints."""
        orders = decode(_Orders, work).orders or ()
        self._definitions = {order.uuid: order.definition for order in orders}
        given = {**work, "orders": [encode(replace(order, definition=ABSENT)) for order in orders]} if orders else work
        try:
            return self.run_phase(phase, given, uri, task_vars, is_secret=bool(orders))
        finally:
            self._definitions = {}

    def _execute_module(self, *args: t.Any, **kwargs: t.Any) -> Result:
        """Run a module with the options that it requires, and with the definitions. The signature is that of Ansible's method."""
        if "module_args" in kwargs:
            required = {option: self._task.args.get(option) for option, one in self.argument_spec().items() if one.get("required")}
            more = {**required, **({"_definitions": self._definitions} if self._definitions else {})}
            kwargs = {**kwargs, "module_args": {**kwargs["module_args"], **more}}
        return t.cast("Result", super()._execute_module(*args, **kwargs))
