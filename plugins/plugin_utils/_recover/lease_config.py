# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The configuration of the lease of a host, from the inventory, the ledger and its etcd."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig, LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.watchdog import choose_interval, compute_reset_seconds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_address

from .._ledger.documents import HostEntry
from .._ledger.etcd.client import Client
from .._ledger.etcd.connection import SCHEME, EtcdAddress, EtcdOptions, parse_address, read_options
from .._ledger.etcd.leases import LeaseReader
from .._ledger.host_entries import read_hosts
from .._ledger.ledger import Ledger
from .._settings.certificates import describe_expiry, read_validities
from .._settings.lease import LEASE_VARIABLE, LeaseSettings, WatchdogSettings, read_lease_settings
from .._settings.options import unusable_file_error
from .._settings.variables import SECOND_ADDRESS, LedgerLocation, Settings

LEAST_MEMBERS = 3
_NOTHING = "Nothing was changed."


@dataclass(frozen=True)
class LeasePlan:
    """What a host gets.

    :arg tls: the contents of C(ca_file), C(cert_file) and C(key_file), as far as they are needed.
    :arg least_count: the number of the last renewal in etcd.
    :arg watchdog: null for a host whose lease is bound to none.
    """

    config: LeaseConfig
    tls: t.Mapping[str, str]
    least_count: int
    warnings: tuple[str, ...]
    watchdog: t.Optional[WatchdogSettings] = None

    def keeps_reset(self, seen: ProtectedWatchdog) -> bool:
        """Whether the host is still reset by that watchdog, and not later than C(protect) saw, once it has this plan."""
        own = self.watchdog
        if own is None or (own.device and own.device != seen.device):
            return False
        return compute_reset_seconds(own.seconds, choose_interval(own.seconds), self.config.grace_seconds) <= seen.reset_seconds


def connect(location: LedgerLocation) -> tuple[Client, EtcdOptions]:
    """Return a client of the etcd that has the ledger. Raises L(InvalidArgument) for a ledger in a folder."""
    where = location.location
    if not isinstance(where, str) or not where.lower().startswith(SCHEME):
        raise InvalidArgument(
            f"A lease needs a ledger in etcd, and this one is {where or 'the folder of the user'}.",
            f"Set kvmfleet_ledger to etcd://host:2379,host:2379,host:2379/prefix (ledger_copy moves a ledger there). {_NOTHING}",
        )
    address = parse_address(where)
    options = read_options(location.etcd, address)
    return Client(address, options), options


def plan_lease(host: str, settings: Settings, ledger: Ledger, client: Client, options: EtcdOptions) -> LeasePlan:
    """Return what the host gets. Raises L(InvalidArgument) or L(NotFound) with a sentence if it cannot have a lease."""
    address, own = client.address, read_lease_settings(settings.of(host, LEASE_VARIABLE), host)
    _check_reachable(address)
    if own.user == options.user:
        raise InvalidArgument(
            f"{LEASE_VARIABLE} of {host} has the user {own.user!r} of kvmfleet_etcd, which may write the whole ledger.",
            f"Give each host a user of its own, as docs/etcd.md describes. {_NOTHING}",
        )
    hosts = read_hosts(ledger)
    entries = {entry.name: entry for entry in hosts.entries if entry.host_id and not entry.discarded}
    if host not in entries:
        raise NotFound(f"{host} was never protected: the ledger {ledger.name} has no identity for it.", f"Run protect_host for it first. {_NOTHING}")
    fleet, warnings = _list_fleet(host, settings, entries)
    if warnings and hosts.unreadable:
        # With fewer peers, fewer of them would be a majority.
        raise Conflict(f"{' '.join(warnings)} One of them can be a host whose document cannot be read. {hosts.unreadable[0].problem}", _NOTHING)
    reader = LeaseReader(client)
    warnings += _check_members(reader, address)
    host_id = str(entries[host].host_id)
    seen = reader.read_leases().leases.get(host_id)
    config = LeaseConfig(
        host_id=host_id,
        name=host,
        cluster_id=str(client.cluster_id),
        endpoints=tuple(map(str, address.endpoints)),
        prefix=address.prefix,
        tls=options.tls,
        user=own.user,
        password=own.password,
        lease_seconds=own.lease_seconds,
        renew_seconds=own.renew_seconds,
        port=own.port,
        relay=own.relay,
        fleet=fleet,
    )
    tls = _read_tls(own, options, host)
    warnings += _find_expiring(own, tls, host)
    return LeasePlan(config, tls, seen.lease.count if seen else 0, tuple(warnings), own.watchdog)


