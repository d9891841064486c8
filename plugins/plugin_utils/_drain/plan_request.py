# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The work of drain_plan: makes and saves the plan for all hosts of the play, or checks a saved plan."""

from __future__ import annotations

import json
import os
import typing as t
from collections.abc import Mapping
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._files import publish_file
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import ResourceMaps

from .._ledger.host_entries import read_hosts
from .._ledger.ledger import Ledger
from .._settings.scheduler import check_failover_hosts
from .._settings.variables import Settings
from .answers import HostQuery, check_answered, check_rights, collect_facts, read_answers, read_silence, readable_facts
from .cordon import Cordon
from .drift import apply_saved_plan
from .inputs import DrainInputs, DrainOptions
from .plan import make_plan
from .records import read_completed, read_unsettled
from .saved_plan import DrainPlan
from .strategy_options import GivenStrategies, StrategyOptions

HISTORY_SECONDS = 30 * 86400


@dataclass(frozen=True)
class HostVariables:
    """The variables that a plan depends on, as a host of the play sees them: only its own tasks see the variables of its play.

    :arg scheduler: C(kvmfleet_scheduler).
    :arg policy: C(kvmfleet_migration_policy).
    :arg profiles: C(kvmfleet_profiles).
    :arg resource_maps: C(kvmfleet_bridge_map) and the like, if the host has any.
    """

    scheduler: Json
    policy: Json
    profiles: Json
    resource_maps: t.Union[ResourceMaps, Absent] = ABSENT


@dataclass(frozen=True)
class _HostSurvey:
    """The result of C(host) for the drain of a host: its own variables, and its cordon; null if it was not cordoned."""

    cordon: t.Optional[Cordon]
    settings: Maybe[HostVariables] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _HostResult:
    """What C(host) has returned on a host; nothing where it failed."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"survey": "_drain"}

    survey: Maybe[_HostSurvey] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _PlanWork:
    """The results of earlier tasks of the role: C(host) by host, and the loop that gathered facts of hosts."""

    hosts: Maybe[Mapping[str, t.Optional[_HostResult]]] = ABSENT
    asked: Maybe[tuple[HostQuery, ...]] = ABSENT

    def surveys(self) -> dict[str, _HostSurvey]:
        """Return the answers of hosts, by name."""
        return {name: result.survey for name, result in (self.hosts or {}).items() if result and result.survey}


@dataclass(frozen=True)
class PlanTask:
    """The options of C(drain_plan)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    sources: tuple[str, ...]
    candidates: tuple[str, ...]
    options: t.Optional[JsonObject]
    parallel: Json
    n_plus_one: Json
    strategies: Json
    shut_off: Json
    restart: Json
    save_folder: Json
    check_saved: t.Optional[bool]
    plan: Json
    file: t.Optional[str]
    only: t.Optional[bool]
    publish_as: t.Optional[str]
    ledger: t.Optional[str]
    work: t.Optional[_PlanWork]

    def given_options(self) -> JsonObject:
        """Return the arguments of L(DrainOptions.from_values) that the task gives; with C(check_saved) what is not given is as in the saved plan."""
        given = vars(GivenStrategies(self.strategies, self.shut_off, self.restart, self.save_folder or None))
        if self.check_saved:
            defaults = vars(StrategyOptions())
            differing = {key: value for key, value in given.items() if value is not None and value != encode(defaults[key])}
            return {**differing, **({"options": self.options} if self.options else {}), **({"n_plus_one": True} if self.n_plus_one else {})}
        return {"parallel": self.parallel, "n_plus_one": self.n_plus_one, "options": self.options, **given}


