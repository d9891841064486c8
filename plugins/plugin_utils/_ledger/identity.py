# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger is known by, whatever keeps it: a document with its UUID, made once; and whether the ledger has moved elsewhere."""

from __future__ import annotations

import typing as t
import uuid
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState, KvmfleetError, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from .audit import genesis
from .encoding import Damaged, Newer, decode, encode
from .keys import is_uuid
from .store import Body

NAME = "ledger.json"
# What an unfinished copy has in its place.
COPYING = "copying"
_AGAIN = "Run the same ledger_copy again: it goes on where it ended, or gives the copy up."


class Found(t.NamedTuple):
    """Where the document was read.

    :arg ledger: what the ledger is called in a sentence.
    :arg document: what the document is.
    :arg restore: what to do where it is damaged.
    """

    ledger: str
    document: str
    restore: str


@dataclass(frozen=True)
class Identity:
    """The document as it was read: :arg data: its bytes."""

    body: Body
    version: int
    data: bytes

    @property
    def ledger_id(self) -> str:
        """The ledger's UUID, the same wherever it is copied to."""
        return str(self.body["ledger_id"])

    @property
    def home(self) -> int:
        """The number of the place that the ledger lives in, counted from 1."""
        return int(self.copied.get("home", 1))

    @property
    def seal(self) -> t.Optional[str]:
        """What the audit chains of its former places come to; None where it has had none."""
        return self.copied.get("seal")

    @property
    def genesis(self) -> str:
        """What stands for the hash of the audit line before the first."""
        return genesis(self.ledger_id, self.seal)

    @property
    def copied(self) -> Body:
        """Where it was copied from: C(from), C(at), C(by), C(home), C(seal); empty where it was not."""
        return self.body.get("copied") or {}

    @property
    def moved(self) -> t.Optional[Body]:
        """Where it has gone, or is going: C(to), C(at), C(by), C(finished); None where it is alive."""
        return self.body.get("moved")

    def leaving(self, to: str, by: str) -> Identity:
        """Return what closes the ledger, as it is copied elsewhere."""
        return self._with(moved={"to": to, "at": utc_now(), "by": by, "finished": False})

    def gone(self) -> Identity:
        """Return what says that the copy is finished."""
        return self._with(moved={**(self.moved or {}), "finished": True})

    def back(self) -> Identity:
        """Return what opens the ledger again, after a copy was given up."""
        return self._with(moved=None)

    def arrived(self, source: str, by: str, seal: str) -> Identity:
        """Return the document of the copy."""
        return self._with(moved=None, copied={"from": source, "at": utc_now(), "by": by, "home": self.home + 1, "seal": seal})

    def _with(self, **changes: t.Any) -> Identity:
        body = {key: value for key, value in {**self.body, **changes}.items() if value is not None}
        return _made(body, self.version + 1)


def _made(body: Body, version: int) -> Identity:
    return Identity(body, version, encode(body, version))


def new() -> Identity:
    """Return the document of a new ledger."""
    return _made({"schema": SCHEMA, "ledger_id": str(uuid.uuid4()), "created_at": utc_now()}, 1)


def identity_in(data: bytes, found: Found) -> Identity:
    """Return what the document says. Raises L(NotSupported) for one of a later version, L(InvalidState) for a damaged one."""
    try:
        document = decode(data)
    except Newer as error:
        raise NotSupported(f"The ledger {found.ledger} is of a later version: {error}.", "Update the collection on this control node.") from error
    except Damaged as error:
        raise InvalidState(f"{found.document} could not be read: {error}. Nothing was changed.", found.restore) from error
    wrong = _wrong(document.body)
    if wrong:
        raise InvalidState(f"{found.document} {wrong}. Nothing was changed.", found.restore)
    return Identity(document.body, document.version, data)


def _wrong(body: Body) -> t.Optional[str]:
    moved, copied = body.get("moved", {"to": "", "finished": True}), body.get("copied", {"home": 2, "seal": ""})
    if not is_uuid(body.get("ledger_id")):
        return "names no ledger_id"
    if not isinstance(moved, dict) or not isinstance(moved.get("to"), str) or not isinstance(moved.get("finished"), bool):
        return "does not say where the ledger has moved to"
    if not isinstance(copied, dict) or not isinstance(copied.get("home"), int) or not isinstance(copied.get("seal"), str):
        return "does not say where the ledger was copied from"
    return None


def refuse_moved(identity: Identity, ledger: str) -> None:
    """Raise L(InvalidState), naming the new place, where the ledger is not the one to be written any more."""
    moved = identity.moved
    if moved is None:
        return
    if moved["finished"]:
        raise InvalidState(
            f"The ledger {ledger} was moved to {moved['to']} at {moved.get('at')} by {moved.get('by')}, and is not written any more. Nothing was changed.",
            f"Set 'ledger' or 'kvmfleet_ledger' to {moved['to']}.",
        )
    raise InvalidState(
        f"The ledger {ledger} is being moved to {moved['to']} since {moved.get('at')} by {moved.get('by')}, and is closed meanwhile. Nothing was changed.",
        _AGAIN,
    )


def replaced(data: t.Optional[bytes], found: Found) -> KvmfleetError:
    """Return why a ledger that was opened is not written: it has another identity now, or none."""
    try:
        if data is not None:
            refuse_moved(identity_in(data, found), found.ledger)
    except KvmfleetError as error:
        return error
    return InvalidState(f"The ledger {found.ledger} was removed or replaced by another one meanwhile. Nothing was written.", "See what became of it.")


def copying_marker(ledger_id: str, source: str, by: str) -> bytes:
    """Return what stands in an unfinished copy; no two are equal, so that a later run takes it over from one that hangs."""
    return encode({"schema": SCHEMA, "ledger_id": ledger_id, "from": source, "by": by, "at": utc_now(), "run": str(uuid.uuid4())}, 1)


def marked_body(data: bytes) -> Body:
    """Return what a marker of an unfinished copy says; nothing where it is damaged."""
    try:
        return decode(data).body
    except (Damaged, Newer):
        return {}


def unfinished(data: bytes, ledger: str) -> InvalidState:
    """Return the refusal of a place that holds an unfinished copy."""
    body = marked_body(data)
    return InvalidState(f"What is at {ledger} is an unfinished copy of the ledger {body.get('from')} ({body.get('ledger_id')}). Nothing was changed.", _AGAIN)
