# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The identity of a ledger: a document with its UUID, created once, which also states whether the ledger has moved to another store."""

from __future__ import annotations

import typing as t
import uuid
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, KvmfleetError, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA

from .audit import genesis_hash
from .document_bytes import Damaged, Newer, decode_document, encode_document
from .rules import is_uuid

IDENTITY_NAME = "ledger.json"
# The document of an unfinished copy.
COPYING_NAME = "copying"
# An archive is no location of a ledger.
_NO_HOME = 0
_RUN_AGAIN = "Run the same ledger_copy again: it continues the copy or abandons it."


class IdentitySource(t.NamedTuple):
    """Where the document was read.

    :arg ledger: the name of the ledger in a sentence.
    :arg document: what the document is.
    :arg restore: what to do if it is damaged.
    """

    ledger: str
    document: str
    restore: str


@dataclass(frozen=True)
class MovedLedger:
    """Where the ledger was moved, or is being moved.

    :arg finished: whether the copy is complete.
    """

    to: str
    finished: bool
    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class CopiedLedger:
    """Where the ledger was copied from.

    :arg home: the number of its current location; C(seal) is the digest of the audit chains of its former locations.
    """

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"source": "from"}

    home: int
    seal: str
    source: Maybe[str] = ABSENT
    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class ArchiveOrigin:
    """What an archive is of: the ledger from which closed records and audit lines were moved to it, last C(at), by whom.

    :arg until: the records that were moved last had been closed before it.
    :arg id: a UUID of the archive, wherever its folder is.
    """

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"source": "of"}

    source: str
    until: str
    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    id: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class IdentityContent:
    """The content of the document.

    :arg archive: of an archive, which is no ledger but is read like one. For a version without archives, it has also C(moved).
    """

    ledger_id: str
    schema: int
    created_at: Maybe[str] = ABSENT
    moved: t.Union[MovedLedger, Absent] = ABSENT
    copied: t.Union[CopiedLedger, Absent] = ABSENT
    archive: t.Union[ArchiveOrigin, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an ID that is not a UUID."""
        if not is_uuid(self.ledger_id):
            raise ShapeError("ledger_id", "a UUID", self.ledger_id)


@dataclass(frozen=True)
class LedgerIdentity:
    """The document as it was read: :arg data: its bytes."""

    content: IdentityContent
    version: int
    data: bytes

    @property
    def ledger_id(self) -> str:
        """The ledger's UUID, the same wherever it is copied to."""
        return self.content.ledger_id

    @property
    def home(self) -> int:
        """The number of the ledger's current location, counted from 1."""
        return self.content.copied.home if self.content.copied else 1

    @property
    def seal(self) -> t.Optional[str]:
        """The digest of the audit chains of its former locations; None if it had none."""
        return self.content.copied.seal if self.content.copied else None

    @property
    def genesis_hash(self) -> str:
        """The value that takes the place of the hash before the first audit line."""
        return genesis_hash(self.ledger_id, self.seal)

    @property
    def copied_from(self) -> t.Optional[str]:
        """The name of the ledger that it was copied from; None if it was not copied."""
        return (self.content.copied.source or None) if self.content.copied else None

    @property
    def moved(self) -> t.Optional[MovedLedger]:
        """Where it was moved, or is being moved; None if it is in use."""
        return self.content.moved or None

    @property
    def archive_of(self) -> t.Optional[str]:
        """The name of the ledger that this is an archive of; None for a ledger."""
        return self.content.archive.source if self.content.archive else None

    @property
    def archive_id(self) -> t.Optional[str]:
        """The ID of the archive; None for a ledger."""
        return (self.content.archive.id or None) if self.content.archive else None

    def begin_move(self, to: str, by: str) -> LedgerIdentity:
        """Return the document that closes the ledger while it is copied elsewhere."""
        return self._replace_content(replace(self.content, moved=MovedLedger(to, False, utc_now(), by)))

    def finish_move(self) -> LedgerIdentity:
        """Return the document that marks the copy as finished."""
        moved = replace(self.content.moved, finished=True) if self.content.moved else self.content.moved
        return self._replace_content(replace(self.content, moved=moved))

    def cancel_move(self) -> LedgerIdentity:
        """Return the document that opens the ledger again after an abandoned copy."""
        return self._replace_content(replace(self.content, moved=ABSENT))

    def make_copy(self, source: str, by: str, seal: str) -> LedgerIdentity:
        """Return the document of the copy."""
        return self._replace_content(replace(self.content, moved=ABSENT, copied=CopiedLedger(self.home + 1, seal, source, utc_now(), by)))

    def make_archive(self, source: str, until: str, by: str, seal: str, before: t.Optional[LedgerIdentity]) -> LedgerIdentity:
        """Return the document of an archive of this ledger.

        :arg seal: the digest of its audit chains.
        :arg before: its document so far.
        """
        at = utc_now()
        content = IdentityContent(
            self.ledger_id,
            SCHEMA,
            before.content.created_at if before else at,
            moved=MovedLedger(source, True, at, by),
            copied=CopiedLedger(_NO_HOME, seal, source, at, by),
            archive=ArchiveOrigin(source, until, at, by, (before and before.archive_id) or str(uuid.uuid4())),
        )
        return _make_identity(content, before.version + 1 if before else 1)

    def reseal_archive(self, seal: str) -> LedgerIdentity:
        """Return the document of the archive with another digest of its audit chains."""
        copied = replace(self.content.copied, seal=seal) if self.content.copied else self.content.copied
        return self._replace_content(replace(self.content, copied=copied))

    def _replace_content(self, content: IdentityContent) -> LedgerIdentity:
        return _make_identity(content, self.version + 1)


def _make_identity(content: IdentityContent, version: int) -> LedgerIdentity:
    return LedgerIdentity(content, version, encode_document(content, version))


def new_identity() -> LedgerIdentity:
    """Return the document of a new ledger."""
    return _make_identity(IdentityContent(str(uuid.uuid4()), SCHEMA, utc_now()), 1)


def decode_identity(data: bytes, found: IdentitySource) -> LedgerIdentity:
    """Return the identity in the document. Raises L(NotSupported) for one of a later version, L(InvalidState) for a damaged one."""
    try:
        document = decode_document(data)
    except Newer as error:
        raise NotSupported(f"The ledger {found.ledger} is of a later version: {error}.", "Update the collection on this control node.") from error
    except Damaged as error:
        raise InvalidState(f"{found.document} could not be read: {error}. Nothing was changed.", found.restore) from error
    try:
        return LedgerIdentity(decode(IdentityContent, document.body), document.version, data)
    except ShapeError as error:
        raise InvalidState(f"{found.document} {_describe_problem(error)}. Nothing was changed.", found.restore) from error


def _describe_problem(error: ShapeError) -> str:
    if error.path.startswith("moved"):
        return "does not say where the ledger has moved to"
    return "does not say where the ledger was copied from" if error.path.startswith("copied") else "names no ledger_id"


def refuse_moved(identity: LedgerIdentity, ledger: str) -> None:
    """Raise L(InvalidState), which names the new location, if this ledger must no longer be written."""
    moved = identity.moved
    if moved is None:
        return
    if identity.archive_of is not None:
        raise InvalidState(
            f"{ledger} is an archive of the ledger {identity.archive_of}, and can only be read. Nothing was changed.",
            f"Set 'ledger' or 'kvmfleet_ledger' to {identity.archive_of}.",
        )
    if moved.finished:
        raise InvalidState(
            f"The ledger {ledger} was moved to {moved.to} at {moved.at or None} by {moved.by or None}, and is no longer written. Nothing was changed.",
            f"Set 'ledger' or 'kvmfleet_ledger' to {moved.to}.",
        )
    raise InvalidState(
        f"The ledger {ledger} is being moved to {moved.to} since {moved.at or None} by {moved.by or None}, and is closed meanwhile. Nothing was changed.",
        _RUN_AGAIN,
    )


def replaced_error(data: t.Optional[bytes], found: IdentitySource) -> KvmfleetError:
    """Return the error for an opened ledger that now has another identity, or none."""
    try:
        if data is not None:
            refuse_moved(decode_identity(data, found), found.ledger)
    except KvmfleetError as error:
        return error
    return InvalidState(f"The ledger {found.ledger} was removed or replaced by another one meanwhile. Nothing was written.", "Find out what happened to it.")


@dataclass(frozen=True)
class CopyMarker:
    """The content of a location while a ledger is being copied to it.

    :arg source: the name of the ledger that is copied.
    :arg run: a UUID, so that no two markers are the same.
    """

    IS_LENIENT: t.ClassVar[bool] = True
    KEYS: t.ClassVar[t.Mapping[str, str]] = {"source": "from"}

    ledger_id: Maybe[str] = ABSENT
    source: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    at: Maybe[str] = ABSENT
    run: Maybe[str] = ABSENT
    schema: Maybe[int] = ABSENT
    extra: JsonObject = field(default_factory=dict)


def copying_marker(ledger_id: str, source: str, by: str) -> bytes:
    """Return the marker of an unfinished copy; each is unique, so that a later run can take over the copy of a run that hangs."""
    return encode_document(CopyMarker(ledger_id, source, by, utc_now(), str(uuid.uuid4()), SCHEMA), 1)


def decode_marker(data: bytes) -> CopyMarker:
    """Return the content of the marker of an unfinished copy; empty if it is damaged."""
    try:
        return decode(CopyMarker, decode_document(data).body)
    except (Damaged, Newer):
        return CopyMarker()


def missing_ledger_error(ledger: str) -> NotFound:
    """Return the error for a location without a ledger, which is not to be created. A second ledger of a fleet would not know where its domains may be."""
    return NotFound(
        f"There is no ledger at {ledger}.",
        "If the fleet has one, set kvmfleet_ledger to it, or restore it from a backup. Otherwise the first task that moves a domain or cordons a host"
        " creates it.",
    )


def lost_identity_step(what: str, elsewhere: str) -> str:
    """Return the next step for a location with other data and no identity: it may be a ledger that has lost it.

    :arg what: what holds the identity in that store; C(elsewhere) is where another ledger may be.
    """
    return (
        f"If it is a ledger that has lost its {IDENTITY_NAME}, restore that {what} from a backup: a second ledger would not know where the domains may be. "
        f"Otherwise set 'ledger' to {elsewhere}."
    )


def unfinished_copy_error(data: bytes, ledger: str) -> InvalidState:
    """Return the error for a location with an unfinished copy."""
    marker = decode_marker(data)
    return InvalidState(
        f"The data at {ledger} are an unfinished copy of the ledger {marker.source or None} ({marker.ledger_id or None}). Nothing was changed.", _RUN_AGAIN
    )
