# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a guest's program needs to honour the power button: the PIIX4's ACPI registers (ACPI specification, section 4.8.3), asked at every tick."""

from __future__ import annotations

from .assembler import Assembler

PM_BASE_OF_00_01_3 = 0x80000000 | 1 << 11 | 3 << 8 | 0x40
POWER_BUTTON = 0x0100
SLEEP_NOW = 0x2000
"""Sleep type 0, which is S5 on this chip."""


def enable(code: Assembler) -> None:
    """Find the registers, keep their address in ESI, and let the button set its status bit."""
    code.emit("b8", PM_BASE_OF_00_01_3, "66baf80c", "ef")  # mov eax,register; mov dx,cf8; out dx,eax
    code.emit("b2fc", "ed", "25", 0xFFC0, "89c6")  # mov dl,fc; in eax,dx; and eax,ffc0; mov esi,eax
    code.emit("8d5602", "66b8", POWER_BUTTON.to_bytes(2, "little"), "66ef")  # lea edx,[esi+2]; mov ax,button; out dx,ax


def poll(code: Assembler) -> None:
    """Switch the guest off once the button was pressed."""
    code.emit("89f2", "66ed", "f6c4", bytes([POWER_BUTTON >> 8]))  # mov edx,esi; in ax,dx; test ah,button
    code.jump("75", "off")  # jnz off


def switch_off(code: Assembler) -> None:
    code.label("off")
    code.emit("8d5604", "66b8", SLEEP_NOW.to_bytes(2, "little"), "66ef", "f4")  # lea edx,[esi+4]; mov ax,sleep; out dx,ax; hlt
