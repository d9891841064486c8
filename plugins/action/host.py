# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(host): finds the host's entry in the ledger and writes it, and writes down what a person decides."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, InvalidState, NotFound, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_spec import DECISIONS, host_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts import adopt
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.change import changed_entry, differs, shown
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.decisions import check_not_discarded, scrapped, without_token
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.grants import Grant, recorded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity, entry_by_name, entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.settle import discarded, settled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.uuids import uuid_notes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Document, Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import BEFORE_A_HOST_KNOWS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.restored import restored, write

Result = dict[str, t.Any]
Phase = t.Callable[[str, Result], Result]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "host"

    def spec(self) -> Result:
        """Return the module's options."""
        return host_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Find the host's entry, and write it where the task wants that."""
        work = args["_work"] or {}
        # A role's word that it needs all hosts of the play to go step by step together.
        if work.get("together"):
            self._refuse_free_strategy()
        # A role's lookups have to read the ledger of its modules, for which module_defaults may name one.
        if work.get("ledger"):
            return {"changed": False, "host": None, "_ledger": args["ledger"]}
        here = self.here(task_vars)
        name = args["name"] if args["name"] is not None else here
        _check_name(name)
        decision = _decision(args)
        if decision:
            return self._decide(decision, name, here, args, task_vars)
        ledger = open_if_any(*self.settings(task_vars).ledger(here, args["ledger"]), create=args["state"] is not None and not self._task.check_mode)
        warnings: list[str] = []
        if name == here:
            identity, found = _told(ledger, name, args) or self._asked(ledger, name, args, task_vars, warnings)
        else:
            identity, found = Identity(name, None, None, None), entry_by_name(ledger, name)
        if ledger:
            warnings += uuid_notes(found.body if found else None, identity, (document.body for document in ledger.hosts()))
        result = self._read(found) if args["state"] is None else self._write(ledger, found, identity, args)
        warnings += ledger.problems if ledger else []
        return {**result, "warnings": warnings} if warnings else result

    # -- a person's decisions ------------------------------------------------------------------------------------

    def _decide(self, decision: str, name: str, here: str, args: Result, task_vars: Result) -> Result:
        """Write down a person's decision. Without a ledger there is nothing to decide about: L(NotFound)."""
        settings = self.settings(task_vars)
        place = settings.ledger(here, args["ledger"])
        ledger = self.announced(open_ledger(*place, create=False), settings, here, place)
        asked = name == here

        def phase(step: str, work: Result) -> Result:
            return self.phase(step, work, args["uri"], task_vars)

        reason, check = str(args["reason"]), self._task.check_mode
        if decision == "settle":
            result = _settle(ledger, args["settle"], reason, phase if asked else None, name, check)
        elif decision == "adopt_identity":
            result = _adopt(ledger, _who(phase("read", {}), name) if asked else None, name, reason, phase, check)
        elif decision == "source_discarded":
            result = _discard(ledger, name, phase if asked else None, reason, check)
        else:
            result = _revoke(ledger, name, here, phase, reason, check)
        warnings = [*result.pop("warnings", []), *ledger.problems]
        if not self._task.diff:
            result.pop("diff", None)
        return {**result, "warnings": warnings} if warnings else result

    # -- the entry -----------------------------------------------------------------------------------------------

    def _asked(
        self, ledger: Ledger | None, name: str, args: dict[str, t.Any], task_vars: dict[str, t.Any], warnings: list[str]
    ) -> tuple[Identity, Document | None]:
        """Return who the host says it is, and its entry; its identity is made where it has none and the task writes."""
        answer = self.phase("read", {}, args["uri"], task_vars)
        said = answer["identity"]
        if answer["libvirt_error"]:
            warnings.append(f"Libvirt on {name} did not answer, so its UUID is not known: {answer['libvirt_error']}")
        identity = Identity(name, said["host_id"], said["host_uuid"], said["machine_id"])
        found = entry_of(ledger, identity) if ledger else None
        if identity.host_id or args["state"] is None or self._task.check_mode:
            return identity, found
        made = self.phase("create", {}, args["uri"], task_vars)["host_id"]
        return Identity(name, made, identity.host_uuid, identity.machine_id), found

    def _read(self, found: Document | None) -> Result:
        return {"changed": False, "host": found.body if found else None}

    def _write(self, ledger: Ledger | None, found: Document | None, identity: Identity, args: dict[str, t.Any]) -> Result:
        before = found.body if found else None
        if before and args["state"] == "enabled":
            check_not_discarded(before)
        after = changed_entry(before, identity.as_dict(), args["state"], args["reason"], acting())
        changed = differs(before, after)
        if changed and ledger and not self._task.check_mode:
            after = ledger.put_host(after, found.version if found else None).body
        result: Result = {"changed": changed, "host": after}
        if self._task.diff:
            result["diff"] = {"before": shown(before), "after": shown(after), "before_header": f"{after['name']} in the ledger", "after_header": after["name"]}
        return result

    def _refuse_free_strategy(self) -> None:
        strategy = str(self._task.get_play().strategy).rpartition(".")[2]
        if strategy in ("free", "host_pinned"):
            raise NotSupported(
                f"The play has strategy: {strategy}, under which no plan can be made for all hosts together.", "Remove it from the play. Nothing was changed."
            )


