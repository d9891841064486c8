# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""libvirt's migration flags and parameters for a move. Tables state the versions that a feature needs, and the features that exclude each other."""

from __future__ import annotations

import re
import typing as t

from .._dataclass import dataclass
from .._model.codec import Json, JsonObject
from .._model.errors import Internal, InvalidArgument, NotSupported
from .._model.policies import COMPRESSIONS, COPY_MODES, NO_COPY

COPY_FLAGS = {"auto": "NON_SHARED_DISK", "full": "NON_SHARED_DISK", "incremental": "NON_SHARED_INC"}
MAX_BANDWIDTH_MIB = 10**7


@dataclass(frozen=True)
class MoveOptions:
    """The options for the transport of one move. Bandwidth in MiB/s, 0 is no cap. No task sets C(zero_copy): it is decided (C(streams))."""

    bandwidth_mib: int = 0
    post_copy_bandwidth_mib: t.Optional[int] = None
    parallel_connections: t.Optional[int] = None
    compression: t.Optional[str] = None
    tls: bool = False
    unsafe: bool = False
    migrate_uri: t.Optional[str] = None
    copy_storage: str = NO_COPY
    copy_storage_overwrite: t.Tuple[str, ...] = ()
    zero_copy: bool = False


@dataclass(frozen=True)
class Gate:
    """The lowest libvirt and QEMU that have a feature, on both sides, as libvirt's version numbers (docs/libvirt.md, "Versions of features")."""

    feature: str
    libvirt: int
    qemu: int = 0


@dataclass(frozen=True)
class Exclusion:
    """Two features that cannot be combined; C(qemu_since) and C(machine_since) are the first QEMU and the first machine type with which they can."""

    features: t.Tuple[str, str]
    why: str
    next_step: str
    qemu_since: int = 0
    machine_since: int = 0

    @property
    def depends_on_host(self) -> bool:
        """Whether the options alone do not decide."""
        return bool(self.qemu_since or self.machine_since)


@dataclass(frozen=True)
class Need:
    """A feature that works only together with another one."""

    feature: str
    needs: str
    next_step: str


GATES = (
    Gate("parallel_connections", 5002000, 4000000),
    Gate("zero_copy", 8005000, 10002000),
    Gate("tls", 3002000, 2007000),
    Gate("post_copy", 1003003, 2006000),
    Gate("post_copy_bandwidth_mib", 5001000, 3000000),
    Gate("compression xbzrle", 1003004),
    Gate("compression zlib", 9004000, 5000000),
    Gate("compression zstd", 9004000, 5000000),
    Gate("copy_storage", 1002017),
)

EXCLUSIONS = (
    Exclusion(
        ("parallel_connections", "post_copy"),
        "before QEMU 10.1 the guest is lost when such a move switches over, and a guest runs on the QEMU that was installed when it started",
        "Leave one of the two out, for example with parallel_connections unset.",
        qemu_since=10001000,
    ),
    Exclusion(
        ("parallel_connections", "post_copy"),
        "such a move of a guest with a machine type from before QEMU 8.0, or of an unknown age, can hang without end",
        "Leave one of the two out, for example with parallel_connections unset.",
        machine_since=8000000,
    ),
    Exclusion(
        ("parallel_connections", "compression xbzrle"),
        "xbzrle works on a single stream",
        "Use zlib or zstd with parallel_connections, or leave one of the two out.",
    ),
    *(
        Exclusion(("zero_copy", feature), "zero-copy sends the pages of the guest as they are, and only in pre-copy", "Leave one of the two out.")
        for feature in ("tls", "compression zlib", "compression zstd", "post_copy")
    ),
)

NEEDS = (
    Need("zero_copy", "parallel_connections", "Set both."),
    Need("compression zlib", "parallel_connections", "Set both, or use xbzrle."),
    Need("compression zstd", "parallel_connections", "Set both, or use xbzrle."),
    Need("copy_storage_overwrite", "copy_storage", "Set copy_storage to auto, full or incremental as well."),
    Need("post_copy_bandwidth_mib", "post_copy", "Permit post_copy by the task or the domain's policy, or leave post_copy_bandwidth_mib out."),
)

