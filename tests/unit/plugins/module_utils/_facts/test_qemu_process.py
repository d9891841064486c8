# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.qemu_process import (
    UNLIMITED_BYTES,
    is_program_replaced,
    read_memory_lock,
    waits_since_arrival,
)

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             31313                31313                processes
Max locked memory         {}              {}              bytes
Max address space         unlimited            unlimited            bytes
"""


def place(root: pathlib.Path, limits: t.Optional[str], pid: str = "4711\n") -> None:
    (root / "run/libvirt/qemu").mkdir(parents=True)
    (root / "run/libvirt/qemu/web 1.pid").write_text(pid)
    if limits is not None:
        (root / "proc/4711").mkdir(parents=True)
        (root / "proc/4711/limits").write_text(limits)


@pytest.mark.parametrize(("soft", "expected"), [("8388608", 8388608), ("unlimited", UNLIMITED_BYTES), ("0", 0)])
def test_the_soft_limit_counts(tmp_path: pathlib.Path, soft: str, expected: int) -> None:
    place(tmp_path, LIMITS.format(soft, "unlimited"))
    assert read_memory_lock("web 1", str(tmp_path)) == expected


@pytest.mark.parametrize("limits", [None, "", "Max locked memory         some              8388608              bytes\n"])
def test_a_limit_that_cannot_be_read_is_not_known(tmp_path: pathlib.Path, limits: t.Optional[str]) -> None:
    place(tmp_path, limits)
    assert read_memory_lock("web 1", str(tmp_path)) is None


@pytest.mark.parametrize("pid", ["", "x", "../4711"])
def test_a_damaged_process_id_is_not_followed(tmp_path: pathlib.Path, pid: str) -> None:
    place(tmp_path, LIMITS.format("1", "1"), pid)
    assert read_memory_lock("web 1", str(tmp_path)) is None


def test_a_domain_without_a_process_has_no_limit(tmp_path: pathlib.Path) -> None:
    assert read_memory_lock("web1", str(tmp_path)) is None


@pytest.mark.parametrize(("program", "is_replaced"), [("/usr/bin/qemu-system-x86_64", False), ("/usr/bin/qemu-system-x86_64 (deleted)", True), (None, False)])
def test_a_program_that_was_upgraded_under_its_guest_is_recognized(tmp_path: pathlib.Path, program: t.Optional[str], is_replaced: bool) -> None:
    place(tmp_path, "")
    if program:
        (tmp_path / "proc/4711/exe").symlink_to(program)
    assert is_program_replaced("web 1", str(tmp_path)) is is_replaced


def test_a_domain_without_a_process_has_no_program(tmp_path: pathlib.Path) -> None:
    assert not is_program_replaced("web1", str(tmp_path))


def place_processors(root: pathlib.Path, arguments: str, *run_ns: int) -> None:
    place(root, "")
    (root / "proc/4711/cmdline").write_bytes(b"\0".join(arguments.encode().split()) + b"\0")
    for number, used in enumerate(run_ns):
        thread = root / f"proc/4711/task/{4720 + number}"
        thread.mkdir(parents=True)
        (thread / "comm").write_text(f"CPU {number}/KVM\n")
        (thread / "schedstat").write_text(f"{used} 1649023 9\n")


@pytest.mark.parametrize(
    ("arguments", "run_ns", "waits"),
    [
        ("qemu -name web -incoming defer -S", (662676, 778665), True),
        ("qemu -name web -incoming defer -S", (778665, 132204849), False),
        ("qemu -name -incoming,x -S", (662676, 778665), False),
        ("qemu -name web -incoming defer -S", (), False),
    ],
)
def test_a_guest_that_arrived_paused_is_recognized_until_it_has_run(tmp_path: pathlib.Path, arguments: str, run_ns: t.Tuple[int, ...], waits: bool) -> None:
    place_processors(tmp_path, arguments, *run_ns)
    assert waits_since_arrival("web 1", str(tmp_path)) is waits


def test_whether_a_guest_has_run_is_not_known_without_its_process(tmp_path: pathlib.Path) -> None:
    assert not waits_since_arrival("web 1", str(tmp_path))
