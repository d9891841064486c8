# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writing the file that the node exporter reads: it sees the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, Internal, InvalidArgument

_MODE = re.compile(r"0?[0-7]{3}")
_MAY_NOT = (PermissionError,)
_NO_PLACE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def mode_of(value: t.Any) -> int:
    """Return the permissions of an octal text like C(0644), or of the number that YAML makes of one without quotes. Raises L(InvalidArgument)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise InvalidArgument(f"The mode {value!r} is none.", "Give it as a text of three octal digits, e.g. '0644'.")
    return int(value, 8)


def check_path(path: str) -> str:
    """Return the absolute path. Raises L(InvalidArgument) unless the collector would read a file of that name."""
    if not path.endswith(".prom") or os.path.basename(path).startswith("."):
        raise InvalidArgument(f"The node exporter reads no file {path!r}.", "Give a path that ends in '.prom' and whose name begins with no dot.")
    return os.path.abspath(os.path.expanduser(path))


def read(path: str) -> str | None:
    """Return what was written last; None where nothing was, or another user may not look at it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def write(path: str, text: str, mode: int) -> None:
    """Replace the file. Raises L(Forbidden), L(InvalidArgument) or L(Internal), naming it."""
    folder, name = os.path.split(path)
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), mode)
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except _MAY_NOT as error:
        raise Forbidden(f"Failed to write {path}: {error.strerror}.", "Run this as a user who may write there, or name another path.") from error
    except _NO_PLACE as error:
        raise InvalidArgument(f"Failed to write {path}: {error.strerror}.", "Make the folder of the textfile collector, or name another path.") from error
    except OSError as error:
        raise Internal(f"Failed to write {path}: {error.strerror}.", "Make room or repair the file system. The old file is still there.") from error
