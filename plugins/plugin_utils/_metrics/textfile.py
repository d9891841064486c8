# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writing the file that the node exporter reads: it sees the old one or the new one, never a part."""

from __future__ import annotations

import os

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, Internal, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._files import replace_file

_MAY_NOT = (PermissionError,)
_NO_PLACE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


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
    try:
        replace_file(path, text.encode(), mode)
    except _MAY_NOT as error:
        raise Forbidden(f"Failed to write {path}: {error.strerror}.", "Run this as a user who may write there, or name another path.") from error
    except _NO_PLACE as error:
        raise InvalidArgument(f"Failed to write {path}: {error.strerror}.", "Make the folder of the textfile collector, or name another path.") from error
    except OSError as error:
        raise Internal(f"Failed to write {path}: {error.strerror}.", "Make room or repair the file system. The old file is still there.") from error