# Those of QEMU itself: RHEL has pc-q35-rhel9.4.0, Ubuntu pc-q35-noble.
_VERSIONED_MACHINE = re.compile(r"[a-z0-9-]+-(\d+)\.(\d+)")

# The oldest QEMU that a host of a fleet is expected to have.
OLDEST_QEMU = 7002000

# Features that the policy decides: the options of a task alone do not determine them.
_OF_POLICY = ("post_copy",)


def check_options(options: MoveOptions) -> None:
    """Raise L(InvalidArgument) or L(NotSupported) for values and combinations that no version supports, as far as the options alone determine it."""
    _check_bandwidth("bandwidth_mib", options.bandwidth_mib)
    _check_bandwidth("post_copy_bandwidth_mib", options.post_copy_bandwidth_mib or 0)
    if options.parallel_connections is not None and not 1 <= options.parallel_connections <= 255:
        raise InvalidArgument(f"parallel_connections is {options.parallel_connections}.", "Give a whole number from 1 to 255.")
    if options.compression is not None and options.compression not in COMPRESSIONS:
        raise InvalidArgument(f"compression is {options.compression!r}.", f"Give one of: {', '.join(COMPRESSIONS)}.")
    if options.copy_storage not in COPY_MODES:
        raise InvalidArgument(f"copy_storage is {options.copy_storage!r}.", f"Give one of: {', '.join(COPY_MODES)}.")
    wanted = requested_features(options)
    _check_needs(wanted, [need for need in NEEDS if need.needs not in _OF_POLICY])
    for exclusion in EXCLUSIONS:
        if not exclusion.depends_on_host:
            _check_exclusion(wanted, exclusion, {})


def check_combination(options: MoveOptions, flags: t.Sequence[str]) -> None:
    """Raise L(NotSupported) for a feature without the one that it needs, once the policy is known: no host can carry such a move out."""
    _check_needs(requested_features(options, flags), NEEDS)


def check_versions(options: MoveOptions, flags: t.Sequence[str], versions: t.Mapping[str, t.Mapping[str, int]]) -> None:
    """Raise L(NotSupported) if the requested features cannot be combined on these hosts, or a host is too old for them.

    :arg versions: host name to C({libvirt, hypervisor}), for the source as L(versions_under_guest) returns it.
    """
    check_combination(options, flags)
    wanted = requested_features(options, flags)
    for exclusion in EXCLUSIONS:
        _check_exclusion(wanted, exclusion, versions)
    for gate in GATES:
        if gate.feature in wanted:
            _check_gate(gate, versions)


def versions_under_guest(versions: t.Mapping[str, int], qemu_replaced: bool, machine: t.Optional[str]) -> t.Mapping[str, int]:
    """Return the versions of libvirt and QEMU that move a guest away from a host, and C(machine), the QEMU that its machine type behaves like.

    A guest keeps the QEMU that it was started with. If that was replaced since, its version is not known, and it counts as the oldest. The machine
    types of distributions do not name a version of QEMU; it is 0 then.

    :arg versions: C({libvirt, hypervisor}) as the host reports them.
    :arg machine: the machine type of the guest, e.g. C(pc-q35-8.2).
    """
    named = _VERSIONED_MACHINE.fullmatch(machine or "")
    qemu = min(versions.get("hypervisor", 0), OLDEST_QEMU) if qemu_replaced else versions.get("hypervisor", 0)
    return {**versions, "hypervisor": qemu, "machine": int(named[1]) * 1000000 + int(named[2]) * 1000 if named else 0}


def requested_features(options: MoveOptions, flags: t.Sequence[str] = ()) -> t.FrozenSet[str]:
    """Return the requested features, by their names in the tables."""
    requested = {
        "parallel_connections": bool(options.parallel_connections),
        f"compression {options.compression}": bool(options.compression),
        "zero_copy": options.zero_copy,
        "tls": options.tls,
        "copy_storage": options.copy_storage != NO_COPY,
        "copy_storage_overwrite": bool(options.copy_storage_overwrite),
        "post_copy_bandwidth_mib": bool(options.post_copy_bandwidth_mib),
        "post_copy": "POSTCOPY" in flags,
    }
    return frozenset(feature for feature, is_requested in requested.items() if is_requested)


