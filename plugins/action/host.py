# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(host): finds the entry of the host in the ledger, changes it, and records the decisions of a person."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import HOST_DECISIONS, Spec, host_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import SSH_ANSWERS, SSH_UNKNOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import HOST_ID_FILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import IdentityAnswer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import (
    COLD_MIGRATION,
    ENABLED,
    FENCED,
    LIVE_MIGRATION,
    MAINTENANCE,
    TOMBSTONE,
    UNSETTLED,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.run import ColdSettlement
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.cordon import Cordon, HostStatus
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_request import HostVariables, read_host_variables
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.preparation import PreparationRequest, prepare_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.strategies import check_save_folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.ansible_probe import make_probe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document, HostEntry, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import check_not_discarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import (
    HostIdentity,
    check_one_name,
    check_own_ledger,
    find_entry_by_name,
    find_host_entry,
    is_changed,
    list_entries,
    list_uuid_notes,
    make_entry,
    shown_entry,
    update_entry,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import describe_record
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MakeSettlement, MoveSettlement, RecordDecision
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.host_decisions import adopt_identity, discard_source, give_up_domains, revoke_token
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.release import find_withholding
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings, read_facts

Result = dict[str, Json]


class SettleOption(t.TypedDict):
    """The record that a person settles, and the status that it gets."""

    id: str
    status: str


class HostWork(t.TypedDict, total=False):
    """The input from a role in addition to the options. A host that is in maintenance for another reason than C(own_reason) keeps its status.

    C(recovered): the host is enabled after its recovery, or no longer fenced, and must not have been evacuated since.
    """

    together: bool
    refusal: str
    drain: JsonObject
    ledger: bool
    own_reason: str
    recovered: bool


class HostOptions(t.TypedDict):
    """The options of C(host)."""

    uri: str
    ledger: str | None
    state: str | None
    reason: str | None
    name: str | None
    adopt_identity: bool
    source_discarded: bool
    domains_lost: list[str] | None
    revoke_token: bool
    settle: SettleOption | None
    _work: HostWork | None


_IDENTITY_FACTS = ("host_id", "host_uuid", "machine_id", "ledger_id")


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "host"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return host_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Find the host's entry, and change it if the task requests that."""
        options = t.cast(HostOptions, args)
        work = options["_work"] or HostWork()
        if work.get("together"):
            self.warn_of_mistyped_options(task_vars)
        self._check_work(work)
        target_host = self.target_host(task_vars)
        name = options["name"] if options["name"] is not None else target_host
        _check_name(name)
        decision = _find_decision(options)
        if decision:
            return self._write_decision(decision, name, target_host, options, task_vars)
        settings = self.settings(task_vars)
        location = settings.ledger(target_host, options["ledger"])
        ledger = open_if_any(*location)
        drain = PreparationRequest.from_work(target_host, work["drain"]) if work.get("drain") else None
        # Before the host is put into maintenance: an invalid variable or policy changes nothing.
        variables = _check_drain(drain, settings) if drain else None
        warnings: list[str] = []
        if name == target_host:
            # The identity of a host to be drained need not be queried again if its facts are fresh.
            facts = settings.fresh_facts(target_host) if drain else None
            identity, found = _identify_by_facts(ledger, name, facts) or self._identify_host(ledger, name, options, task_vars, warnings)
        else:
            identity, found = HostIdentity(name, None, None, None), find_entry_by_name(ledger, name)
        if ledger is None and options["state"] is not None and not self._task.check_mode:
            ledger = open_ledger(*location)
        if ledger:
            warnings += list_uuid_notes(found.host if found else None, identity, list_entries(ledger))
        before = found.host if found else None
        if name == target_host and options["state"] is not None:
            check_one_name(before, name, settings.fleet())
        after, result = self._change_state(ledger, found, identity, options, describe_actor(task_vars), is_drained=drain is not None)
        if not work.get("recovered"):
            warnings += _warn_of_leftovers(ledger, after)
        if drain:
            cordon = Cordon.from_entries(before, after) if after else None
            own: Result = {"settings": encode(variables), "check_mode": bool(self._task.check_mode)}
            result["_drain"] = {**_prepare_drain(drain, options, cordon, settings, ledger), **own}
        if work.get("together"):
            # The variable ansible_check_mode shows --check alone, and not the keyword check_mode of a play.
            result["_check_mode"] = bool(self._task.check_mode)
        if work.get("ledger"):
            # A role's own actions have to use the ledger of its modules, for which module_defaults may name one.
            result["_ledger"] = options["ledger"]
        warnings += ledger.problems if ledger else []
        return {**result, "warnings": warnings} if warnings else result

    def _check_work(self, work: HostWork) -> None:
        """Refuse what a role refuses, or a strategy under which its hosts do not proceed together."""
        if work.get("refusal"):
            raise InvalidArgument(str(work["refusal"]), "Nothing was changed.")
        if work.get("together"):
            self.refuse_free_strategy()

    # -- a person's decisions ------------------------------------------------------------------------------------

    def _write_decision(self, decision: str, name: str, target_host: str, options: HostOptions, task_vars: Result) -> JsonObject:
        """Write a person's decision. Raises L(NotFound) if there is no ledger."""
        settings = self.settings(task_vars)
        location = settings.ledger(target_host, options["ledger"])
        ledger = self.attach_notifier(open_ledger(*location, create=False), settings, target_host, location)
        is_target = name == target_host

        def phase(step: str, work: JsonObject) -> JsonObject:
            return self.run_phase(step, work, options["uri"], task_vars)

        reason, check, by = str(options["reason"]), self._task.check_mode, describe_actor(task_vars)
        if options["settle"]:
            live, cold = (SourceHost(self, task_vars, options["uri"], module) for module in ("live_migrate", "cold_migrate"))
            context = RunContext(ledger, settings, live, options["uri"], by)
            settlements: dict[str, MakeSettlement] = {
                LIVE_MIGRATION: lambda stored: MoveSettlement(context, stored),
                COLD_MIGRATION: lambda stored: ColdSettlement(dataclasses.replace(context, source=cold), stored),
            }
            wanted = options["settle"]
            decision_about = RecordDecision(context, wanted["id"], name, reason, check, phase if is_target else None, settlements)
            result = _settle_record(decision_about, wanted["status"])
            result["warnings"] = context.warnings
        elif decision == "adopt_identity":
            result = adopt_identity(
                ledger, _read_identity(decode(IdentityAnswer, phase("read", {})), name) if is_target else None, name, (reason, by), phase, check
            )
        elif decision == "domains_lost":
            result = give_up_domains(ledger, name, options["domains_lost"] or (), (reason, by), check)
        elif decision == "source_discarded":
            result = discard_source(ledger, name, phase if is_target else None, lambda entry: self._check_gone(entry, settings, task_vars), (reason, by), check)
        else:
            result = revoke_token(ledger, name, target_host, phase, (reason, by), check, settings)
        if not self._task.diff:
            result.pop("diff", None)
        warnings = [*t.cast("t.Sequence[Json]", result.pop("warnings", ())), *ledger.problems]
        return {**result, "warnings": warnings} if warnings else result

    def _check_gone(self, entry: HostEntry, settings: TaskSettings, task_vars: Result) -> list[str]:
        """Return warnings if it is not known whether the host is silent. Raises L(InvalidState) if it answers Ansible with its own host ID."""
        name = entry.name
        if entry.discarded or not settings.is_known(name):
            return []
        says, answer = self.ask_host_id(name, task_vars)
        if says == SSH_ANSWERS and answer.strip() == entry.host_id:
            raise InvalidState(
                f"{name} answers Ansible, and is the host that is to be discarded.",
                f"Check the name. If {name} is to leave the fleet, drain it and switch it off first. Nothing was changed.",
            )
        if says == SSH_ANSWERS:
            return [f"A machine answers Ansible as {name}, but with another host ID than the discarded host, or with none."]
        return [f"It is not known whether {name} answers Ansible: {answer}."] if says == SSH_UNKNOWN else []

    def ask_host_id(self, name: str, task_vars: Result) -> tuple[str, str]:
        """Return whether a host of the inventory answers Ansible, and the content of its identity file, or why that is not known."""
        with make_probe(self, name, task_vars, f"cat {HOST_ID_FILE}") as probe:
            return probe.read_answer()

    # -- the entry -----------------------------------------------------------------------------------------------

    def _identify_host(
        self, ledger: Ledger | None, name: str, options: HostOptions, task_vars: Result, warnings: list[str]
    ) -> tuple[HostIdentity, Document | None]:
        """Return the identity that the host reports, and its entry; an identity is created if it has none and the task writes."""
        answer = decode(IdentityAnswer, self.run_phase("read", {}, options["uri"], task_vars))
        if answer.libvirt_error:
            warnings.append(f"Libvirt on {name} did not answer, so its UUID is not known: {answer.libvirt_error}")
        identity = _read_identity(answer, name)
        if options["state"] is not None:
            check_own_ledger(name, answer.identity.ledger_id, ledger)
        found = find_host_entry(ledger, identity) if ledger else None
        if identity.host_id or options["state"] is None or self._task.check_mode:
            return identity, found
        _check_new_host(ledger, found, identity, options)
        made = self.run_phase("create", {}, options["uri"], task_vars)
        return HostIdentity(name, str(made["host_id"]), identity.host_uuid, identity.machine_id), found

    def _change_state(
        self, ledger: Ledger | None, found: Document | None, identity: HostIdentity, options: HostOptions, by: str, is_drained: bool
    ) -> tuple[HostEntry | None, Result]:
        """Give the host the state that the task requests, if any. Return the entry that was written, and the result."""
        wanted = _wanted_status(options, HostStatus.from_entry(found.host if found else None), is_drained=is_drained)
        if wanted is None:
            return None, {"changed": False, "host": found.body if found else None}
        _check_new_host(ledger, found, identity, options)
        # Check mode has completed none of the records that the cleanup would complete.
        if ledger and (options["_work"] or HostWork()).get("recovered") and not self._task.check_mode:
            _check_not_evacuated(ledger, identity, wanted)
        return self._write_entry(ledger, found, identity, wanted, by, is_drained=is_drained, is_stated=_is_stated(options))

    def _write_entry(
        self, ledger: Ledger | None, found: Document | None, identity: HostIdentity, wanted: HostStatus, by: str, is_drained: bool, is_stated: bool
    ) -> tuple[HostEntry, Result]:
        before = found.host if found else None
        if before and wanted.state == ENABLED:
            check_not_discarded(before)
        after = make_entry(before, identity, wanted.state, wanted.reason, by)
        changed = is_changed(before, after)
        after = dataclasses.replace(after, drained_by=by) if is_drained else after
        if ledger and not self._task.check_mode:
            if changed:
                after = ledger.put_host(after, found.version if found else None, is_stated).host
            elif is_drained:
                after = update_entry(
                    ledger, lambda: find_host_entry(ledger, identity), lambda entry: dataclasses.replace(t.cast(HostEntry, entry), drained_by=by)
                )
        result: Result = {"changed": changed, "host": encode(after)}
        if self._task.diff:
            result["diff"] = {
                "before": shown_entry(before),
                "after": shown_entry(after),
                "before_header": f"{after.name} in the ledger",
                "after_header": after.name,
            }
        return after, result


def _identify_by_facts(ledger: Ledger | None, name: str, facts: JsonObject | None) -> tuple[HostIdentity, Document | None] | None:
    """Return the identity of the host and its entry, from its facts; None if they have no identity."""
    known = decode(HostFacts, {key: value for key, value in (facts or {}).items() if key in _IDENTITY_FACTS})
    if not known.host_id:
        return None
    check_own_ledger(name, known.ledger_id, ledger)
    identity = HostIdentity(name, known.host_id, known.host_uuid or None, known.machine_id or None)
    return identity, find_host_entry(ledger, identity) if ledger else None


def _is_stated(options: HostOptions) -> bool:
    """Whether a person states the state of the host, with a reason. A drain only puts the host into maintenance for as long as it needs."""
    work = options["_work"] or HostWork()
    return bool((options["reason"] or "").strip()) and not (work.get("drain") or work.get("recovered"))


def _check_new_host(ledger: Ledger | None, found: Document | None, identity: HostIdentity, options: HostOptions) -> None:
    """Raise L(Conflict) or L(NotSupported) if a host without an entry may have a document that cannot be read, and no person states its state."""
    if ledger and found is None and not _is_stated(options):
        ledger.check_new_host(identity.host_ref)


def _check_not_evacuated(ledger: Ledger, identity: HostIdentity, wanted: HostStatus) -> None:
    """Raise L(Unsafe) if evacuations of the host are open: they began after its cleanup, which ended with none."""
    found = find_withholding(ledger.list_records(statuses=sorted(UNSETTLED | TOMBSTONE)), identity)
    if found:
        why = "; ".join(f"{describe_record(record)} is '{record.status}'" for record in found)
        outcome = f"{identity.name} was not enabled" if wanted.state == ENABLED else f"The state of {identity.name} was not changed"
        raise Unsafe(f"{outcome}: it was evacuated during its recovery: {why}.", "Run recover again; it cleans the host up first.")


def _warn_of_leftovers(ledger: Ledger | None, entry: HostEntry | None) -> list[str]:
    """Return a warning if the host accepts domains although evacuations from it are open."""
    if ledger is None or entry is None or entry.state != ENABLED:
        return []
    found = find_withholding(ledger.list_records(statuses=sorted(UNSETTLED | TOMBSTONE)), HostIdentity.from_entry(entry))
    if not found:
        return []
    names = ", ".join(dict.fromkeys(str(record.domain.name) for record in found))
    text = (
        f"{entry.name} accepts domains again, but it may still have old copies of domains that were evacuated from it ({names}). They must not be started. "
        f"To clean them up, recover the host (kvmfleet.migration.recover -e target={entry.name})."
    )
    return [text]


def _wanted_status(options: HostOptions, before: HostStatus, is_drained: bool) -> HostStatus | None:
    """Return the status that the task gives the host; None if it only reads the entry."""
    if options["state"] is None:
        return None
    work = options["_work"] or HostWork()
    own_reason = work.get("own_reason")
    if own_reason and before.state == MAINTENANCE and before.reason != own_reason:
        return before
    if work.get("recovered") and options["state"] == MAINTENANCE and before.state != FENCED:
        return None
    return before.with_cordon(options["reason"]) if is_drained else HostStatus(options["state"], options["reason"])


def _check_drain(request: PreparationRequest, settings: TaskSettings) -> HostVariables:
    """Return the variables of the host.

    Raises L(InvalidArgument) for an invalid one, for candidates that are not in the inventory, and for a policy that the drain cannot follow by its options.
    """
    unknown = [candidate for candidate in request.candidates if not settings.is_known(candidate)]
    if unknown:
        raise InvalidArgument(f"drain_host_candidates names hosts that are not in the inventory: {', '.join(unknown)}.", "Nothing was changed.")
    facts = settings.facts(request.host)
    # Facts that were gathered earlier may be older than a change of a policy; the plan has new ones.
    if facts and request.just_asked:
        with readable_facts():
            domains = read_facts(facts).domains or ()
        check_save_folder(domains, request.host, settings, request.strategies)
    return read_host_variables(request.host, settings)


def _prepare_drain(request: PreparationRequest, options: HostOptions, cordon: Cordon | None, settings: TaskSettings, ledger: Ledger | None) -> Result:
    """Return what the later tasks of a drain need about its host."""
    with readable_facts():
        survey = prepare_host(request, settings.facts, ledger, settings.is_known)
    return {
        "ledger": options["ledger"],
        "cordon": dataclasses.asdict(cordon) if cordon else None,
        **dataclasses.asdict(survey),
    }


def _check_name(name: str) -> None:
    if not name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidArgument(f"name is {name!r}, which cannot be the name of a host.", "Give the host's name in the inventory.")


def _find_decision(options: HostOptions) -> str:
    """Return the decision that the task requests, empty for none. Raises L(InvalidArgument) for several, or one without a reason."""
    given = t.cast(JsonObject, options)
    chosen = [option for option in HOST_DECISIONS if given[option] not in (None, False)]
    if len(chosen) + (options["state"] is not None) > 1 and chosen:
        also = [*chosen, *(["state"] if options["state"] is not None else [])]
        raise InvalidArgument(f"{' and '.join(also)} are given together.", "Give one for each task. Nothing was changed.")
    if chosen and not (options["reason"] or "").strip():
        raise InvalidArgument(f"{chosen[0]} is a person's decision, but no reason is given.", "Give it with reason. Nothing was changed.")
    return chosen[0] if chosen else ""


def _settle_record(decision: RecordDecision, status: str) -> Result:
    stored, after = decision.settle_record(status)
    record, before = after or t.cast(Stored, stored).record, stored.record.status if stored else None
    diff: Result = {"before": {"status": before}, "after": {"status": record.status}}
    return {"changed": after is not None, "host": None, "records": [encode(record)], "diff": diff}


def _read_identity(answer: IdentityAnswer, name: str) -> HostIdentity:
    who = answer.identity
    return HostIdentity(name, who.host_id, who.host_uuid, who.machine_id)
