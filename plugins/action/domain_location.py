# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(domain_location) checks what somebody has given to a playbook for one domain, and finds the host on which its task must run.

The ledger names the source of a move that is not settled. For anything else, the hosts are asked: only they know where a domain is.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Mapping

from ansible.utils.vars import load_extra_vars

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import (
    FOR_ABORT,
    FOR_CHECK,
    FOR_FORCE_COMPLETE,
    FOR_MIGRATE,
    FOR_POLICY,
    LOCATE_CHECK,
    Spec,
    domain_location_spec,
    domain_policy_spec,
    migration_abort_spec,
    migration_force_complete_spec,
    move_spec,
    scheduler_check_spec,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import TaskResult
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import LedgerInEmergency, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import to_plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import read_options, readable_results, use_own_names

# Of these, what matters is the host that moves the domain away.
_ABOUT_MOVES = (FOR_ABORT, FOR_FORCE_COMPLETE)
_SPECS: t.Final[Mapping[str, t.Callable[[], Spec]]] = {
    FOR_ABORT: migration_abort_spec,
    FOR_CHECK: scheduler_check_spec,
    FOR_FORCE_COMPLETE: migration_force_complete_spec,
    FOR_MIGRATE: move_spec,
    FOR_POLICY: domain_policy_spec,
}
# Options of the modules that a playbook sets itself.
_SET_BY_PLAYBOOK = ("_work", "destination", "id", "ledger", "name", "request", "uri", "uuid")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_UNCHANGED = "Nothing was changed."


def given_options_spec(purpose: str) -> Spec:
    """Return the options of its module that somebody can give to the playbook of that name."""
    return {name: option for name, option in _SPECS[purpose]().items() if name not in _SET_BY_PLAYBOOK}


@dataclass(frozen=True)
class _NamedDomain:
    """A domain, by UUID or by name. A UUID in C(domain) is a UUID."""

    uuid: t.Optional[str]
    name: t.Optional[str]

    @property
    def label(self) -> str:
        """The domain for messages."""
        return self.name or self.uuid or "of the record"

    @property
    def reference(self) -> dict[str, Json]:
        """The domain as options of a module."""
        return {"uuid": self.uuid} if self.uuid else {"name": self.name} if self.name else {}


@dataclass(frozen=True)
class _FoundDomain:
    """The domain on a host that has it."""

    uuid: str
    name: str
    state: str
    active: bool
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class _HostAnswer(TaskResult):
    """What C(migration_info) has returned on one host."""

    domain: Maybe[_FoundDomain] = ABSENT
    migrations: Maybe[tuple[JsonObject, ...]] = ABSENT
    error_code: Maybe[str] = ABSENT

    @property
    def is_silent(self) -> bool:
        """Whether the host did not answer the question. That it does not have the domain is an answer."""
        return not self.skipped and (bool(self.unreachable) or self.migrations is ABSENT) and self.error_code != NotFound.error_code


@dataclass(frozen=True)
class _Checked:
    """What the step C(check) has found out; C(host) is null if the hosts must be asked."""

    host: t.Optional[str]
    domain: JsonObject
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class _Work:
    """What the playbook passes from earlier tasks: the result of C(check), and the answers by host."""

    checked: Maybe[_Checked] = ABSENT
    answers: Maybe[Mapping[str, _HostAnswer]] = ABSENT


@dataclass(frozen=True)
class _LocationTask:
    """The options of C(domain_location)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"record_id": "id", "work": "_work"}

    step: str
    purpose: str
    ledger: t.Optional[str]
    domain: t.Optional[str]
    record_id: t.Optional[str]
    source: t.Optional[str]
    destination: t.Optional[str]
    fleet: tuple[str, ...]
    options: Json
    survey: JsonObject
    work: Json


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "domain_location"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return domain_location_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Check the request, or find the host from the answers. Changes nothing."""
        task = decode(_LocationTask, to_plain(args))
        if task.purpose not in _ABOUT_MOVES:
            # The other playbooks have no such variable, but an inventory may.
            task = dataclasses.replace(task, record_id=None)
        elif task.record_id and self._is_domain_of_inventory():
            task = dataclasses.replace(task, domain=None)
        if task.step == LOCATE_CHECK:
            return self._check_request(task, task_vars)
        with readable_results():
            work = decode(_Work, task.work or {}, "_work")
        checked = work.checked or _Checked(None, _read_domain(task).reference)
        domain = _NamedDomain(t.cast("str | None", checked.domain.get("uuid")), t.cast("str | None", checked.domain.get("name")))
        if checked.host is not None:
            return {**_describe(checked.host, domain), "arrived": False}
        return DomainSearch(task.purpose, domain, dict(work.answers or {})).find_host(task.destination)

    def _is_domain_of_inventory(self) -> bool:
        """Whether the caller has given an ID alone, and the variable C(domain) is, for example, the DNS domain of the hosts."""
        given: Mapping[str, t.Any] = load_extra_vars(self._loader)
        return "id" in given and "domain" not in given

    def _check_request(self, task: _LocationTask, task_vars: Result) -> JsonObject:
        domain, options = _read_domain(task), _read_given_options(task)
        _check_source(task)
        host = task.source
        if task.purpose in (*_ABOUT_MOVES, FOR_MIGRATE):
            location = self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger)
            # The task that acts reports what is wrong with the ledger.
            book = LedgerInEmergency(lambda create: open_ledger(*location, create=create), bool(task.record_id), [])
            search = RecordSearch(task, domain, book, bool(options.get("missing_ok")))
            record = search.find_record()
            if record:
                domain = _NamedDomain(record.domain.uuid, record.domain.name)
                host = host or search.source_of(record)
        return {**_describe(host, domain), "ask": [] if host else list(task.fleet), "options": options}


