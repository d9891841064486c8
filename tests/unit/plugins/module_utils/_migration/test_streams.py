# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decision about the connections of a move."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.streams import (
    LOCK_OVERHEAD_BYTES,
    StreamChoice,
    StreamFacts,
    choose_streams,
)

NEW = {"libvirt": 11003000, "hypervisor": 10002000}
OLD = {"libvirt": 9000000, "hypervisor": 7002000}
GIB = 1024**3


def facts(**changes: t.Any) -> StreamFacts:
    """Two hosts on a link of 40 Gbit/s with everything that is needed for zero-copy."""
    given: t.Dict[str, t.Any] = {
        "link_mib": 4600,
        "memory_mib": 4096,
        "cpus": 16,
        "is_pinned": False,
        "post_copy": False,
        "is_tcp": True,
        "memory_lock_bytes": 2**63 - 1,
        "versions": {"kvm1": NEW, "kvm2": NEW},
    }
    return StreamFacts(**{**given, **changes})


def mixed(**changes: t.Any) -> StreamFacts:
    return facts(versions={"kvm1": OLD, "kvm2": NEW}, **changes)


# What is known, the options of the task, and the expected connections and zero-copy with a word of the reason.
CASES: t.Dict[str, t.Tuple[StreamFacts, MoveOptions, t.Optional[int], bool, str]] = {
    "the link is not known": (facts(link_mib=None), MoveOptions(), None, False, ""),
    "a link of 1 Gbit/s": (facts(link_mib=110), MoveOptions(), None, False, ""),
    "a link of 10 Gbit/s": (facts(link_mib=1180), MoveOptions(), None, False, ""),
    "a link of 20 Gbit/s": (facts(link_mib=2300), MoveOptions(), 3, False, "3 connections carry the memory, because the link carries 2300 MiB/s."),
    "a link of 40 Gbit/s": (facts(), MoveOptions(), 5, True, "5 connections carry the memory without copying it in the kernel"),
    "a link of 200 Gbit/s": (facts(link_mib=23000), MoveOptions(), 8, True, "8 connections"),
    "few CPUs": (facts(cpus=2), MoveOptions(), 2, True, "2 connections"),
    "one CPU": (facts(cpus=1), MoveOptions(), None, False, "do not have CPUs"),
    "CPUs are not known": (facts(cpus=None), MoveOptions(), None, False, "not known how many CPUs"),
    "a cap below": (facts(), MoveOptions(bandwidth_mib=1000), None, False, ""),
    "a cap above": (facts(), MoveOptions(bandwidth_mib=2000), 2, False, "2 connections carry the memory, because the link carries 2000 MiB/s."),
    "the task decides for one": (facts(), MoveOptions(parallel_connections=1), None, False, ""),
    "the task decides for many": (facts(), MoveOptions(parallel_connections=32), None, False, ""),
    "pinned": (facts(is_pinned=True), MoveOptions(), None, False, "pinned"),
    "RDMA": (facts(is_tcp=False), MoveOptions(), None, False, "not sent over TCP"),
    "post-copy with an older QEMU": (mixed(post_copy=True), MoveOptions(), None, False, "the guest is lost"),
    "post-copy with newer ones": (facts(post_copy=True), MoveOptions(), 5, False, "5 connections carry the memory, "),
    "an older QEMU": (mixed(), MoveOptions(), 5, False, "5 connections carry the memory, "),
    "a QEMU before parallel connections": (facts(versions={"kvm1": {**OLD, "hypervisor": 3001000}, "kvm2": NEW}), MoveOptions(), None, False, "kvm1 has 3.1.0"),
    "an unknown version": (facts(versions={"kvm1": NEW, "kvm2": {}}), MoveOptions(), None, False, "kvm2 has 0.0.0"),
    "xbzrle": (facts(), MoveOptions(compression="xbzrle"), None, False, "xbzrle works on a single stream"),
    "TLS": (facts(), MoveOptions(tls=True), 5, False, "5 connections carry the memory, "),
    "the memory lock is not known": (facts(memory_lock_bytes=None), MoveOptions(), 5, False, "5 connections carry the memory, "),
    "the memory lock is too low": (facts(memory_lock_bytes=4 * GIB), MoveOptions(), 5, False, "5 connections carry the memory, "),
    "the memory lock suffices": (facts(memory_lock_bytes=4 * GIB + LOCK_OVERHEAD_BYTES), MoveOptions(), 5, True, "without copying"),
    "too slow for zero-copy": (facts(link_mib=2899), MoveOptions(), 3, False, "3 connections carry the memory, "),
}


@pytest.mark.parametrize("case", CASES)
def test_connections_are_chosen_where_link_versions_and_guest_permit(case: str) -> None:
    known, options, connections, zero_copy, words = CASES[case]
    choice = choose_streams(options, known)
    assert (choice.connections, choice.zero_copy) == (connections, zero_copy)
    assert words in choice.reason
    assert bool(choice.reason) == bool(words)
    assert not words or choice.reason.endswith(".")


def test_a_choice_becomes_flags_and_parameters() -> None:
    options = StreamChoice(4, True).apply_to(MoveOptions(bandwidth_mib=2000))
    assert {"PARALLEL", "ZEROCOPY"} <= set(migration_flags(options, True, False))
    assert migration_parameters(options) == {"bandwidth": 2000, "parallel.connections": 4}


def test_without_a_choice_the_options_of_the_task_remain() -> None:
    options = MoveOptions(parallel_connections=3)
    assert StreamChoice().apply_to(options) == options