def _check_reachable(address: EtcdAddress) -> None:
    local = [str(endpoint) for endpoint in address.endpoints if endpoint.is_local]
    if local:
        raise InvalidArgument(
            f"The ledger {address} names {local[0]}, which is the control node itself: hosts cannot reach etcd there.",
            f"Name the members in kvmfleet_ledger as hosts reach them. {_NOTHING}",
        )


def _list_fleet(host: str, settings: Settings, entries: t.Mapping[str, HostEntry]) -> tuple[tuple[LeasePeer, ...], list[str]]:
    """Return the hosts that have a lease, and a sentence for those that are left out because they were never protected."""
    given = {name: settings.of(name, LEASE_VARIABLE) for name in sorted({host, *settings.fleet()})}
    wanted = {name: read_lease_settings(value, name) for name, value in given.items() if value not in (None, "")}
    _check_own_users(wanted)
    fleet = tuple(
        LeasePeer(str(entries[name].host_id), name, _list_addresses(settings, name), own.port, own.relay) for name, own in wanted.items() if name in entries
    )
    left = [name for name in wanted if name not in entries]
    notes = [f"{', '.join(left)} have {LEASE_VARIABLE}, but were never protected: they are no peers of {host} until host_lease runs again."] if left else []
    return fleet, notes


def _check_own_users(wanted: t.Mapping[str, LeaseSettings]) -> None:
    """Raise L(InvalidArgument) if two hosts have one user: each could then renew the lease of the other."""
    owners: dict[str, str] = {}
    for name, own in wanted.items():
        other = owners.setdefault(own.user, name)
        if other != name:
            raise InvalidArgument(f"{LEASE_VARIABLE} of {other} and {name} have the same user, {own.user!r}.", f"Give each host a user of its own. {_NOTHING}")


def _list_addresses(settings: Settings, host: str) -> tuple[str, ...]:
    """Return the address of a host, and the one on a second network after it."""
    second = settings.of(host, SECOND_ADDRESS)
    addresses = [settings.of(host, "ansible_host", host), *([second] if second else [])]
    return tuple(dict.fromkeys(check_address(str(address)).strip("[]") for address in addresses))


def _check_members(reader: LeaseReader, address: EtcdAddress) -> list[str]:
    """Raise L(InvalidArgument) for an etcd whose loss of one member would end all leases. Return a sentence if that cannot be known."""
    try:
        members = reader.count_members()
    except Forbidden:
        return [f"The user of kvmfleet_etcd may not list the members of {address}, so it is not known whether etcd survives the loss of one."]
    if members < LEAST_MEMBERS:
        raise InvalidArgument(
            f"The etcd of the ledger {address} has {members} member{'s' if members > 1 else ''}: it would not survive the loss of one, and all leases with it.",
            f"Use {LEAST_MEMBERS} members or more. {_NOTHING}",
        )
    return []


def _read_tls(own: LeaseSettings, options: EtcdOptions, host: str) -> dict[str, str]:
    """Return the contents of the files with which a host reaches etcd. Its certificate is never that of the control node."""
    if options.cert_file and not own.cert_file:
        raise InvalidArgument(
            f"kvmfleet_etcd has a client certificate, and {LEASE_VARIABLE} of {host} has none: etcd would refuse the host.",
            f"Give cert_file and key_file of a certificate for hosts, on the control node. {_NOTHING}",
        )
    files = {"ca_file": options.ca_file, "cert_file": own.cert_file, "key_file": own.key_file} if options.tls else {}
    return {name: _read_file(path, name, host) for name, path in files.items() if path}


def _find_expiring(own: LeaseSettings, tls: t.Mapping[str, str], host: str) -> list[str]:
    """Return a sentence if the certificate that the host presents to etcd expires soon."""
    presented = read_validities(tls.get("cert_file", "").encode("ascii"))[:1]
    consequence = f"{host} cannot renew its lease after that{', and its watchdog may reset it' if own.watchdog else ''}"
    return [
        f"The cert_file {own.cert_file} of {LEASE_VARIABLE} of {host} {expiry}: {consequence}. Renew it, and run host_lease before."
        for expiry in filter(None, map(describe_expiry, presented))
    ]


def _read_file(path: str, name: str, host: str) -> str:
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read()
    except (OSError, ValueError) as error:
        raise unusable_file_error(f"{name} {path}", f"{LEASE_VARIABLE} of {host}", error) from error
