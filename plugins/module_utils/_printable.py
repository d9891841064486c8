# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Text for a terminal or a log, when names, reasons and errors of others are in it."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return one line in which every control character, line break and change of writing direction stands as an escape: C(\\x9b) for U+009B."""
    return text if text.isprintable() else "".join(character if character.isprintable() else _escaped(character) for character in text)


def printable_text(text: str) -> str:
    """Return the lines of a text, each as L(printable) shows it."""
    return "\n".join(map(printable, text.split("\n")))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