def _told(ledger: Ledger | None, name: str, args: Result) -> tuple[Identity, Document | None] | None:
    """Return who the host is and its entry, by what it told a role a moment ago; None where it told of no identity of its own."""
    said = (args["_work"] or {}).get("told") or {}
    if not isinstance(said, Mapping):
        raise InvalidArgument("'_work.told' must be a dictionary.", "Leave _work to the roles of this collection. Nothing was changed.")
    if not said.get("host_id"):
        return None
    identity = Identity(name, said["host_id"], said.get("host_uuid"), said.get("machine_id"))
    return identity, entry_of(ledger, identity) if ledger else None


def _check_name(name: str) -> None:
    if not name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidArgument(f"name is {name!r}, which cannot be the name of a host.", "Give the host's name in the inventory.")


def _decision(args: Result) -> str:
    """Return which decision the task is about, empty for none. Raises L(InvalidArgument) for several, or one without a reason."""
    chosen = [option for option in DECISIONS if args[option]]
    if len(chosen) + (args["state"] is not None) > 1 and chosen:
        also = [*chosen, *(["state"] if args["state"] is not None else [])]
        raise InvalidArgument(f"{' and '.join(also)} are given together.", "Give one a task. Nothing was changed.")
    if chosen and not (args["reason"] or "").strip():
        raise InvalidArgument(f"{chosen[0]} is a person's decision, and no reason is given.", "Give it with reason. Nothing was changed.")
    return chosen[0] if chosen else ""


def _settle(ledger: Ledger, wanted: Result, reason: str, phase: Phase | None, name: str, check: bool) -> Result:
    stored = _known(ledger, wanted["id"], asked=phase is not None)
    if phase and (stored is None or stored.record["status"] in BEFORE_A_HOST_KNOWS):
        told = phase("recall", {"id": wanted["id"]})["told"]
        if told is not None:
            return _restore(ledger, stored, restored(told, wanted["status"], name, reason, acting()), check)
    if stored is None:
        raise NotFound(f"There is no record {wanted['id']}, neither in the ledger nor in what {name} remembers.", "Run the task on the host that remembers it.")
    after = settled(stored, wanted["status"], reason, acting())
    if after is not None and not check:
        after = ledger.update(stored, after).record
    diff = {"before": {"status": stored.record["status"]}, "after": {"status": wanted["status"]}}
    return {"changed": after is not None, "host": None, "records": [after or stored.record], "diff": diff}


def _known(ledger: Ledger, record_id: str, asked: bool) -> Stored | None:
    """Return the record as the ledger has it; None where only the host can know it, and will be asked. Raises L(NotFound)."""
    try:
        return ledger.get(record_id)
    except NotFound:
        if not asked:
            raise
        return None


