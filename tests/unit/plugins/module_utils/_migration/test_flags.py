# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import (
    EXCLUSIONS,
    GATES,
    NEEDS,
    MoveOptions,
    check_call,
    check_options,
    check_versions,
    format_version,
    migration_flags,
    migration_parameters,
    versions_under_guest,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidArgument, NotSupported


def test_every_move_has_the_basic_flags() -> None:
    assert migration_flags(MoveOptions(), persistent=True, auto_converge=False) == ["LIVE", "PEER2PEER", "ABORT_ON_ERROR", "PERSIST_DEST", "UNDEFINE_SOURCE"]
    assert migration_flags(MoveOptions(), persistent=False, auto_converge=False) == ["LIVE", "PEER2PEER", "ABORT_ON_ERROR"]
    assert migration_parameters(MoveOptions()) == {}


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (MoveOptions(parallel_connections=4), "PARALLEL"),
        (MoveOptions(compression="xbzrle"), "COMPRESSED"),
        (MoveOptions(tls=True), "TLS"),
        (MoveOptions(unsafe=True), "UNSAFE"),
    ],
)
def test_each_option_adds_only_its_own_flag(options: MoveOptions, flag: str) -> None:
    plain = migration_flags(MoveOptions(), True, False)
    assert migration_flags(options, True, False) == [*plain, flag]


def test_auto_converge_is_a_flag_and_never_comes_with_post_copy() -> None:
    flags = migration_flags(MoveOptions(parallel_connections=2), True, True)
    assert "AUTO_CONVERGE" in flags
    assert "POSTCOPY" not in flags


def test_post_copy_adds_only_its_own_flag() -> None:
    assert migration_flags(MoveOptions(), True, False, post_copy=True) == [*migration_flags(MoveOptions(), True, False), "POSTCOPY"]


def test_options_are_passed_with_the_keys_of_libvirt() -> None:
    options = MoveOptions(bandwidth_mib=32, post_copy_bandwidth_mib=16, parallel_connections=4, compression="zstd", migrate_uri="tcp://10.0.0.2")
    assert migration_parameters(options) == {
        "migrate_uri": "tcp://10.0.0.2",
        "bandwidth": 32,
        "bandwidth.postcopy": 16,
        "parallel.connections": 4,
        "compression": ["zstd"],
    }


@pytest.mark.parametrize(
    "options",
    [
        {"bandwidth_mib": -1},
        {"bandwidth_mib": 10**8},
        {"parallel_connections": 0},
        {"parallel_connections": -4},
        {"parallel_connections": 256},
        {"compression": "mt"},
        {"compression": "xbzrle;rm"},
        {"copy_storage": "all"},
        {"post_copy_bandwidth_mib": -1},
    ],
)
def test_option_values_out_of_bounds_are_refused(options: t.Dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        check_options(MoveOptions(**options))


@pytest.mark.parametrize(
    "options",
    [{"compression": "zlib"}, {"compression": "zstd"}, {"compression": "xbzrle", "parallel_connections": 2}],
)
def test_compression_methods_that_exclude_parallel_connections_are_refused(options: t.Dict[str, t.Any]) -> None:
    with pytest.raises(NotSupported, match=r"compression.*parallel_connections"):
        check_options(MoveOptions(**options))


@pytest.mark.parametrize(
    "options", [{}, {"bandwidth_mib": 10**7}, {"parallel_connections": 255}, {"compression": "xbzrle"}, {"compression": "zlib", "parallel_connections": 1}]
)
def test_valid_options_are_accepted(options: t.Dict[str, t.Any]) -> None:
    check_options(MoveOptions(**options))


NEWEST = 99000000
EXAMPLES = {
    "parallel_connections": MoveOptions(parallel_connections=2),
    "zero_copy": MoveOptions(parallel_connections=2, zero_copy=True),
    "tls": MoveOptions(tls=True),
    "post_copy": MoveOptions(),
    "post_copy_bandwidth_mib": MoveOptions(post_copy_bandwidth_mib=8),
    "compression xbzrle": MoveOptions(compression="xbzrle"),
    "compression zlib": MoveOptions(compression="zlib", parallel_connections=2),
    "compression zstd": MoveOptions(compression="zstd", parallel_connections=2),
    "copy_storage": MoveOptions(copy_storage="auto"),
    "copy_storage_overwrite": MoveOptions(copy_storage_overwrite=("vda",)),
}


def versions(libvirt: int = NEWEST, qemu: int = NEWEST) -> t.Dict[str, int]:
    return {"libvirt": libvirt, "hypervisor": qemu}


def flags_of(options: MoveOptions, feature: str = "") -> t.List[str]:
    return migration_flags(options, True, False, post_copy=feature.startswith("post_copy"))


@pytest.mark.parametrize("method", ["zlib", "zstd"])
@pytest.mark.parametrize(("libvirt", "qemu", "able"), [(9004000, 5000000, True), (9003999, 5000000, False), (9004000, 4999999, False)])
def test_compressed_streams_need_libvirt_9_4_and_qemu_5_0(method: str, libvirt: int, qemu: int, able: bool) -> None:
    options, hosts = EXAMPLES[f"compression {method}"], {"kvm1": versions(libvirt, qemu), "kvm2": versions()}
    with contextlib.nullcontext() if able else pytest.raises(NotSupported, match=f"compression {method} needs"):
        check_versions(options, flags_of(options), hosts)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.feature))
