# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Libvirt's migration flags and parameters for a move, and the combinations that are refused before anything starts."""

from __future__ import annotations

import dataclasses
import typing as t

from .._errors import InvalidArgument, NotSupported


@dataclasses.dataclass(frozen=True)
class MoveOptions:
    """What the operator wants of the transport of one move. Bandwidth in MiB/s, 0 is no cap."""

    bandwidth_mib: int = 0
    parallel_connections: t.Optional[int] = None
    compression: t.Optional[str] = None
    tls: bool = False
    unsafe: bool = False
    migrate_uri: t.Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Gate:
    """A feature and the lowest libvirt that has it, on both sides."""

    flag: str
    libvirt: int
    what: str


_GATES = (
    Gate("PARALLEL", 5002000, "parallel_connections"),
    Gate("TLS", 3002000, "tls"),
)

_COMPRESSIONS = ("xbzrle", "zlib", "zstd")
_MULTIFD_COMPRESSIONS = ("zlib", "zstd")
_MULTIFD_COMPRESSION_SINCE = 9004000
MAX_BANDWIDTH_MIB = 10**7


def check_options(options: MoveOptions) -> None:
    """Raise L(InvalidArgument) or L(NotSupported) for values and combinations that no version can do."""
    if not 0 <= options.bandwidth_mib <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"bandwidth_mib is {options.bandwidth_mib}.", f"Give a whole number from 0 (no cap) to {MAX_BANDWIDTH_MIB}.")
    if options.parallel_connections is not None and not 1 <= options.parallel_connections <= 255:
        raise InvalidArgument(f"parallel_connections is {options.parallel_connections}.", "Give a whole number from 1 to 255.")
    if options.compression is not None and options.compression not in _COMPRESSIONS:
        raise InvalidArgument(f"compression is {options.compression!r}.", f"Give one of: {', '.join(_COMPRESSIONS)}.")
    if options.compression in _MULTIFD_COMPRESSIONS and not options.parallel_connections:
        raise NotSupported(f"compression {options.compression} works only together with parallel_connections.", "Set both, or use xbzrle.")
    if options.compression == "xbzrle" and options.parallel_connections:
        raise NotSupported("compression xbzrle cannot be combined with parallel_connections.", "Leave one of the two out.")


def migration_flags(options: MoveOptions, persistent: bool, auto_converge: bool, post_copy: bool = False) -> t.List[str]:
    """Return the names of libvirt's flags (C(VIR_MIGRATE_) left out) for a domain that is persistent or transient."""
    flags = ["LIVE", "PEER2PEER", "ABORT_ON_ERROR"]
    if persistent:
        flags += ["PERSIST_DEST", "UNDEFINE_SOURCE"]
    wanted = {
        "AUTO_CONVERGE": auto_converge,
        "POSTCOPY": post_copy,
        "PARALLEL": bool(options.parallel_connections),
        "COMPRESSED": bool(options.compression),
        "TLS": options.tls,
        "UNSAFE": options.unsafe,
    }
    return flags + [flag for flag, is_wanted in wanted.items() if is_wanted]


def migration_parameters(options: MoveOptions) -> t.Dict[str, t.Any]:
    """Return libvirt's typed parameters by their keys (libvirt.md, section 1.2)."""
    given = {
        "migrate_uri": options.migrate_uri,
        "bandwidth": options.bandwidth_mib or None,
        "parallel.connections": options.parallel_connections,
        "compression": [options.compression] if options.compression else None,
    }
    return {key: value for key, value in given.items() if value is not None}


def check_versions(options: MoveOptions, flags: t.Sequence[str], versions: t.Mapping[str, t.Mapping[str, int]]) -> None:
    """Raise L(NotSupported) where a side's libvirt is too old for what is asked.

    :arg versions: host name to C({libvirt, hypervisor}).
    """
    needed = [(gate.what, gate.libvirt) for gate in _GATES if gate.flag in flags]
    if options.compression in _MULTIFD_COMPRESSIONS:
        needed.append((f"compression {options.compression}", _MULTIFD_COMPRESSION_SINCE))
    for what, libvirt in needed:
        for host, version in versions.items():
            if version.get("libvirt", 0) < libvirt:
                raise NotSupported(f"{what} needs libvirt {dotted(libvirt)} on both hosts; {host} has {dotted(version.get('libvirt', 0))}.")


def dotted(version: int) -> str:
    """Return libvirt's version number as people write it: 9004000 is C(9.4.0)."""
    return f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
