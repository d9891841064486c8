# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How many connections carry the memory of a move, and whether without copying it in the kernel, where the task does not say."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._model.errors import NotSupported
from .flags import MoveOptions, check_versions

# What one connection carries: QEMU fills it from one thread.
CONNECTION_MIB = 1000
# From this rate on, a second connection is worth its thread.
FAST_MIB = 1500
MAX_CONNECTIONS = 8
# From this rate on, the copy of each page into the kernel is what limits the source (25 Gbit/s).
ZERO_COPY_MIB = 2900
# QEMU locks more than the memory of the guest: that of its devices, and its own.
LOCK_OVERHEAD_BYTES = 1024**3
_MIB = 1024**2
_ONE = "One connection carries the memory: "


@dataclass(frozen=True)
class StreamFacts:
    """What the decision is made from.

    :arg link_mib: speed of the link in MiB/s; null if it is not known.
    :arg memory_mib: memory of the guest.
    :arg cpus: of the host that has fewer; null if that is not known.
    :arg is_pinned: whether vCPUs or the emulator of the guest are pinned to CPUs of the host.
    :arg post_copy: whether the move may be switched over to post-copy.
    :arg is_tcp: whether the memory is sent over TCP.
    :arg memory_lock_bytes: how much memory the QEMU process may lock; null if that is not known.
    :arg versions: host name to C({libvirt, hypervisor}).
    """

    link_mib: t.Optional[int]
    memory_mib: int
    cpus: t.Optional[int]
    is_pinned: bool
    post_copy: bool
    is_tcp: bool
    memory_lock_bytes: t.Optional[int]
    versions: t.Mapping[str, t.Mapping[str, int]]


@dataclass(frozen=True)
class StreamChoice:
    """The decision: null for a single plain connection, and the reason as a sentence; empty if there was nothing to decide."""

    connections: t.Optional[int] = None
    zero_copy: bool = False
    reason: str = ""

    def apply_to(self, options: MoveOptions) -> MoveOptions:
        """Return the options with which the move is started."""
        return dataclasses.replace(options, parallel_connections=self.connections, zero_copy=self.zero_copy) if self.connections else options


def choose_streams(options: MoveOptions, facts: StreamFacts) -> StreamChoice:
    """Return the decision for one move. C(parallel_connections) of the task goes first, and is not changed."""
    usable_mib = min(facts.link_mib or 0, options.bandwidth_mib or facts.link_mib or 0)
    if options.parallel_connections or usable_mib < FAST_MIB:
        return StreamChoice()
    connections = min(MAX_CONNECTIONS, -(-usable_mib // CONNECTION_MIB), facts.cpus or 1)
    chosen = dataclasses.replace(options, parallel_connections=connections)
    why_not = _find_obstacle(chosen, facts)
    if why_not:
        return StreamChoice(reason=f"{_ONE}{why_not}")
    zero_copy = _may_use_zero_copy(dataclasses.replace(chosen, zero_copy=True), facts, usable_mib)
    how = " without copying it in the kernel" if zero_copy else ""
    return StreamChoice(connections, zero_copy, f"{connections} connections carry the memory{how}, because the link carries {usable_mib} MiB/s.")


def _find_obstacle(chosen: MoveOptions, facts: StreamFacts) -> str:
    """Return why several connections cannot be used, as the end of a sentence; empty if they can."""
    if facts.is_pinned:
        return "the guest is pinned to CPUs of the host, which the threads of further connections would share."
    if not facts.is_tcp:
        return "the memory is not sent over TCP."
    if (chosen.parallel_connections or 0) < 2:
        return "the hosts do not have CPUs for the threads of further ones." if facts.cpus else "it is not known how many CPUs the hosts have."
    return _find_conflict(chosen, facts)


def _find_conflict(chosen: MoveOptions, facts: StreamFacts) -> str:
    """Return which rule of versions and features is violated; empty if none is."""
    try:
        check_versions(chosen, ("POSTCOPY",) if facts.post_copy else (), facts.versions)
    except NotSupported as error:
        return error.message
    return ""


def _may_use_zero_copy(chosen: MoveOptions, facts: StreamFacts, usable_mib: int) -> bool:
    required_bytes = facts.memory_mib * _MIB + LOCK_OVERHEAD_BYTES
    is_lockable = facts.memory_lock_bytes is not None and facts.memory_lock_bytes >= required_bytes
    return usable_mib >= ZERO_COPY_MIB and is_lockable and not _find_conflict(chosen, facts)
