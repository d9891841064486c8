# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of the module C(host_lease): installing and removing the service."""

from __future__ import annotations

import typing as t

from .._host_identity import check_ledger_id, read_host_id
from .._model.codec import Json, decode
from .._model.errors import Conflict
from .._model.libvirt_formats import parse_ip
from .._module import Phase, Result, require_local, require_root
from .._systemd import UnitChange, choose_interpreter
from .asking import list_unreachable
from .config import LeaseConfig, LeasePeer
from .install import NOT_RUN, PROGRAM_FILE, install_lease, remove_lease
from .view import majority
from .watchdog_install import WatchdogChange, WatchdogOptions, install_watchdog, unbind_watchdog

NAMES_FILE = "/etc/hosts"


class _Install(t.TypedDict):
    """The input of L(install)."""

    config: Json
    watchdog: Json
    tls: t.Dict[str, str]
    least_count: int
    ledger_id: str
    check: bool


class _Remove(t.TypedDict):
    """The input of L(remove)."""

    ledger_id: t.Optional[str]
    check: bool


def install(uri: str, work: _Install) -> Result:
    """Install the service, and bind the watchdog if C(watchdog) has its options. Raises L(Conflict) if the host has another identity or another ledger."""
    require_root()
    require_local(uri)
    check_ledger_id(work["ledger_id"])
    config = decode(LeaseConfig, work["config"])
    host_id = read_host_id()
    if host_id != config.host_id:
        raise Conflict(
            f"The ledger has the host ID {config.host_id} for {config.name}, and the host itself has {host_id or 'none'}. Nothing was changed.",
            "Run protect_host for it first.",
        )
    options = None if work["watchdog"] is None else decode(WatchdogOptions, work["watchdog"])
    if options:
        # What forbids it is found before anything is changed.
        _bind(options, check=True)
    change = install_lease(config, work["tls"], work["least_count"], check_mode=work["check"])
    bound = _bind(options, work["check"]) if options else unbind_watchdog(check_mode=work["check"])
    warnings = [
        *([] if change.systemd else [NOT_RUN]),
        *change.warnings,
        *bound.warnings,
        *([*_warn_of_names(config), *_warn_of_ports(config)] if options else []),
    ]
    return {**_describe_change(change, bound), "warnings": warnings}


def _warn_of_names(config: LeaseConfig) -> t.List[str]:
    """Return a warning for a host with a watchdog whose peers cannot be asked without DNS: it would be reset as if it alone had lost its lease."""
    names = ", ".join(_list_names_of_dns(config.peers))
    why = f"If DNS fails together with etcd, or etcd because of it, the watchdog resets {config.name}."
    how = "Set their ansible_host or kvmfleet_second_address to an IP address, or add their names to /etc/hosts."
    return [f"{names}: {config.name} needs DNS to ask them. {why} {how}"] if names else []


def _warn_of_ports(config: LeaseConfig) -> t.List[str]:
    """Return a warning for a host with a watchdog that can ask too few peers: if etcd failed, it would be reset, as if it alone had lost its lease."""
    lost = list_unreachable(config.peers)
    if len(config.host_ids) - len(lost) >= majority(len(config.host_ids)):
        return []
    where = ", ".join(f"{peer.name} (port {peer.port})" for peer in lost)
    why = f"If etcd fails, the watchdog resets {config.name}, like every other host that cannot ask most of them."
    return [f"{where}: {config.name} cannot ask them whether they have their leases. {why} Let firewalls permit that port between the hosts."]


def _list_names_of_dns(peers: t.Iterable[LeasePeer]) -> t.List[str]:
    """Return the peers of which this host knows neither an IP address nor a name in its own file."""
    try:
        with open(NAMES_FILE, encoding="utf-8", errors="replace") as stream:
            known = {name.lower() for line in stream for name in line.partition("#")[0].split()[1:]}
    except OSError:
        known = set()
    return [peer.name for peer in peers if not any(parse_ip(address.partition("%")[0]) or address.lower() in known for address in peer.addresses)]


def remove(uri: str, work: _Remove) -> Result:
    """Remove the service, and the test of the watchdog before it.

    Raises L(Conflict) if the host belongs to another ledger, which would take its silence for a reset by the watchdog.
    """
    require_root()
    require_local(uri)
    check_ledger_id(work["ledger_id"])
    unbound = unbind_watchdog(check_mode=work["check"])
    change = remove_lease(check_mode=work["check"])
    return {**_describe_change(change, unbound), "warnings": list(unbound.warnings)}


def _bind(options: WatchdogOptions, check: bool) -> WatchdogChange:
    return install_watchdog(options, choose_interpreter(), PROGRAM_FILE, check_mode=check)


def _describe_change(change: UnitChange, watchdog: WatchdogChange) -> Result:
    files = [*change.files, *watchdog.files]
    return {"changed": bool(files), "files": files, "systemd": change.systemd}


PHASES: t.Mapping[str, Phase] = {"install": install, "remove": remove}
