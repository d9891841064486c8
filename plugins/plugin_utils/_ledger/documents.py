# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The documents of a ledger: of hosts, of domains, the settings; and any document as it was read, with its version."""

from __future__ import annotations

import contextlib
import functools
import gc
import typing as t
from collections.abc import Iterator
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import codec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe, ShapeError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import FENCING_IMPOSSIBLE, FenceAttempt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import HOST_STATES

from .brake_document import BrakeDocument
from .host_parts import HostSights, ProtectTime


@dataclass(frozen=True)
class GuardStatus:
    """The boot guard of a host as it was last read.

    :arg held_at_boot: whether the host starts no guests automatically when it returns.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    installed: Maybe[bool] = ABSENT
    systemd: Maybe[bool] = ABSENT
    held_at_boot: Maybe[bool] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class HostProtection:
    """What C(protect) wrote about a host.

    :arg at: when this was written; L(ProtectTime) has when the host was protected last.
    :arg token_id: of the grant for clean-shutdown tokens; null for none.
    :arg token_folders: path to nonce, where a token of that grant can be revoked.
    :arg watchdog: null for a host whose lease is not bound to a hardware watchdog.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    guard: Maybe[GuardStatus] = ABSENT
    token_id: Maybe[str] = ABSENT
    token_folders: Maybe[t.Mapping[str, str]] = ABSENT
    watchdog: Maybe[ProtectedWatchdog] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class DiscardDecision:
    """A person's decision that a host will not return."""

    IS_LENIENT: t.ClassVar[bool] = True

    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    reason: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class HostFencing:
    """Whether the host can be fenced, as far as is known. It is empty unless the last run that had to fence the host could not.

    :arg state: C(fencing_impossible).
    :arg since: when the first of these runs wrote this; C(at) when the last one did.
    :arg attempts: of the last one.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    state: Maybe[str] = ABSENT
    since: Maybe[str] = ABSENT
    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    attempts: Maybe[t.Tuple[FenceAttempt, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    @property
    def is_impossible(self) -> bool:
        """Whether no device could switch the host off."""
        return self.state == FENCING_IMPOSSIBLE


@dataclass(frozen=True)
class HostEntry:
    """The document of a host.

    :arg host_key: the key of the document: the host ID, or libvirt's UUID while no host ID is known. The ledger sets it, as C(schema) and C(ledger_id).
    :arg by: who wrote the state or the identity last; C(drained_by) is who cordoned the host for its latest drain.
    :arg since: when the host was enabled, or taken out of service; it stays if the state changes between C(maintenance) and C(fenced).
    :arg addresses: at which the host was reached when it was protected.
    :arg folders: path to nonce of the tokens that the host has left in folders of images; C(unwritable) are those in which none could be written or read
      by the last C(protect), with the reason.
    :arg devices: path to WWN of the block devices of its guests.
    :arg sees: by host ID, which tokens and devices of other hosts it sees; only in entries of version 0.1.0, see L(HostSights).
    :arg adopted: the decisions by which a person confirmed its identity; C(decisions) are the others.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    name: str
    host_id: t.Optional[str]
    host_uuid: t.Optional[str]
    state: str
    schema: t.Union[int, Absent] = ABSENT
    host_key: t.Union[str, Absent] = ABSENT
    ledger_id: Maybe[str] = ABSENT
    machine_id: Maybe[str] = ABSENT
    reason: Maybe[str] = ABSENT
    since: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    drained_by: Maybe[str] = ABSENT
    fencing: Maybe[HostFencing] = ABSENT
    addresses: Maybe[JsonObject] = ABSENT
    protected: Maybe[HostProtection] = ABSENT
    folders: Maybe[t.Mapping[str, str]] = ABSENT
    unwritable: Maybe[t.Mapping[str, str]] = ABSENT
    devices: Maybe[t.Mapping[str, t.Optional[str]]] = ABSENT
    sees: Maybe[JsonObject] = ABSENT
    discarded: Maybe[DiscardDecision] = ABSENT
    adopted: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    decisions: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an invalid state, and for a value that may be missing but is not of its type."""
        if self.state not in HOST_STATES:
            raise ShapeError("state", f"one of {', '.join(HOST_STATES)}", self.state)
        for key in ("reason", "protected", "addresses") if self.extra else ():
            if key in self.extra:
                raise ShapeError(key, "of its type, or null", self.extra[key])

    @property
    def host_ref(self) -> HostRef:
        """The host, as records name it."""
        return HostRef(self.name, self.host_id, self.host_uuid)

    def seen_of(self, host_id: t.Optional[str]) -> JsonObject:
        """Return the tokens and devices of another host that this one sees, by path."""
        found = (self.sees or {}).get(host_id or "")
        return found if isinstance(found, dict) else {}


_HOST_KEYS = frozenset({"host", "host_id", "host_uuid"})


@dataclass(frozen=True)
class DomainRestart:
    """A start of the domain on a survivor, after its host had died.

    :arg at: when its evacuation was done.
    :arg source: the dead host.
    """

    at: str
    source: HostRef
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class MissingNote:
    """The statement that a domain is missing from its host: the host was protected and did not have it, or the host is discarded and a person gave it up.

    :arg boot_id: of the boot in which the host was protected. The domain may have been lost with the boot before.
    """

    at: str
    by: str
    host: HostRef
    boot_id: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class DomainEntry:
    """The document of a domain.

    :arg possible_hosts: on which the domain may be, according to the ledger.
    :arg generation: of its latest record. The ledger sets it, as C(schema).
    :arg last_record: the ID of the record that was closed last.
    :arg protected: what C(protect) has saved, as JSON: of a thousand domains few are read. See C(saved).
    :arg foreign_acts: the last moves, stops and starts of the domain that were done without this collection, the oldest first.
    :arg restarts: the last restarts of the domain by evacuations, the oldest first.
    :arg missing: since when the domain has been missing from its host. See C(is_missing).
    """

    IS_LENIENT: t.ClassVar[bool] = True

    uuid: str
    name: t.Optional[str]
    possible_hosts: t.Tuple[HostRef, ...]
    generation: t.Union[int, Absent] = ABSENT
    schema: t.Union[int, Absent] = ABSENT
    last_record: Maybe[str] = ABSENT
    protected: Maybe[JsonObject] = ABSENT
    foreign_acts: Maybe[t.Tuple[ForeignAct, ...]] = ABSENT
    restarts: Maybe[t.Tuple[DomainRestart, ...]] = ABSENT
    missing: Maybe[MissingNote] = ABSENT
    updated_at: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a value that may be missing but is not of its type."""
        for key in ("generation", "last_record", "protected") if self.extra else ():
            if key in self.extra:
                raise ShapeError(key, "of its type", self.extra[key])

    @functools.cached_property
    def saved(self) -> t.Optional[DomainProtection]:
        """What C(protect) has saved of the domain; None if it was never protected. A key that its host lacks is null, as in possible hosts."""
        if not self.protected:
            return None
        host = self.protected.get("host")
        complete = {**self.protected, "host": {**dict.fromkeys(_HOST_KEYS), **host}} if isinstance(host, dict) else self.protected
        return codec.decode(DomainProtection, complete)

    def includes_host(self, host: HostRef) -> bool:
        """Whether the domain may be on that host."""
        return any(possible.is_same(host) for possible in self.possible_hosts)

    def is_only_on(self, host: HostRef) -> bool:
        """Whether the domain is on that host and on no other."""
        return bool(self.possible_hosts) and all(possible.is_same(host) for possible in self.possible_hosts)

    @property
    def is_missing(self) -> bool:
        """Whether the domain is missing from the only host that may have it: it was deleted, moved by hand, or lost with the host."""
        note = self.missing or None
        return note is not None and self.is_only_on(note.host)

    @property
    def missing_since(self) -> Maybe[str]:
        """Since when the domain has been missing; absent if it is not."""
        return self.missing.at if self.missing and self.is_missing else ABSENT

    @property
    def is_protected(self) -> bool:
        """Whether the domain was saved, and its host still has it."""
        return bool(self.protected) and not self.is_missing

    def is_expected_on(self, host: HostRef) -> bool:
        """Whether the domain may be on that host, and is not missing from it."""
        return self.includes_host(host) and not self.is_missing


