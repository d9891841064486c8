# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writing the files of a report: each whole or not at all, and readable by its owner alone unless asked otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._files import replace_file


def check_name(name: str) -> str:
    """Return the name of a file without its ending. Raises L(InvalidArgument) for what is none."""
    if not name.strip(".") or "/" in name or not name.isprintable():
        raise InvalidArgument(f"name is {name!r}, which cannot be the name of a file.", "No report was written.")
    return name


def write_all(folder: str, files: Mapping[str, bytes], mode: int) -> None:
    """Write these files into the folder, which is made where it is missing (0700). A reader sees the old file or the new one.

    Raises L(Internal), naming the folder, where that cannot be done; files before the one that failed are new, the others as they were.
    """
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        for name, content in files.items():
            replace_file(os.path.join(folder, name), content, mode)
    except OSError as error:
        raise Internal(f"The report cannot be written to {folder}: {error.strerror}.", "Files that were there are whole, old or new.") from error
