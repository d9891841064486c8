# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The one tree of exceptions, and functions that make texts from outside safe to print.

Each exception has a stable C(error_code), a message, and the next step for the operator.
"""

from __future__ import annotations

import typing as t

from .codec import Json


def printable_line(text: str) -> str:
    """Return one line in which every control character, line break and change of writing direction is escaped: C(\\x9b) for U+009B."""
    return text if text.isprintable() else "".join(character if character.isprintable() else _escape_character(character) for character in text)


def printable_text(text: str) -> str:
    """Return the lines of a text, each as L(printable_line) shows it."""
    return "\n".join(map(printable_line, text.split("\n")))


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class KvmfleetError(Exception):
    """Something that ends a task.

    :arg message: what happened, to which domain on which host, what state it is in now.
    :arg next_step: what to do now; appended to the message.
    :arg result: further keys of the module's result, e.g. C(migrations).
    """

    error_code = "internal"

    def __init__(self, message: str, next_step: t.Optional[str] = None, **result: t.Any) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.result = result

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}" if self.next_step else self.message

    def as_result(self) -> t.Dict[str, Json]:
        """Return the keys of a failed result: C(msg), C(error_code) and what else was given."""
        return {**self.result, "msg": printable_text(str(self)), "error_code": self.error_code}


class InvalidArgument(KvmfleetError):
    error_code = "invalid_argument"


class NotFound(KvmfleetError):
    error_code = "not_found"


class Forbidden(KvmfleetError):
    error_code = "forbidden"


class InvalidState(KvmfleetError):
    error_code = "invalid_state"


class Conflict(KvmfleetError):
    error_code = "conflict"


class NotSupported(KvmfleetError):
    error_code = "not_supported"


class Unreachable(KvmfleetError):
    error_code = "unreachable"


class Unsafe(KvmfleetError):
    error_code = "unsafe"


class TimedOut(KvmfleetError):
    error_code = "timeout"


class Aborted(KvmfleetError):
    error_code = "aborted"


class MigrationFailed(KvmfleetError):
    error_code = "migration_failed"


class Internal(KvmfleetError):
    error_code = "internal"


_BY_CODE = {cls.error_code: cls for cls in KvmfleetError.__subclasses__()}


def error_for_code(error_code: str) -> t.Type[KvmfleetError]:
    """Return the class of a stable error code; L(Internal) for an unknown code."""
    return _BY_CODE.get(error_code, Internal)