def _describe(host: str | None, domain: _NamedDomain) -> Result:
    return {"changed": False, "host": host, "domain": domain.reference}


def _read_domain(task: _LocationTask) -> _NamedDomain:
    """Return the domain that is meant. Raises L(InvalidArgument) if neither it nor a record is given."""
    if task.domain:
        is_uuid = bool(_UUID.fullmatch(task.domain))
        check_domain_name(task.domain, "domain")
        return _NamedDomain(task.domain.lower(), None) if is_uuid else _NamedDomain(None, task.domain)
    if task.record_id:
        return _NamedDomain(None, None)
    or_record = ", or the ID of the record of its move, for example -e id=2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10" if task.purpose in _ABOUT_MOVES else ""
    raise InvalidArgument("No domain was given.", f"Set its name or its UUID, for example -e domain=web1{or_record}. {_UNCHANGED}")


def _read_given_options(task: _LocationTask) -> dict[str, Json]:
    """Return the options that somebody has given; one that is empty counts as not given. Raises L(InvalidArgument), with the name of the variable."""
    variable, options = f"{task.purpose}_options", given_options_spec(task.purpose)
    whole = t.cast(JsonObject, read_options({variable: task.options or {}}, {variable: {"type": "dict"}})[variable])
    given = {name: value for part in (use_own_names(whole, options), task.survey) for name, value in part.items() if value not in (None, "")}
    validated = t.cast(JsonObject, read_options({variable: given}, {variable: {"type": "dict", "options": options}})[variable])
    return {name: validated[name] for name in given}


def _check_source(task: _LocationTask) -> None:
    """Raise L(InvalidArgument) for a source that is not among the hosts of the play."""
    if task.source and task.source not in task.fleet:
        raise InvalidArgument(
            f"The source {task.source} is not a host of this play. Its hosts are: {', '.join(task.fleet)}.",
            f"Give the name of a host of the inventory, or no source, so that the host is found. {_UNCHANGED}",
        )


class RecordSearch:
    """Finds the record of the move that is meant, and its source among the hosts of the play."""

    def __init__(self, task: _LocationTask, domain: _NamedDomain, book: LedgerInEmergency, missing_ok: bool) -> None:
        self._task = task
        self._domain = domain
        self._book = book
        self._missing_ok = missing_ok

    def find_record(self) -> MoveRecord | None:
        """Return the record of the ID, or else the unsettled one of the domain's migration; null if there is none.

        Raises L(NotFound), L(InvalidArgument) or L(InvalidState) for an ID of nothing that can be aborted or forced.
        """
        if self._task.record_id:
            return self._read_named(self._task.record_id)
        uuids = self._list_uuids()
        # Which of several domains of one name is meant, the hosts know: some of them may be gone.
        held = self._list_unsettled(uuids[0]) if len(uuids) == 1 else []
        return held[0] if held else None

    def source_of(self, record: MoveRecord) -> str | None:
        """Return the host of the play that is the source of the record; null if the play has no such host."""
        if record.source.host in self._task.fleet:
            return record.source.host
        entries = self._book.use(list_entries) or []
        return next((entry.name for entry in entries if entry.name in self._task.fleet and _has_id_of(entry.host_ref, record.source)), None)

    def _read_named(self, record_id: str) -> MoveRecord:
        stored = self._book.use(lambda ledger: ledger.read_record(record_id))
        if stored is None:
            raise NotFound(
                f"The ledger has no record {record_id}.", f"List its records with kvmfleet.migration.status, or name the ledger that has it. {_UNCHANGED}"
            )
        record = stored.record
        if record.type != s.LIVE_MIGRATION:
            raise InvalidArgument(f"Record {record_id} is of the type {record.type}, not a live migration.", _UNCHANGED)
        if (self._domain.uuid and self._domain.uuid != record.domain.uuid) or (self._domain.name and self._domain.name != record.domain.name):
            raise InvalidArgument(f"Record {record_id} is about domain {record.domain.name}, not about {self._domain.label}.", _UNCHANGED)
        if record.status in s.UNSETTLED or self._missing_ok:
            return record
        self._refuse_closed(record)
        return record

    def _refuse_closed(self, record: MoveRecord) -> None:
        """Raise L(InvalidState), or L(Conflict) if the domain is being moved again."""
        newer = self._list_unsettled(record.domain.uuid)
        ended = f"The migration of record {record.id} has ended: {record.status}."
        if newer:
            raise Conflict(
                f"{ended} Domain {record.domain.name} is being moved for record {newer[0].id} now.",
                f"Check it with kvmfleet.migration.status. {_UNCHANGED}",
                migrations=[encode(newer[0])],
            )
        raise InvalidState(" ".join(part for part in (ended, record.last_detail) if part), _UNCHANGED, migrations=[encode(record)])

    def _list_uuids(self) -> list[str]:
        if self._domain.uuid:
            return [self._domain.uuid]
        return [document.domain.uuid for document in self._book.use(lambda ledger: ledger.find_domains(str(self._domain.name))) or ()]

    def _list_unsettled(self, uuid: str) -> list[MoveRecord]:
        stored = self._book.use(lambda ledger: ledger.find_unsettled(uuid))
        return [stored.record] if stored and stored.record.type == s.LIVE_MIGRATION else []


