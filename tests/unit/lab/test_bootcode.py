# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot code's form: what a BIOS and a multiboot loader check before they run it."""

from __future__ import annotations

import struct

import pytest
from kvmlab import bootcode
from kvmlab.errors import UsageError

WRITER = bootcode.Program(memory_mib=64, dirty_mib=16, rate=4000)


@pytest.mark.parametrize("program", [WRITER, bootcode.Program(16, 0, 0), bootcode.Program(2048, 2044, 10_000_000, acpi=True)])
def test_a_boot_sector_has_512_bytes_and_the_signature(program: bootcode.Program) -> None:
    sector = bootcode.boot_sector(program)
    assert len(sector) == 512
    assert sector[-2:] == b"\x55\xaa"


def test_a_kernel_has_a_multiboot_header_that_sums_up_to_zero() -> None:
    magic, flags, checksum, header, load, load_end, bss_end, entry = struct.unpack_from("<8I", bootcode.kernel(WRITER))
    assert (magic + flags + checksum) % 2**32 == 0
    assert (magic, header, load, load_end, bss_end) == (0x1BADB002, 0x100000, 0x100000, 0, 0)
    assert entry == 0x100000 + 32


def test_the_dirty_set_lies_behind_the_code_and_has_a_page_every_4_kib() -> None:
    assert WRITER.pages == 16 * 256
    assert bootcode.KERNEL_ADDRESS + len(bootcode.kernel(WRITER)) < bootcode.SET_START
    assert struct.pack("<I", WRITER.set_end) in bootcode.kernel(WRITER)


@pytest.mark.parametrize(("memory", "dirty", "rate"), [(8, 0, 0), (4096, 0, 0), (64, 61, 0), (64, -1, 0), (64, 0, 5), (64, 8, -1), (64, 8, 10**9)])
def test_an_invalid_program_is_refused(memory: int, dirty: int, rate: int) -> None:
    with pytest.raises(UsageError):
        bootcode.Program(memory, dirty, rate)