def migration_flags(options: MoveOptions, persistent: bool, auto_converge: bool, post_copy: bool = False, copied: t.Sequence[str] = ()) -> t.List[str]:
    """Return the names of libvirt's flags (C(VIR_MIGRATE_) left out) for a domain that is persistent or transient.

    :arg copied: targets of the disks that are copied. Without any, the copy flags are omitted: for libvirt an empty list means all disks.
    """
    flags = ["LIVE", "PEER2PEER", "ABORT_ON_ERROR"]
    if persistent:
        flags += ["PERSIST_DEST", "UNDEFINE_SOURCE"]
    wanted = {
        "AUTO_CONVERGE": auto_converge,
        "POSTCOPY": post_copy,
        "PARALLEL": bool(options.parallel_connections),
        "ZEROCOPY": options.zero_copy,
        "COMPRESSED": bool(options.compression),
        "TLS": options.tls,
        "UNSAFE": options.unsafe,
    }
    flags += [flag for flag, is_wanted in wanted.items() if is_wanted]
    return [*flags, COPY_FLAGS[options.copy_storage]] if copied else flags


def migration_parameters(options: MoveOptions, copied: t.Sequence[str] = ()) -> t.Dict[str, Json]:
    """Return libvirt's typed parameters by their keys."""
    given = {
        "migrate_uri": options.migrate_uri,
        "bandwidth": options.bandwidth_mib or None,
        "bandwidth.postcopy": options.post_copy_bandwidth_mib or None,
        "parallel.connections": options.parallel_connections,
        "compression": [options.compression] if options.compression else None,
        "migrate_disks": list(copied) or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def check_call(flags: t.Iterable[str], parameters: JsonObject) -> None:
    """Raise L(Internal) if libvirt would be called to copy without a list of disks: it would copy all."""
    if set(flags) & set(COPY_FLAGS.values()) and not parameters.get("migrate_disks"):
        raise Internal("A copy of storage was requested without a list of disks. Nothing was started.")


def format_version(version: int) -> str:
    """Return libvirt's version number in dotted form: 9004000 is C(9.4.0)."""
    return f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"


def _check_bandwidth(option: str, mib: int) -> None:
    if not 0 <= mib <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"{option} is {mib}.", f"Give a whole number from 0 (no cap) to {MAX_BANDWIDTH_MIB}.")


def _check_needs(wanted: t.AbstractSet[str], needs: t.Iterable[Need]) -> None:
    for need in needs:
        if need.feature in wanted and need.needs not in wanted:
            raise NotSupported(f"{need.feature} works only together with {need.needs}.", f"{need.next_step} Nothing was moved.")


def _check_exclusion(wanted: t.AbstractSet[str], exclusion: Exclusion, versions: t.Mapping[str, t.Mapping[str, int]]) -> None:
    first, second = exclusion.features
    if not {first, second} <= wanted:
        return
    new_enough = all(
        version.get("hypervisor", 0) >= exclusion.qemu_since and version.get("machine", exclusion.machine_since) >= exclusion.machine_since
        for version in versions.values()
    )
    if not exclusion.depends_on_host or not new_enough:
        raise NotSupported(f"{first} cannot be combined with {second}: {exclusion.why}.", f"{exclusion.next_step} Nothing was moved.")


def _check_gate(gate: Gate, versions: t.Mapping[str, t.Mapping[str, int]]) -> None:
    for host, version in versions.items():
        for what, key, lowest in (("libvirt", "libvirt", gate.libvirt), ("QEMU", "hypervisor", gate.qemu)):
            if version.get(key, 0) < lowest:
                found = format_version(version.get(key, 0))
                raise NotSupported(f"{gate.feature} needs {what} {format_version(lowest)} on both hosts; {host} has {found}.", "Nothing was moved.")