@dataclass(frozen=True)
class LedgerSettings:
    """What administrators have decided for all tasks that use the ledger.

    :arg ledger_id: the key of the document.
    :arg override_policy_allowed: whether tasks may use C(override_policy).
    :arg by: who decided that, at C(at), with C(reason); C(decisions) are all decisions so far.
    :arg archives: the archives of closed records and audit lines, by C(id): the path (C(to)), the C(version) of the identity, and C(at), C(by) and C(until)
        of the last run.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    ledger_id: str
    override_policy_allowed: bool
    schema: t.Union[int, Absent] = ABSENT
    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    reason: Maybe[str] = ABSENT
    decisions: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    archives: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)


def read_domain(body: JsonObject) -> DomainEntry:
    """Return the domain in a JSON object. Version 0.1.0 reads a key that a possible host lacks as null, and so does this. Raises L(ShapeError)."""
    hosts = body.get("possible_hosts")
    if not isinstance(hosts, list) or all(host.keys() >= _HOST_KEYS for host in hosts if isinstance(host, dict)):
        return codec.decode(DomainEntry, body)
    complete = [{**dict.fromkeys(_HOST_KEYS), **host} if isinstance(host, dict) else host for host in hosts]
    return codec.decode(DomainEntry, {**body, "possible_hosts": complete})


@dataclass(frozen=True)
class Stored:
    """A record as it was read, with the version that a later change must name."""

    record: MoveRecord
    version: int


@dataclass(frozen=True)
class Document:
    """A document as it was read, with the version that a later change must name."""

    body: dict[str, Json]
    version: int

    @functools.cached_property
    def record(self) -> MoveRecord:
        """The record in this document. Raises L(Internal) for any other document."""
        return read_record(self.body)

    @property
    def stored(self) -> Stored:
        """The record in this document, with its version."""
        return Stored(self.record, self.version)

    @functools.cached_property
    def host(self) -> HostEntry:
        """The host in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(HostEntry, self.body)

    @functools.cached_property
    def sights(self) -> HostSights:
        """The sights of a host in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(HostSights, self.body)

    @functools.cached_property
    def protect_time(self) -> ProtectTime:
        """The time in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(ProtectTime, self.body)

    @functools.cached_property
    def settings(self) -> LedgerSettings:
        """The settings in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(LedgerSettings, self.body)

    @functools.cached_property
    def brake(self) -> BrakeDocument:
        """The state of the brake in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(BrakeDocument, self.body)

    @functools.cached_property
    def maintenance_run(self) -> MaintenanceRun:
        """The maintenance run in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(MaintenanceRun, self.body)

    @functools.cached_property
    def balance_run(self) -> BalanceRun:
        """The balance run in this document. Raises L(ShapeError) for any other document."""
        return codec.decode(BalanceRun, self.body)

    @functools.cached_property
    def domain(self) -> DomainEntry:
        """The domain in this document. Raises L(ShapeError) for any other document."""
        return read_domain(self.body)


@contextlib.contextmanager
def pause_collector() -> Iterator[None]:
    """Pause Python's garbage collector: its repeated search for cycles takes as long as reading documents or facts of many hosts, which have no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
