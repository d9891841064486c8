# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import (
    MoveOptions,
    check_options,
    check_versions,
    dotted,
    migration_flags,
    migration_parameters,
)


def test_what_every_move_is_asked_with() -> None:
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
def test_each_option_adds_its_flag_and_no_other(options: MoveOptions, flag: str) -> None:
    plain = migration_flags(MoveOptions(), True, False)
    assert migration_flags(options, True, False) == [*plain, flag]


def test_auto_converge_is_a_flag_and_never_comes_with_post_copy() -> None:
    flags = migration_flags(MoveOptions(parallel_connections=2), True, True)
    assert "AUTO_CONVERGE" in flags
    assert "POSTCOPY" not in flags


def test_the_parameters_have_libvirt_s_keys() -> None:
    options = MoveOptions(bandwidth_mib=32, parallel_connections=4, compression="zstd", migrate_uri="tcp://10.0.0.2")
    assert migration_parameters(options) == {
        "migrate_uri": "tcp://10.0.0.2",
        "bandwidth": 32,
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
    ],
)
def test_values_out_of_bounds_are_named(options: t.Dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        check_options(MoveOptions(**options))


@pytest.mark.parametrize(
    "options",
    [{"compression": "zlib"}, {"compression": "zstd"}, {"compression": "xbzrle", "parallel_connections": 2}],
)
def test_what_no_libvirt_can_combine_is_not_supported(options: t.Dict[str, t.Any]) -> None:
    with pytest.raises(NotSupported, match=r"compression.*parallel_connections"):
        check_options(MoveOptions(**options))


@pytest.mark.parametrize(
    "options", [{}, {"bandwidth_mib": 10**7}, {"parallel_connections": 255}, {"compression": "xbzrle"}, {"compression": "zlib", "parallel_connections": 1}]
)
def test_what_can_be_done_passes(options: t.Dict[str, t.Any]) -> None:
    check_options(MoveOptions(**options))


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (MoveOptions(parallel_connections=2), 5002000),
        (MoveOptions(tls=True), 3002000),
        (MoveOptions(parallel_connections=2, compression="zlib"), 9004000),
    ],
)
def test_both_sides_must_be_new_enough(options: MoveOptions, needed: int) -> None:
    flags = migration_flags(options, True, False)
    check_versions(options, flags, {"kvm1": {"libvirt": needed}, "kvm2": {"libvirt": needed}})
    for old in ("kvm1", "kvm2"):
        versions = {"kvm1": {"libvirt": 12005000}, "kvm2": {"libvirt": 12005000}, old: {"libvirt": needed - 1}}
        with pytest.raises(NotSupported, match=f"{old} has"):
            check_versions(options, flags, versions)
    with pytest.raises(NotSupported, match=r"kvm2 has 0\.0\.0"):
        check_versions(options, flags, {"kvm1": {"libvirt": needed}, "kvm2": {}})


def test_a_plain_move_needs_no_version() -> None:
    check_versions(MoveOptions(), migration_flags(MoveOptions(), True, True), {"kvm1": {"libvirt": 1}, "kvm2": {}})


@pytest.mark.parametrize(("version", "text"), [(9004000, "9.4.0"), (12005003, "12.5.3"), (0, "0.0.0")])
def test_versions_read_as_people_write_them(version: int, text: str) -> None:
    assert dotted(version) == text
