# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that a guest is: it counts in every page of its dirty set, at a given rate, for ever.

The set is filled with ones first. Then the 32-bit counter at the start of each page is incremented, page after page and round after round, so that
at any moment the counters are n+1 up to one page and n from there on. A page that was lost or is old breaks that order (the idea of the order is that of
QEMU's own migration test). The pace comes from the timer's interrupts, and the processor halts in between: a guest costs next to nothing, and a
processor that is throttled misses interrupts and so really dirties less.
"""

from __future__ import annotations

import dataclasses
import struct

from . import powerbutton
from .assembler import Assembler
from .errors import UsageError

PAGE_BYTES = 4096
MIB = 1024 * 1024
SET_START = 2 * MIB
SECTOR_BYTES = 512
SECTOR_ADDRESS = 0x7C00
KERNEL_ADDRESS = MIB
IDT_ADDRESS = 0x1000
STACK_ADDRESS = 0x7000
TIMER_HZ = 1193182
TICKS_PER_SECOND = 1000
TIMER_VECTOR = 0x20
MULTIBOOT_MAGIC = 0x1BADB002
MULTIBOOT_ADDRESSES = 0x00010000


@dataclasses.dataclass(frozen=True)
class Program:
    """What a guest does with its memory.

    :arg memory_mib: all of its memory.
    :arg dirty_mib: the dirty set, from 2 MiB on.
    :arg rate: pages dirtied per second; 0 fills the set once and halts.
    :arg acpi: whether it switches itself off when its power button is pressed.
    :arg ticks: timer interrupts a second, at which it writes; each costs a processor that is emulated twice.
    """

    memory_mib: int
    dirty_mib: int
    rate: int
    acpi: bool = False
    ticks: int = TICKS_PER_SECOND

    def __post_init__(self) -> None:
        if not 16 <= self.memory_mib <= 2048:
            raise UsageError(f"A guest has 16 to 2048 MiB of memory, not {self.memory_mib}.")
        if not 0 <= self.dirty_mib <= self.memory_mib - 4:
            raise UsageError(f"The dirty set of a guest of {self.memory_mib} MiB has 0 to {self.memory_mib - 4} MiB, not {self.dirty_mib}.")
        if not 0 <= self.rate <= 10_000_000 or (self.rate and not self.dirty_mib):
            raise UsageError(f"A guest dirties 0 to 10000000 pages per second, more than 0 only in a dirty set; not {self.rate} in {self.dirty_mib} MiB.")

        if not 20 <= self.ticks <= TICKS_PER_SECOND:
            raise UsageError(f"A guest's timer interrupts 20 to {TICKS_PER_SECOND} times a second, not {self.ticks}.")

    @property
    def pages(self) -> int:
        return self.dirty_mib * MIB // PAGE_BYTES

    @property
    def set_end(self) -> int:
        return SET_START + self.dirty_mib * MIB


def boot_sector(program: Program) -> bytes:
    """Return the first 512 bytes of a disk that a PC's BIOS boots the program from."""
    code = Assembler(SECTOR_ADDRESS)
    code.emit("fa", "31c0", "8ed8")  # cli; xor ax,ax; mov ds,ax
    code.emit("0f0116")  # lgdt [gdt register]
    code.absolute16("gdtr")
    code.emit("0f20c0", "0c01", "0f22c0")  # mov eax,cr0; or al,1; mov cr0,eax
    code.emit("66ea")  # jmp 08:protected
    code.absolute("protected")
    code.emit("0800")
    _protected(code, program)
    return code.assemble().ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"


def kernel(program: Program) -> bytes:
    """Return the program as a multiboot kernel, for a guest without any disk."""
    code = Assembler(KERNEL_ADDRESS)
    code.emit(MULTIBOOT_MAGIC, MULTIBOOT_ADDRESSES, (-MULTIBOOT_MAGIC - MULTIBOOT_ADDRESSES) % 2**32)
    code.emit(KERNEL_ADDRESS, KERNEL_ADDRESS, 0, 0)  # header, load; load end and bss end: the whole file
    code.absolute("protected")
    _protected(code, program)
    return code.assemble()


def _protected(code: Assembler, program: Program) -> None:
    code.label("protected")
    _segments(code)
    if program.rate or program.acpi:
        # A timer that nobody waits for would cost each idle guest some percent of a processor.
        _timer(code, program.ticks)
    _fill(code, program)
    if program.acpi:
        powerbutton.enable(code)
    if program.rate:
        _count(code, program)
    else:
        _idle(code, program)
    if program.acpi:
        powerbutton.switch_off(code)
    _handler(code)
    _tables(code)


def _segments(code: Assembler) -> None:
    code.emit("fa", "0f0115")  # cli; lgdt [gdt register]
    code.absolute("gdtr")
    code.emit("ea")  # jmp 08:flat
    code.absolute("flat")
    code.emit("0800")
    code.label("flat")
    code.emit("66b81000", "8ed8", "8ec0", "8ed0")  # mov ax,10; mov ds,ax; mov es,ax; mov ss,ax
    code.emit("bc", STACK_ADDRESS)  # mov esp,stack


def _timer(code: Assembler, ticks: int) -> None:
    """Let channel 0 of the timer interrupt so many times a second, and nothing else interrupt."""
    divisor = TIMER_HZ // ticks
    for port, value in ((0x20, 0x11), (0x21, TIMER_VECTOR), (0x21, 4), (0x21, 1), (0x21, 0xFE), (0xA1, 0xFF)):
        code.emit("b0", bytes([value]), "e6", bytes([port]))  # mov al,value; out port,al
    for port, value in ((0x43, 0x34), (0x40, divisor & 0xFF), (0x40, divisor >> 8)):
        code.emit("b0", bytes([value]), "e6", bytes([port]))
    code.emit("b8")  # mov eax,handler
    code.absolute("handler")
    entry = IDT_ADDRESS + TIMER_VECTOR * 8
    code.emit("66a3", entry)  # mov [entry],ax
    code.emit("c1e810", "66a3", entry + 6)  # shr eax,16; mov [entry+6],ax
    code.emit("66c705", entry + 2, "0800")  # mov word [entry+2],08
    code.emit("66c705", entry + 4, "008e")  # mov word [entry+4],8e00: a present 32-bit interrupt gate
    code.emit("0f011d")  # lidt [idt register]
    code.absolute("idtr")


def _fill(code: Assembler, program: Program) -> None:
    if not program.dirty_mib:
        return
    code.emit("bf", SET_START)  # mov edi,start
    code.label("fill")
    code.emit("c707", 1, "81c7", PAGE_BYTES, "81ff", program.set_end)  # mov dword [edi],1; add edi,page; cmp edi,end
    code.jump("72", "fill")  # jb fill


def _count(code: Assembler, program: Program) -> None:
    code.emit("bf", SET_START, "31db")  # mov edi,start; xor ebx,ebx
    code.label("tick")
    code.emit("fb", "f4", "fa")  # sti; hlt; cli
    if program.acpi:
        powerbutton.poll(code)
    code.emit("81c3", program.rate)  # add ebx,rate
    code.label("next")
    code.emit("81fb", program.ticks)  # cmp ebx,ticks
    code.jump("72", "tick")  # jb tick
    code.emit("81eb", program.ticks, "ff07")  # sub ebx,ticks; inc dword [edi]
    code.emit("81c7", PAGE_BYTES, "81ff", program.set_end)  # add edi,page; cmp edi,end
    code.jump("72", "next")  # jb next
    code.emit("bf", SET_START)  # mov edi,start
    code.jump("eb", "next")


def _idle(code: Assembler, program: Program) -> None:
    code.label("halt")
    if program.acpi:
        code.emit("fb", "f4", "fa")  # sti; hlt; cli
        powerbutton.poll(code)
    else:
        code.emit("fa", "f4")  # cli; hlt
    code.jump("eb", "halt")


def _handler(code: Assembler) -> None:
    code.label("handler")
    code.emit("b020", "e620", "cf")  # mov al,20; out 20,al; iret


def _tables(code: Assembler) -> None:
    code.label("gdt")
    code.emit(bytes(8), "ffff0000009acf00", "ffff00000092cf00")  # none; 08: flat code; 10: flat data
    code.label("gdtr")
    code.emit(struct.pack("<H", 23))
    code.absolute("gdt")
    code.label("idtr")
    code.emit(struct.pack("<H", TIMER_VECTOR * 8 + 7), IDT_ADDRESS)
