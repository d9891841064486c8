# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Just enough of an assembler for the boot code: bytes, labels, and references to them."""

from __future__ import annotations

import struct
import typing as t


class Assembler:
    """Collects machine code for one address. References may point to labels that come later."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self._code = bytearray()
        self._labels: t.Dict[str, int] = {}
        self._references: t.List[t.Tuple[int, str, str]] = []

    def emit(self, *parts: t.Union[str, bytes, int]) -> None:
        """Append code: hexadecimal digits as text, bytes as they are, an integer as 32 bits."""
        for part in parts:
            if isinstance(part, int):
                self._code += struct.pack("<I", part)
            else:
                self._code += bytes.fromhex(part) if isinstance(part, str) else part

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def absolute(self, name: str) -> None:
        """Append the 32-bit address of a label."""
        self._reference(name, "<I")

    def absolute16(self, name: str) -> None:
        """Append the 16-bit address of a label."""
        self._reference(name, "<H")

    def jump(self, opcode: str, name: str) -> None:
        """Append a short jump to a label."""
        self.emit(opcode)
        self._reference(name, "<b")

    def address(self, name: str) -> int:
        return self.origin + self._labels[name]

    def assemble(self) -> bytes:
        """Return the code with all references filled in."""
        code = bytearray(self._code)
        for position, name, form in self._references:
            value = self._labels[name] - position - 1 if form == "<b" else self.address(name)
            struct.pack_into(form, code, position, value)
        return bytes(code)

    def _reference(self, name: str, form: str) -> None:
        self._references.append((len(self._code), name, form))
        self._code += bytes(struct.calcsize(form))
