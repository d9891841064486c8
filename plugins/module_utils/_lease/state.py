# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The files of the lease on a host: its state in this boot, and how far its count is used up."""

from __future__ import annotations

import dataclasses
import json
import os
import typing as t

from .._dataclass import dataclass
from .._files import replace_file, replace_volatile_file
from .._model.clock import BootMoment, boot_moment
from .._model.codec import ABSENT, Absent, JsonObject, decode, encode
from .._model.errors import Internal
from .config import LeaseConfig
from .view import ENDED, OwnView

STATE_FILE = "/run/kvmfleet/lease.json"
COUNT_FILE = "/var/lib/kvmfleet/lease-count"
_MODE = 0o600
LATEST_SECONDS = 3600.0
"""A renewal arrives after no longer than that: TCP gives up earlier."""
BLOCK = 100_000
"""So many renewals are reserved on disk at once: several days of them. A boot begins with the next block, so some numbers are never used."""


@dataclass(frozen=True)
class Promise:
    """Lists of hosts that renewals in one etcd may show: without a lease, the host runs on only if a majority of each has none there.

    :arg store: what stands for that etcd, see L(LeaseConfig).
    :arg until: until when one of these renewals may still arrive there, in seconds of this boot; absent for the etcd in which the host renews its lease.
    """

    store: str
    fleets: t.Tuple[t.Tuple[str, ...], ...]
    until: t.Union[float, Absent] = ABSENT


@dataclass(frozen=True)
class LeaseState:
    """What the service knows in this boot; written before each renewal is sent, and when one was acknowledged.

    :arg at: when this was written.
    :arg count: the number of the last renewal that may have been sent.
    :arg reserved: the last number that may be used without another block on disk.
    :arg held_until: as in L(OwnView), in seconds of this boot.
    :arg runs_until: until when the host may keep running without another question, in seconds of this boot; 0 if it never had a lease in this boot. The test
        of the watchdog reads this key without a parser of JSON.
    :arg fleets: lists of hosts, of the last renewal that was acknowledged and of those that were sent since.
    :arg acknowledged_revision: of etcd, at which the last renewal was acknowledged; 0 for none in this boot.
    :arg path: how etcd was reached last; empty if it was not reached.
    :arg problem: why the last renewal was not acknowledged; empty if it was.
    :arg store: what stands for the etcd of the lease; absent in the state of an earlier version.
    :arg former: what was promised in former ones: until the first renewal in this one is acknowledged, and none of there can arrive any more.
    """

    at: BootMoment
    host_id: str
    count: int
    reserved: int
    held_until: float
    runs_until: float
    held_since: int
    fleets: t.Tuple[t.Tuple[str, ...], ...]
    acknowledged_revision: int
    path: str
    problem: str
    store: t.Union[str, Absent] = ABSENT
    former: t.Union[t.Tuple[Promise, ...], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def view(self) -> OwnView:
        """The host's own view."""
        return OwnView(self.held_until, self.held_since)

    @property
    def promises(self) -> t.Tuple[Promise, ...]:
        """What was promised in each etcd, the present one last."""
        return (*(self.former or ()), *((Promise(self.store or "", self.fleets),) if self.fleets else ()))

    def change_store(self, store: str, now: float) -> LeaseState:
        """Return the state of a host that is given another etcd: it has no lease there. What it has promised in the former one still holds."""
        if self.store in (ABSENT, store):
            return dataclasses.replace(self, store=store)
        view = ENDED if self.view.was_held else OwnView()
        former = tuple(dataclasses.replace(one, until=now + LATEST_SECONDS) if one.until is ABSENT else one for one in self.promises)
        return dataclasses.replace(self, store=store, held_until=view.held_until, held_since=0, fleets=(), former=former or ABSENT, acknowledged_revision=0)


def all_hosts(config: LeaseConfig) -> Promise:
    """Return what a host has promised that has lost what it knew of that."""
    return Promise(config.store, (config.host_ids,))


def read_lease_state(path: str = STATE_FILE) -> t.Optional[LeaseState]:
    """Return the state in this boot; null if there is none. Raises L(Internal) if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            state = decode(LeaseState, json.load(stream))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise Internal(f"The state of the lease, {path}, cannot be read: {error}.", "The service writes it anew at the next renewal.") from error
    return state if state.at.boot_id == boot_moment().boot_id else None


def write_lease_state(state: LeaseState, path: str = STATE_FILE) -> None:
    """Replace the state. Raises C(OSError)."""
    replace_volatile_file(path, json.dumps(encode(state)) + "\n", _MODE)


def reserve_counts(least: int, path: str = COUNT_FILE) -> int:
    """Reserve a block of numbers above C(least) and above all that were reserved before, durably; return its last number.

    No number of it is used before this returns, so none is used twice, whenever the host dies. Raises C(OSError), and L(Internal) for a file that is damaged.
    """
    reserved = max(read_reserved_count(path) or 0, least) + BLOCK
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    replace_file(path, f"{reserved}\n", 0o644)
    return reserved


def read_reserved_count(path: str = COUNT_FILE) -> t.Optional[int]:
    """Return the last number that was reserved; null without a file. Raises L(Internal) for a file that is damaged."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            text = stream.read(64).strip()
    except FileNotFoundError:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise Internal(f"{path} holds {text[:40]!r}, which is not a number: renewals cannot be numbered.", "Run the task host_lease for this host again.")
    return int(text)
