# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The steps by which a host is protected: who it is and its tokens, its peers' tokens, its domains, its boot guard.

Each step of all hosts comes before the next one of any, where a role runs them: then each host reads tokens that its peers have just left.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

from .._hosts.change import changed_entry
from .._hosts.grants import Grant, as_recorded, new_grant, recorded, revocable_folders
from .._hosts.identity import Identity, entry_of
from .._hosts.uuids import uuid_notes
from .._ledger.store import Body, Document, Ledger
from .._memory.missing import missing_records
from .answer import Outcome
from .entries import change_entry
from .saving import Saving

Phase = t.Callable[[str, Body], Body]

NOT_REVOCABLE = (
    "No clean-shutdown token is granted: no other host was proved to see a folder with images of this one, so nobody could revoke a token while this "
    "host is off. Every boot is held."
)
# What a step puts into the host's entry for others to read, without which the entry is unchanged.
_TOKENS = ("folders", "unwritable", "devices", "addresses")


@dataclass(frozen=True)
class Steps:
    """:arg ledger: None in check mode, where there is none yet.

    :arg phase: runs a phase on the host.
    :arg check: to change nothing.
    """

    name: str
    ledger: t.Optional[Ledger]
    phase: Phase
    by: str
    check: bool

    def leave(self, addresses: Body) -> Body:
        """Give the host its identity, entry and tokens; C(changed), C(host_id), C(tokens), C(uuid_notes). Raises L(Conflict), L(Unreachable)."""
        identity, found = self._identify()
        known = (found.body.get("folders") or {}) if found else {}
        answer = self.phase("leave", {"ledger_id": self._ledger_id(), "known": known, "check": self.check})
        changed = bool(answer["changed"])
        if self.ledger and not self.check:
            identity = Identity(self.name, answer["host_id"], identity.host_uuid, identity.machine_id)
            told = {**{key: answer[key] for key in _TOKENS if key in answer}, "addresses": addresses}
            after = self._change(identity, lambda entry: {**entry, **told})
            changed = changed or found is None or _differs(found.body, after, ("name", "host_id", "host_uuid", "machine_id", *_TOKENS))
        tokens = {"left": sorted(answer["folders"]), "unwritable": answer["unwritable"]}
        noted = uuid_notes(found.body if found else None, identity, ())
        return {"changed": changed or found is None, "host_id": answer["host_id"], "tokens": tokens, "uuid_notes": noted}

    def read(self) -> Body:
        """Read the tokens of all peers and write which of them this host sees; C(changed), C(sees) (names of peers and paths)."""
        own = self.entry()
        if self.ledger is None or own is None:
            return {"changed": False, "sees": {}}
        peers = [document.body for document in self.ledger.hosts() if document.body.get("host_id") not in (None, own["host_id"])]
        work = {key: {peer["host_id"]: peer[key] for peer in peers if peer.get(key)} for key in ("folders", "devices")}
        sees = self.phase("see", {**work, "host_id": own["host_id"]})["sees"]
        changed = sees != (own.get("sees") or {})
        if changed and not self.check:
            self._change(_identity_of(own), lambda entry: {**entry, "sees": sees})
        return {"changed": changed, "sees": {peer["name"]: sorted(sees[peer["host_id"]]) for peer in peers if peer["host_id"] in sees}}

    def save(self) -> Outcome:
        """Save the domains."""
        own = self.entry() or {}
        here = place(self.name, own.get("host_id"), own.get("host_uuid"))

        told: list[t.Optional[list[Body]]] = []

        def ask(uuids: t.Optional[list[str]]) -> Body:
            answer = self.phase("save", {"host_id": own.get("host_id"), "uuids": uuids})
            told.append(answer.get("remembered"))
            return answer

        outcome = Saving(self.ledger, here, ask, self.by, write=not self.check and self.ledger is not None).run()
        outcome.missing_records = missing_records(self.ledger, [(self.name, moves) for moves in told])
        return outcome

    def guard(self, install: bool, with_token: bool) -> Body:
        """Install the boot guard, or only look at it; C(changed), C(guard). Writes in any case when the host was protected."""
        own = self.entry()
        before = recorded(own)
        if not install:
            answer = self._ask_guard(own, before, install=False)
            return {"changed": bool(answer["changed"]), "guard": answer["guard"]}
        folders = self._revocable(own) if with_token else {}
        if before and not (folders and before.folders == folders):
            self._take_back(own, before)
            before = None
        grant = before or new_grant(own or {}, folders)
        # While the host may hold a token, the ledger says so: it is written before the host is told, and taken out after.
        if grant and grant != before:
            self._protected(own, as_recorded(grant))
        answer = self._ask_guard(own, grant, install=True)
        if grant and answer.get("revoked_in") and not self.check:
            # A revocation that ended before it reached the ledger.
            self._take_back(own, grant)
            return self.guard(install, with_token)
        note = NOT_REVOCABLE if with_token and not folders else ""
        guard = {**answer["guard"], "note": " ".join(filter(None, (answer["guard"]["note"], note)))}
        return {"changed": bool(answer["changed"]) or grant != recorded(own), "guard": guard}

    def _ask_guard(self, own: t.Optional[Body], grant: t.Optional[Grant], install: bool) -> Body:
        """Run the phase on the host and write what it says, and the grant, into the host's entry; return the answer."""
        answer = self.phase("guard", {"install": install, "grant": grant.for_host() if grant else None, "taken_back": [], "check": self.check})
        said = {key: answer["guard"][key] for key in ("installed", "systemd", "held_at_boot")}
        self._protected(own, {"at": utc_now(), "by": self.by, "guard": said, **as_recorded(grant)})
        return answer

    def _take_back(self, own: t.Optional[Body], grant: Grant) -> None:
        """Take a grant from the host, which never accepts it again, and then from the ledger."""
        if not self.check:
            self.phase("guard", {"install": True, "grant": None, "taken_back": [grant.id], "check": False})
            self._protected(own, as_recorded(None))

    def _revocable(self, own: t.Optional[Body]) -> Body:
        return revocable_folders(own, (document.body for document in self.ledger.hosts())) if own and self.ledger else {}

    def shared_uuid_notes(self) -> list[str]:
        """Return a sentence where other hosts have this one's libvirt UUID. All hosts of the play have their entries by now."""
        own = self.entry()
        return uuid_notes(None, _identity_of(own), (document.body for document in self.ledger.hosts())) if own and self.ledger else []

    def entry(self) -> t.Optional[Body]:
        """Return the host's entry, by its name."""
        found = self.ledger.find_host(name=self.name) if self.ledger else None
        return found.body if found else None

    def _identify(self) -> tuple[Identity, t.Optional[Document]]:
        answer = self.phase("identify", {"ledger_id": self._ledger_id()})
        said = answer["identity"]
        if answer["libvirt_error"]:
            raise Unreachable(f"Libvirt on {self.name} did not answer, so nothing was saved of it: {answer['libvirt_error']}", "Start libvirt there.")
        identity = Identity(self.name, said["host_id"], said["host_uuid"], said["machine_id"])
        found = entry_of(self.ledger, identity) if self.ledger else None
        if found and found.body.get("ledger_id") not in (None, self._ledger_id()):
            raise Conflict(f"The entry of {self.name} is of the ledger {found.body['ledger_id']}.", "Use that ledger. Nothing was changed.")
        return identity, found

    def _ledger_id(self) -> t.Optional[str]:
        return self.ledger.ledger_id if self.ledger else None

    def _change(self, identity: Identity, change: t.Callable[[Body], Body]) -> Body:
        ledger = t.cast("Ledger", self.ledger)

        def changed(before: t.Optional[Body]) -> Body:
            return change(changed_entry(before, identity.as_dict(), before["state"] if before else "enabled", None, self.by))

        return change_entry(ledger, lambda: entry_of(ledger, identity), changed)

    def _protected(self, own: t.Optional[Body], said: Body) -> None:
        if self.check or self.ledger is None or own is None:
            return
        self._change(_identity_of(own), lambda entry: {**entry, "protected": {**(entry.get("protected") or {}), **said}})


def _identity_of(entry: Body) -> Identity:
    return Identity(entry["name"], entry.get("host_id"), entry.get("host_uuid"), entry.get("machine_id"))


def _differs(before: Body, after: Body, keys: t.Sequence[str]) -> bool:
    return any(before.get(key) != after.get(key) for key in keys)
