# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""References to hosts and domains, the one comparison that decides whether two references mean the same host, and the answers of hosts about domains."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid as uuid_module

from .._dataclass import dataclass
from .codec import ABSENT, Absent, Json, JsonObject, Maybe, decode
from .errors import InvalidArgument, KvmfleetError


@dataclass(frozen=True)
class HostRef:
    """One host, as the source or the destination of a move names it.

    If the firmware has no usable UUID, libvirt makes a random one at each start of its daemon, and some boards all have the same one. Therefore libvirt's
    UUID counts only if one of the two has no host ID.

    :arg host: the inventory name.
    :arg host_id: the collection's own ID, which it keeps on the host.
    :arg host_uuid: libvirt's.
    """

    host: t.Optional[str]
    host_id: t.Optional[str]
    host_uuid: t.Optional[str]
    extra: t.Mapping[str, Json] = dataclasses.field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether it names a host. libvirt does not report the destination of a foreign job."""
        return bool(self.host or self.host_id or self.host_uuid)

    @property
    def label(self) -> str:
        """The host for messages."""
        return self.host or self.host_id or self.host_uuid or "an unknown host"

    def is_same(self, other: HostRef) -> bool:
        """Whether both mean one host: by the first of host ID, libvirt's UUID and name that both have."""
        pairs = ((self.host_id, other.host_id), (self.host_uuid, other.host_uuid), (self.host, other.host))
        return next((one == another for one, another in pairs if one and another), False)

    def may_be(self, other: HostRef) -> bool:
        """Whether both can mean one host: they do, or one of them has no host ID and they have one name. Permits nothing by itself."""
        has_ids = bool(self.host_id and other.host_id)
        return self.is_same(other) or (not has_ids and bool(self.host) and self.host == other.host)

    def is_same_answer(self, other: HostRef) -> bool:
        """Whether two answers of one moment came from one host, which was reached in two ways.

        A daemon that runs has one UUID. So two answers with one host ID and different UUIDs come from two hosts, of which one has a copy of the other's ID.
        """
        if self.is_twin(other):
            return False
        by_id = bool(self.host_id and other.host_id)
        return self.is_same(other) if by_id else bool(self.host_uuid and self.host_uuid == other.host_uuid)

    def is_twin(self, other: HostRef) -> bool:
        """Whether two answers of one moment have one host ID, but come from two hosts."""
        return _are_equal(self.host_id, other.host_id) and _are_different(self.host_uuid, other.host_uuid)

    def shares_uuid(self, other: HostRef) -> bool:
        """Whether two hosts have the same libvirt UUID, so that libvirt refuses to migrate between them."""
        return _are_equal(self.host_uuid, other.host_uuid) and _are_different(self.host_id, other.host_id)


def host_of(document: t.Mapping[str, Json]) -> HostRef:
    """Return the host that a JSON object names by its keys C(host), C(host_id) and C(host_uuid), each of which may be missing.

    The object is a source, a destination, a possible host of a domain, facts, an answer, or an entry of the ledger. The last three name no inventory host.
    """
    return HostRef(_read_text(document, "host"), _read_text(document, "host_id"), _read_text(document, "host_uuid"))


def _read_text(document: t.Mapping[str, Json], key: str) -> t.Optional[str]:
    value = document.get(key)
    return value if isinstance(value, str) else None


def _are_equal(one: t.Optional[str], other: t.Optional[str]) -> bool:
    return bool(one) and one == other


def _are_different(one: t.Optional[str], other: t.Optional[str]) -> bool:
    return bool(one and other) and one != other


@dataclass(frozen=True)
class HostIdentifiers:
    """What a host reports about its identity; null for an ID that it does not have, or could not read.

    :arg ledger_id: the ledger under which the host was protected.
    """

    host_id: t.Optional[str]
    host_uuid: t.Optional[str]
    machine_id: t.Optional[str]
    ledger_id: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class IdentityAnswer:
    """The answer of a host that was asked for its identity.

    :arg libvirt_error: why its libvirt did not answer; null if it did.
    :arg remembered: the records of moves that the host remembers; absent if it was not asked for them.
    """

    identity: HostIdentifiers
    libvirt_error: t.Optional[str]
    remembered: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DomainRef:
    """One domain. Its UUID identifies it; its name is for people."""

    uuid: str
    name: t.Optional[str]
    extra: JsonObject = dataclasses.field(default_factory=dict)


def canonical_uuid(uuid: t.Optional[str]) -> t.Optional[str]:
    """Return the option C(uuid) as libvirt writes UUIDs, null if it is not set. Raises L(InvalidArgument) if it is not a UUID."""
    try:
        return None if uuid is None else str(uuid_module.UUID(uuid))
    except ValueError as error:
        raise InvalidArgument(f"uuid is {uuid!r}, which is not a UUID.", "Give it as 8-4-4-4-12 hexadecimal digits.") from error


def parse_uuid(text: str) -> str:
    """Return a UUID as libvirt writes it. Raises L(InvalidArgument) for anything else, whatever its type."""
    try:
        return str(uuid_module.UUID(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"{text!r} is not a UUID.") from error


@dataclass(frozen=True)
class DomainPresence:
    """A domain that a host has, defined or active."""

    active: bool
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HostAnswer:
    """The answer of one host, or the reason why it did not answer.

    :arg host_id: the host's own ID; null if it has none, or was not queried for it.
    :arg domains: by UUID, those of the domains in question that the host has.
    :arg msg: why the host did not answer.
    """

    answered: bool
    host_id: t.Union[str, Absent, None] = ABSENT
    host_uuid: t.Union[str, Absent, None] = ABSENT
    domains: t.Union[t.Mapping[str, DomainPresence], Absent] = ABSENT
    msg: t.Union[str, Absent] = ABSENT
    error_code: t.Union[str, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def as_host(self, name: t.Optional[str] = None) -> HostRef:
        """Return the host that has answered.

        :arg name: the name under which it was queried, if the name is to be compared too.
        """
        return HostRef(name, self.host_id or None, self.host_uuid or None)

    def find_domain(self, uuid: str) -> t.Optional[DomainPresence]:
        """Return a domain that the host has; null if it has none of that UUID, or did not answer."""
        return self.domains.get(uuid) if self.domains else None

    @property
    def active_uuids(self) -> t.List[str]:
        """The domains that are active on the host."""
        return [uuid for uuid, domain in self.domains.items() if domain.active] if self.domains else []


def silent_answer(error: KvmfleetError) -> HostAnswer:
    """Return the answer of a host that is silent, with the reason."""
    return decode(HostAnswer, {"answered": False, **error.as_result()})
