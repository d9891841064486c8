# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The options of the event source, checked."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LEASE_PORT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_uri

from .libvirt_events import EVENTS

if t.TYPE_CHECKING:
    from .._ledger.etcd.connection import EtcdAddress, EtcdOptions  # pragma: no cover

_GONE_AFTER_SECONDS = 30
_QUEUE_SIZE = 1000
_KNOWN_OPTIONS = ("hosts", "gone_after_seconds", "queue_size", "events", "ledger", "etcd", "election", "ssh_ports", "second_addresses")
_SCHEME = "etcd://"
_SSH_PORT = 22
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))(?::(?P<port>[0-9]{1,5}))?|(?P<bare>[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)")
_ELECTION = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class EtcdLedgerOptions(t.NamedTuple):
    """A ledger in etcd, as the event source uses it."""

    address: EtcdAddress
    options: EtcdOptions


class SourceOptions(t.NamedTuple):
    """Checked options.

    :arg hosts: URIs by name in the inventory.
    :arg events: names of the events that are wanted.
    :arg etcd: the ledger, if it is in etcd: only then are there leases and an election.
    :arg election: sources with the same name elect one of them, which reports hosts; None for no election.
    :arg ssh_ports: the address and the port of SSH by name of the host.
    :arg second_addresses: an address on a second network, and a port, by name of the host.
    """

    hosts: dict[str, str]
    gone_after_seconds: float
    queue_size: int
    events: frozenset[str]
    etcd: t.Optional[EtcdLedgerOptions]
    election: t.Optional[str]
    ssh_ports: dict[str, tuple[str, int]]
    second_addresses: dict[str, tuple[str, int]]


def parse_options(args: JsonObject) -> SourceOptions:
    """Return the options in a source's arguments. Raises L(InvalidArgument), which names the invalid option."""
    unknown = sorted(set(args) - set(_KNOWN_OPTIONS))
    if unknown:
        raise InvalidArgument(f"The event source libvirt has no option {', '.join(unknown)}.", f"It has: {', '.join(_KNOWN_OPTIONS)}.")
    hosts = _read_hosts(args.get("hosts"))
    etcd = _read_etcd(args.get("ledger"), args.get("etcd"))
    return SourceOptions(
        hosts,
        _read_number("gone_after_seconds", args.get("gone_after_seconds", _GONE_AFTER_SECONDS), 1),
        int(_read_number("queue_size", args.get("queue_size", _QUEUE_SIZE), 10)),
        _read_events(args.get("events")),
        etcd,
        _read_election(args.get("election")) if etcd else None,
        _read_addresses("ssh_ports", args.get("ssh_ports"), hosts, _SSH_PORT),
        _read_addresses("second_addresses", args.get("second_addresses"), hosts, LEASE_PORT),
    )


def _read_hosts(hosts: Json) -> dict[str, str]:
    if not isinstance(hosts, Mapping) or not hosts:
        raise InvalidArgument(f"hosts is {hosts!r}.", "Give URIs by the names of hosts, such as {kvm1: qemu+ssh://root@kvm1/system?no_tty=1}.")
    return {str(name): check_uri(uri, f"The URI of {name} in hosts") for name, uri in hosts.items()}


def _read_number(name: str, value: Json, least: int) -> float:
    try:
        number = float(t.cast("float", value))
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    # Values that are not numbers compare as false, too.
    if not least <= number < float("inf"):
        raise InvalidArgument(f"{name} is {value!r}.", f"Give a number, at least {least}.")
    return number


def _read_events(events: Json) -> frozenset[str]:
    if events is None:
        return frozenset(EVENTS)
    if not isinstance(events, list) or not set(map(str, events)) <= set(EVENTS):
        raise InvalidArgument(f"events is {events!r}.", f"Give a list of these: {', '.join(EVENTS)}.")
    return frozenset(map(str, events))


def _read_etcd(ledger: Json, etcd: Json) -> t.Optional[EtcdLedgerOptions]:
    """Return the ledger; None for one in a folder, which has no leases and no election. An empty text or dictionary is as good as none."""
    if ledger is not None and not isinstance(ledger, str):
        raise InvalidArgument("ledger is not a text.", "Give a folder, or etcd://host:2379/prefix, as in kvmfleet_ledger.")
    if not ledger or not ledger.lower().startswith(_SCHEME):
        return None
    # A ledger in a folder needs none of this.
    from .._ledger.etcd.connection import parse_address, read_options

    address = parse_address(ledger)
    return EtcdLedgerOptions(address, read_options(etcd or None, address))


def _read_election(name: Json) -> t.Optional[str]:
    if name is None:
        return None
    if not isinstance(name, str) or not _ELECTION.fullmatch(name):
        raise InvalidArgument(f"election is {name!r}.", "Give a name of a-z, 0-9, '-' and '_'.")
    return name


def _read_addresses(option: str, given: Json, hosts: Mapping[str, str], port: int) -> dict[str, tuple[str, int]]:
    """Return addresses and ports by host, from texts such as C(10.0.1.11) or C(10.0.1.11:22)."""
    if given in (None, ""):
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{option} is {given!r}.", "Give addresses by the names of hosts, such as {kvm1: 10.0.1.11:22}.")
    unknown = sorted(str(name) for name in given if name not in hosts)
    if unknown:
        raise InvalidArgument(f"{option} names {unknown[0]!r}, which is not in hosts.", "Add it to hosts, or remove it here.")
    return {str(name): _read_address(f"{option} of {name}", value, port) for name, value in given.items()}


def _read_address(what: str, value: Json, port: int) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    number = int(found["port"] or port) if found else 0
    if not found or not 0 < number < 2**16:
        raise InvalidArgument(f"The {what} is {value!r}.", "Give an address, such as 10.0.1.11, 10.0.1.11:22 or [fd00::11]:22.")
    return found["six"] or found["bare"] or found["host"], number