def _has_id_of(host: HostRef, other: HostRef) -> bool:
    return bool(host.host_id) and host.host_id == other.host_id


class DomainSearch:
    """Finds the host of the domain in the answers of the hosts."""

    def __init__(self, purpose: str, domain: _NamedDomain, answers: dict[str, _HostAnswer]) -> None:
        self._purpose = purpose
        self._domain = domain
        self._silent = {host: answer.message.removeprefix("Task failed: ") for host, answer in answers.items() if answer.is_silent}
        self._having = {host: (answer.domain, answer.migrations or ()) for host, answer in answers.items() if answer.domain}

    def find_host(self, destination: str | None) -> JsonObject:
        """Return the host. Raises L(NotFound), L(Conflict) if several hosts come into question, L(Unreachable) if a silent host may be the one."""
        self._check_one_domain()
        leaving = [host for host, (_domain, migrations) in self._having.items() if migrations]
        active = [host for host, (domain, _migrations) in self._having.items() if domain.active]
        chosen = leaving or active
        if len(leaving) > 1:
            raise self._ambiguity(f"is being moved away from {_join(leaving)}")
        if len(chosen) > 1:
            raise self._double_run(chosen)
        if not chosen and self._silent:
            raise self._silence()
        if not self._having:
            raise NotFound(f"No host of this play has a domain {self._domain.label}.", f"Check the name (virsh list --all on the hosts). {_UNCHANGED}")
        if not chosen and len(self._having) > 1:
            raise self._ambiguity(f"is shut off, and defined on {_join(self._having)}")
        host = chosen[0] if chosen else next(iter(self._having))
        found = _NamedDomain(self._having[host][0].uuid, None)
        arrived = self._purpose == FOR_MIGRATE and host == destination and host in active and not leaving
        return {**_describe(host, found), "arrived": arrived}

    def _check_one_domain(self) -> None:
        hosts: dict[str, list[str]] = {}
        for host, (domain, _migrations) in self._having.items():
            hosts.setdefault(domain.uuid, []).append(host)
        if len(hosts) > 1:
            listed = "; ".join(f"{uuid} on {_join(names)}" for uuid, names in hosts.items())
            raise Conflict(f"Several domains are named {self._domain.label}: {listed}.", f"Give the UUID of the one that you mean. {_UNCHANGED}")

    def _ambiguity(self, what: str) -> Conflict:
        return Conflict(f"Domain {self._domain.label} {what}.", f"Set the host that you mean, for example -e source={next(iter(self._having))}. {_UNCHANGED}")

    def _double_run(self, hosts: list[str]) -> Conflict:
        on_all = "both" if len(hosts) == 2 else "several"
        return Conflict(
            f"Domain {self._domain.label} is active on {_join(hosts)}. The hosts are not asked at one moment: run the playbook again.",
            f"If it is active on {on_all} then, check first that they are different hosts: the inventory may have two names of one host. If they are, find out"
            f" immediately which copy is correct, and stop the other one. {_UNCHANGED}",
        )

    def _silence(self) -> Unreachable:
        host = next(iter(self._having), None)
        known = f"Domain {self._domain.label} is shut off on {host}" if host else f"No host that answers has a domain {self._domain.label}"
        why = "; ".join(f"{name}: {reason.rstrip('.') or 'no reason is known'}" for name, reason in self._silent.items())
        return Unreachable(
            f"{known}, and these hosts do not answer: {why}.",
            f"Run it again when they answer, or set the host of the domain, for example -e source={host or next(iter(self._silent))}. {_UNCHANGED}",
        )


def _join(hosts: t.Iterable[str]) -> str:
    return " and ".join(hosts)