def test_both_hosts_must_have_the_required_versions(gate: t.Any) -> None:
    options = EXAMPLES[gate.feature]
    flags = flags_of(options, gate.feature)
    # What is needed beside the feature itself is there in any case.
    enough = versions(max(gate.libvirt, 5002000), max(gate.qemu, 4000000))
    check_versions(options, flags, {"kvm1": enough, "kvm2": enough})
    for old in ("kvm1", "kvm2"):
        with pytest.raises(NotSupported, match=f"needs libvirt .*{old} has"):
            check_versions(options, flags, {"kvm1": versions(), "kvm2": versions(), old: versions(libvirt=gate.libvirt - 1)})
        if gate.qemu:
            with pytest.raises(NotSupported, match=f"needs QEMU .*{old} has"):
                check_versions(options, flags, {"kvm1": versions(), "kvm2": versions(), old: versions(qemu=gate.qemu - 1)})
    with pytest.raises(NotSupported, match=r"kvm2 has 0\.0\.0"):
        check_versions(options, flags, {"kvm1": versions(), "kvm2": {}})


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: f"{need.feature} needs {need.needs}")
def test_an_option_without_the_option_it_needs_is_refused(need: t.Any) -> None:
    options = EXAMPLES[need.feature]
    alone = dataclasses.replace(options, parallel_connections=None, copy_storage=MoveOptions().copy_storage)
    with pytest.raises(NotSupported, match=f"{need.feature} works only together with {need.needs}"):
        check_versions(alone, flags_of(alone), {"kvm1": versions(), "kvm2": versions()})
    if need.needs != "post_copy":
        with pytest.raises(NotSupported, match=need.needs):
            check_options(alone)


def test_a_post_copy_bandwidth_is_checked_against_the_resolved_policy() -> None:
    options = MoveOptions(post_copy_bandwidth_mib=8)
    check_options(options)
    check_versions(options, flags_of(options, "post_copy"), {"kvm1": versions(), "kvm2": versions()})


@pytest.mark.parametrize("exclusion", EXCLUSIONS, ids=lambda exclusion: " and ".join(exclusion.features))
def test_options_that_exclude_each_other_are_refused_with_the_reason(exclusion: t.Any) -> None:
    first, second = exclusion.features
    compression = second.removeprefix("compression ") if second.startswith("compression") else None
    options = MoveOptions(parallel_connections=2, compression=compression, tls=second == "tls", zero_copy=first == "zero_copy")
    source = {**versions(), "machine": 7999000} if exclusion.machine_since else versions()
    with pytest.raises(NotSupported, match=f"{first} cannot be combined with {second}: {exclusion.why}"):
        check_versions(options, flags_of(options, second), {"kvm1": source, "kvm2": versions(qemu=10000999 if exclusion.qemu_since else NEWEST)})