def _restore(ledger: Ledger, stored: Stored | None, record: tuple[Result, Result], check: bool) -> Result:
    before, after = record
    if not check:
        after = write(ledger, stored, before, after)
    diff = {"before": {"status": stored.record["status"] if stored else None}, "after": {"status": after["status"]}}
    return {"changed": True, "host": None, "records": [after], "diff": diff}


def _who(answer: Result, name: str) -> Identity:
    said = answer["identity"]
    return Identity(name, said["host_id"], said["host_uuid"], said["machine_id"])


def _adopt(ledger: Ledger, identity: Identity | None, name: str, reason: str, phase: Phase, check: bool) -> Result:
    if identity is None:
        raise InvalidArgument(f"adopt_identity is about {name}, and the task runs on another host.", f"Run it on {name} itself. Nothing was changed.")
    change = adopt.adoption(ledger, identity, reason, acting())
    if change is None:
        found = entry_of(ledger, identity)
        return {"changed": False, "host": found.body if found else None, "records": []}
    body = change.after
    if not check:
        if change.host_id and not identity.host_id and change.entry.body.get("host_id"):
            phase("adopt", {"host_id": change.host_id})
        body = adopt.write(ledger, change)
    return {"changed": True, "host": body, "records": [], "diff": {"before": shown(change.entry.body), "after": shown(body)}}


def _discard(ledger: Ledger, name: str, phase: Phase | None, reason: str, check: bool) -> Result:
    if phase is not None:
        phase("read", {})
        raise InvalidState(
            f"{name} answers, so it is not gone.",
            f"Clean it with evacuation_cleanup. For a host that will not return, run the task on localhost with name: {name}. Nothing was changed.",
        )
    entry = entry_by_name(ledger, name)
    changes = list(discarded(ledger, entry.body.get("host_id"), reason, acting()))
    after = scrapped(entry.body, reason, acting())
    if not check:
        # The entry first: a host of which nothing withholds the release must be known as discarded.
        body = ledger.put_host(after, entry.version).body if after else entry.body
        records = [ledger.update(stored, record).record for stored, record in changes]
    else:
        body, records = after or entry.body, [record for _stored, record in changes]
    return {"changed": bool(records or after), "host": body, "records": records, "diff": {"before": shown(entry.body), "after": shown(body)}}


def _revoke(ledger: Ledger, name: str, here: str, phase: Phase, reason: str, check: bool) -> Result:
    """Revoke a token on the host itself or on storage that it reads, and only then in the ledger. A task that dies in between is run again."""
    entry = entry_by_name(ledger, name)
    grant = recorded(entry.body)
    removed, more = False, {}
    if name == here:
        removed = bool(phase("revoke", {"check": check, "grant": grant.id if grant else None})["changed"])
    elif grant:
        more = {"folders": _revoke_on_storage(grant, name, here, phase, check)}
    after = without_token(entry.body, reason, acting(), **more)
    body = ledger.put_host(after, entry.version).body if after and not check else after or entry.body
    return {"changed": bool(after or removed), "host": body, "records": []}


def _revoke_on_storage(grant: Grant, name: str, here: str, phase: Phase, check: bool) -> list[str]:
    """Return the folders in which the host will find that its token is revoked. Raises L(Unsafe) when there is none."""
    not_revoked = f"{name} may hold a clean-shutdown token and would start its guests by itself when it returns. Nothing was changed."
    if not grant.folders:
        raise Unsafe(
            f"The token of {name} was granted by an earlier version, which reads no shared storage at boot. {not_revoked}",
            f"Start {name} from a rescue system and delete /var/lib/kvmfleet/guard/token.json, so that its next boot is held. Then run the task on {name}."
            " If the host will never return, set source_discarded.",
        )
    answer = phase("revoke_elsewhere", {"grant": grant.for_host(), "check": check})
    if not answer["folders"]:
        why = "; ".join(f"{folder}: {problem}" for folder, problem in sorted(answer["problems"].items()))
        raise Unsafe(
            f"{here} sees no storage on which the token of {name} can be revoked ({printable(why)}). {not_revoked}",
            f"Run the task on a host that sees one of these folders, or on {name} itself. If {name} will never return, set source_discarded.",
        )
    return list(answer["folders"])
