# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The variable C(kvmfleet_lease) of a host: as whom and how often it renews its lease in etcd."""

from __future__ import annotations

import os
import re
import typing as t
from collections.abc import Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LEASE_PORT, LEASE_SECONDS, RENEW_SECONDS

from .options import read_text
from .variables import read_port

LEASE_VARIABLE = "kvmfleet_lease"
_KEYS = ("user", "password", "lease_seconds", "renew_seconds", "port", "relay", "cert_file", "key_file", "watchdog")
_WATCHDOG_KEYS = ("device", "seconds")
_LEAST_SECONDS, _MOST_SECONDS = 6, 300
# Below, a host that is busy for a moment would be reset; above, the wait for its reset is no use.
_LEAST_WATCHDOG, _MOST_WATCHDOG, WATCHDOG_SECONDS = 5, 60, 10
_DEVICE = re.compile(r"/dev/watchdog\d+", re.ASCII)
_NOTHING = "Nothing was changed."


@dataclass(frozen=True)
class WatchdogSettings:
    """The watchdog to which a lease is bound.

    :arg device: null for the only hardware watchdog that the host has.
    :arg seconds: how long after the last ping the device resets the host.
    """

    device: t.Optional[str]
    seconds: int


@dataclass(frozen=True)
class LeaseSettings:
    """How a host renews its lease. Files are paths on the control node.

    :arg port: on which it answers the other hosts.
    :arg relay: whether other hosts may reach etcd through it.
    """

    user: str
    password: str = field(repr=False)
    lease_seconds: int
    renew_seconds: int
    port: int
    relay: bool
    cert_file: t.Optional[str]
    key_file: t.Optional[str]
    watchdog: t.Optional[WatchdogSettings] = None


def read_lease_settings(value: Json, host: str) -> LeaseSettings:
    """Return the settings in a value of C(kvmfleet_lease). Raises L(InvalidArgument), never showing a password."""
    where = f"{LEASE_VARIABLE} of {host}"
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{where} is not set, or is not a dictionary.", f"It knows {', '.join(_KEYS)}. {_NOTHING}")
    unknown = sorted(str(key) for key in value if key not in _KEYS)
    if unknown:
        raise InvalidArgument(f"{where} has unknown keys: {unknown[0]!r}.", f"It knows {', '.join(_KEYS)}. {_NOTHING}")
    user, password, cert_file, key_file = (read_text(value.get(key), key, where) for key in ("user", "password", "cert_file", "key_file"))
    if not user or not password:
        raise InvalidArgument(
            f"{where} has no {'password' if user else 'user'}: without a user of etcd that may write its own lease only, a host could write the ledger.",
            f"Make the user as docs/etcd.md describes, and give user and password. {_NOTHING}",
        )
    if bool(cert_file) != bool(key_file):
        raise InvalidArgument(f"{where} has only one of cert_file and key_file.", f"Give both, or neither. {_NOTHING}")
    lease_seconds = _read_seconds(value.get("lease_seconds", LEASE_SECONDS), "lease_seconds", where, _LEAST_SECONDS)
    renew_seconds = _read_seconds(value.get("renew_seconds", RENEW_SECONDS), "renew_seconds", where, 1)
    if renew_seconds * 3 > lease_seconds:
        raise InvalidArgument(
            f"{where}: with renew_seconds {renew_seconds}, a lease of {lease_seconds} s could end although only two renewals were late.",
            f"Give lease_seconds of at least {renew_seconds * 3}, or renew more often. {_NOTHING}",
        )
    port = read_port(value.get("port", LEASE_PORT), f"port of {where}")
    relay = _read_switch(value.get("relay", False), where)
    cert_path, key_path = (os.path.expanduser(file) if file else None for file in (cert_file, key_file))
    watchdog = _read_watchdog(value.get("watchdog"), f"watchdog of {where}")
    return LeaseSettings(user, password, lease_seconds, renew_seconds, port, relay, cert_path, key_path, watchdog)


def _read_watchdog(value: Json, where: str) -> t.Optional[WatchdogSettings]:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{where} is not a dictionary.", f"It knows {' and '.join(_WATCHDOG_KEYS)}; {{}} takes the defaults. {_NOTHING}")
    unknown = sorted(str(key) for key in value if key not in _WATCHDOG_KEYS)
    if unknown:
        raise InvalidArgument(f"{where} has unknown keys: {unknown[0]!r}.", f"It knows {' and '.join(_WATCHDOG_KEYS)}. {_NOTHING}")
    device = read_text(value.get("device"), "device", where)
    if device and not _DEVICE.fullmatch(device):
        raise InvalidArgument(f"device of {where} is {device[:40]!r}.", f"Give a path such as /dev/watchdog0. {_NOTHING}")
    seconds = _read_seconds(value.get("seconds", WATCHDOG_SECONDS), "seconds", where, _LEAST_WATCHDOG, _MOST_WATCHDOG)
    return WatchdogSettings(device or None, seconds)


def _read_seconds(value: Json, key: str, where: str, least: int, most: int = _MOST_SECONDS) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and len(text) < 6 and least <= int(text) <= most):
        raise InvalidArgument(f"{key} of {where} is {text[:40]!r}.", f"Give a whole number from {least} to {most}. {_NOTHING}")
    return int(text)


def _read_switch(value: Json, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"relay of {where} is neither true nor false.", _NOTHING)
    return value