@pytest.mark.parametrize(("qemu", "passes"), [((7002000, 7002000), False), ((10001000, 10000000), False), ((10001000, 10001000), True)])
def test_parallel_connections_with_post_copy_need_qemu_10_1_on_both_hosts(qemu: t.Tuple[int, int], passes: bool) -> None:
    options = MoveOptions(parallel_connections=2)
    hosts = {"kvm1": versions(qemu=qemu[0]), "kvm2": versions(qemu=qemu[1])}
    check_options(options)
    if passes:
        check_versions(options, flags_of(options, "post_copy"), hosts)
    else:
        with pytest.raises(NotSupported, match="guest is lost"):
            check_versions(options, flags_of(options, "post_copy"), hosts)


@pytest.mark.parametrize("features", [("parallel_connections", "post_copy"), ("parallel_connections", "zero_copy")])
def test_a_guest_whose_qemu_was_replaced_since_its_start_runs_on_an_old_one(features: t.Tuple[str, str]) -> None:
    options = MoveOptions(parallel_connections=2, zero_copy="zero_copy" in features)
    flags = flags_of(options, "post_copy") if "post_copy" in features else []
    check_versions(options, flags, {"kvm1": versions_under_guest(versions(), False, "pc-q35-8.0"), "kvm2": versions()})
    with pytest.raises(NotSupported):
        check_versions(options, flags, {"kvm1": versions_under_guest(versions(), True, "pc-q35-8.0"), "kvm2": versions()})
    check_versions(MoveOptions(parallel_connections=2), [], {"kvm1": versions_under_guest(versions(), True, "pc-q35-8.0"), "kvm2": versions()})
    assert versions_under_guest(versions(qemu=7001000), True, "pc-q35-8.0")["hypervisor"] == 7001000


@pytest.mark.parametrize(
    ("machine", "passes"),
    [
        ("pc-i440fx-7.2", False),
        ("pc-q35-8.0", True),
        ("virt-10.0", True),
        ("s390-ccw-virtio-11.1", True),
        ("pc-q35-rhel9.4.0", False),
        ("pc-q35-noble", False),
        ("q35", False),
        (None, False),
    ],
)
def test_parallel_connections_with_post_copy_need_a_machine_type_that_is_known_to_work(machine: t.Optional[str], passes: bool) -> None:
    """QEMU 11.1 hangs in such a move of a guest with the machine type pc-i440fx-7.2, also after an abort; from 8.0 on it works."""
    options = MoveOptions(parallel_connections=2)
    hosts = {"kvm1": versions_under_guest(versions(), False, machine), "kvm2": versions()}
    check_versions(options, [], hosts)
    if passes:
        check_versions(options, flags_of(options, "post_copy"), hosts)
    else:
        with pytest.raises(NotSupported, match=r"machine type from before QEMU 8\.0"):
            check_versions(options, flags_of(options, "post_copy"), hosts)


@pytest.mark.parametrize(("mode", "flag"), [("auto", "NON_SHARED_DISK"), ("full", "NON_SHARED_DISK"), ("incremental", "NON_SHARED_INC")])
def test_disks_are_copied_only_with_a_list_of_their_targets(mode: str, flag: str) -> None:
    options = MoveOptions(copy_storage=mode)
    assert migration_flags(options, True, False, copied=["vda", "vdb"])[-1] == flag
    assert migration_parameters(options, ["vda", "vdb"]) == {"migrate_disks": ["vda", "vdb"]}
    assert migration_flags(options, True, False) == migration_flags(MoveOptions(), True, False)
    assert migration_parameters(options) == {}
    check_call([flag], {"migrate_disks": ["vda"]})
    for parameters in ({}, {"migrate_disks": []}):
        with pytest.raises(Internal, match="without a list"):
            check_call([flag], parameters)


def test_a_plain_move_requires_no_version() -> None:
    check_versions(MoveOptions(), migration_flags(MoveOptions(), True, True), {"kvm1": {"libvirt": 1}, "kvm2": {}})


@pytest.mark.parametrize(("version", "text"), [(9004000, "9.4.0"), (12005003, "12.5.3"), (0, "0.0.0")])
def test_versions_are_formatted_with_dots(version: int, text: str) -> None:
    assert format_version(version) == text