@dataclass(frozen=True)
class PlanRequest:
    """The request for a plan.

    :arg given: see L(PlanTask.given_options).
    :arg only: whether only a plan is wanted, and nothing will be carried out.
    :arg cordons: of the hosts that were cordoned for this drain, by name.
    :arg variables: by host of the play, its variables as the host's own tasks see them.
    :arg answers: the facts of hosts that were queried; None of a host that did not answer.
    :arg silence: why hosts did not answer.
    :arg role: the role whose variables name the saved plan; C(made_by) is how it makes one.
    """

    sources: tuple[str, ...]
    candidates: tuple[str, ...]
    given: JsonObject
    saved: Json = None
    path: str | None = None
    only: bool = False
    check_saved: bool = False
    cordons: Mapping[str, Cordon] = field(default_factory=dict)
    variables: Mapping[str, HostVariables] = field(default_factory=dict)
    answers: Mapping[str, JsonObject | None] = field(default_factory=dict)
    silence: Mapping[str, str] = field(default_factory=dict)
    role: str = "drain_host"
    made_by: str = "drain_host_plan_only"

    @classmethod
    def from_task(cls, task: PlanTask) -> PlanRequest:
        """Return the request of a task with these options."""
        work = task.work or _PlanWork()
        surveys, asked = work.surveys(), work.asked or ()
        return cls(
            sources=task.sources,
            candidates=task.candidates,
            given=task.given_options(),
            saved=task.plan or None,
            path=real_path(task.file),
            only=bool(task.only),
            check_saved=bool(task.check_saved),
            cordons={name: survey.cordon for name, survey in surveys.items() if survey.cordon},
            variables={name: survey.settings for name, survey in surveys.items() if survey.settings},
            answers=read_answers(asked),
            silence=read_silence(asked),
        )

    def check_options(self) -> None:
        """Raise L(InvalidArgument) for options that contradict each other, L(NotFound) for a saved plan that does not exist."""
        if self.only and self.check_saved:
            raise InvalidArgument(f"A plan is either made ({self.made_by}) or applied ({self.role}_plan_apply).", "Nothing was changed.")
        if self.check_saved and (self.path is None) == (self.saved is None):
            raise InvalidArgument(
                f"Give the plan that is to be applied: its file ({self.role}_plan_file), or the plan itself ({self.role}_plan), and not both.",
                "Nothing was changed.",
            )
        if self.check_saved and self.path is not None and not os.path.isfile(self.path):
            raise NotFound(
                f"There is no plan in {self.path} on the control node.",
                f"Create one with {self.made_by} and the same {self.role}_plan_file. Nothing was changed.",
            )

    def resolve_plan(self, inputs: DrainInputs) -> DrainPlan:
        """Return the plan: a new one, or the saved one if it still applies. Raises what L(make_plan) and L(apply_saved_plan) raise."""
        check_answered(self.sources, self.silence)
        with readable_facts():
            if not self.only:
                check_rights(self.sources, inputs.hosts)
            if self.check_saved:
                return apply_saved_plan(self.read_saved(), inputs, self.sources, self.candidates, self.given)
            return make_plan(inputs, self.sources, self.candidates, DrainOptions.from_values(**self.given))

    def read_saved(self) -> Json | bytes:
        """Return the saved plan. Raises L(Forbidden) for a file that cannot be read."""
        if self.path is None:
            return self.saved
        try:
            with open(self.path, "rb") as stream:
                return stream.read()
        except OSError as error:
            raise Forbidden(f"The plan in {self.path} cannot be read: {error.strerror}.", "Nothing was moved.") from error


def real_path(file: str | None) -> str | None:
    """Return the path of the file on the control node that an option names; None if it names none."""
    return os.path.realpath(os.path.expanduser(file)) if file else None


def read_inputs(request: PlanRequest, settings: Settings, ledger: Ledger | None) -> DrainInputs:
    """Return the input of the plan: the facts, the ledger, and the variables of the hosts."""
    names = [*request.sources, *request.candidates]
    variables = {name: _find_host_variables(name, request, settings) for name in names if name in request.variables or settings.is_known(name)}
    hosts = read_hosts(ledger)
    inputs = DrainInputs(
        collect_facts(names, settings.facts, request.answers),
        entries=hosts.entries,
        records=read_unsettled(ledger),
        unreachable={name: why for name, why in request.silence.items() if name not in request.sources},
        scheduler={name: values.scheduler for name, values in variables.items()},
        history=() if request.check_saved else read_completed(ledger, HISTORY_SECONDS),
        policies={name: values.policy for name, values in variables.items()},
        profiles={name: values.profiles for name, values in variables.items()},
        resource_maps={name: values.resource_maps for name, values in variables.items() if values.resource_maps},
        unreadable=hosts.unreadable,
        ledger_id=ledger.ledger_id if ledger else ABSENT,
    )
    return _with_documents(inputs, settings, ledger) if inputs.failover_hosts else inputs


def _with_documents(inputs: DrainInputs, settings: Settings, ledger: Ledger | None) -> DrainInputs:
    """Return the input with what the reserve for failover is judged by. Raises L(InvalidArgument) if the fleet is too small for it."""
    check_failover_hosts(inputs.failover_hosts, len({*settings.fleet(), *inputs.scheduler}))
    return replace(inputs, documents=[document.domain for document in ledger.list_domains()] if ledger else ())


def read_host_variables(host: str, settings: Settings) -> HostVariables:
    """Return the variables of a host that a plan depends on."""
    scheduler, policy, profiles = (settings.of(host, variable, {}) for variable in ("kvmfleet_scheduler", "kvmfleet_migration_policy", "kvmfleet_profiles"))
    return HostVariables(scheduler, policy, profiles, settings.resource_maps(host) or ABSENT)


def save_plan(plan: DrainPlan, path: str, check_mode: bool) -> bool:
    """Write the plan to a file that its owner alone can read; return whether that changes it. Raises L(Forbidden)."""
    content = f"{json.dumps(encode(plan), indent=4, sort_keys=True)}\n".encode()
    try:
        if os.path.isfile(path) and _read_content(path) == content:
            return False
        if not check_mode:
            publish_file(path, content, 0o600)
        return True
    except OSError as error:
        raise Forbidden(f"The plan could not be written to {path}. {error.strerror}.", "Nothing was moved.") from error


def check_n_plus_one(plan: DrainPlan) -> None:
    """Raise L(Conflict) for a plan that has to satisfy N+1, and does not."""
    spare = plan.n_plus_one
    if plan.options.n_plus_one and spare and not spare.holds:
        raise Conflict(
            f"After this drain the loss of {spare.host} could not be compensated: {spare.missing_mib} MiB would be missing for {', '.join(spare.domains)}.",
            "Nothing was moved. Free memory, add candidates, or drain without drain_host_n_plus_one.",
        )


def _find_host_variables(host: str, request: PlanRequest, settings: Settings) -> HostVariables:
    return request.variables.get(host) or read_host_variables(host, settings)


def _read_content(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
