# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The boot guard's files on a host: what should be there, and what is missing or different."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import typing as t

from .._errors import Internal
from . import program, storage, units

INTERPRETERS = ("/usr/bin/python3", "/usr/libexec/platform-python")
"""Tried first: they stay where they are when the operating system is upgraded."""
_OLDEST = "import sys; sys.exit(sys.version_info < (3, 9))"


def choose_interpreter() -> str:
    """Return the Python that is to run the program at boot."""
    for path in INTERPRETERS:
        if os.path.exists(path) and subprocess.run([path, "-I", "-c", _OLDEST], stdin=subprocess.DEVNULL, check=False, timeout=60).returncode == 0:
            return path
    return sys.executable


def program_text(interpreter: str, module: types.ModuleType = program) -> str:
    """Return a program as it is installed. It comes out of this collection's own package, which may be an archive."""
    source = module.__loader__.get_source(module.__name__) if module.__loader__ else None  # type: ignore[attr-defined]
    if not source:
        raise Internal("The boot guard's program cannot be read from the collection.", "Report this as a bug.")
    return f"#!{interpreter} -I\n{source}"


def wanted(interpreter: str) -> t.Dict[str, str]:
    """Return path below the root: text, in the order in which the files are written; nothing refers to a file that comes later."""
    programs = {units.STORAGE_FILE: program_text(interpreter, storage), units.PROGRAM_FILE: program_text(interpreter)}
    return {**programs, **units.files(interpreter)}


def missing(root: str = "/") -> t.List[str]:
    """Return the files of an installed guard that are not there, or were emptied; none means that it is installed."""
    there = [os.path.join(root, path) for path in [*units.PROGRAM_FILES, *units.files("")]]
    link = os.path.join(root, units.WANTS_LINK)
    return [path for path in there if not (os.path.isfile(path) and os.path.getsize(path))] + ([] if os.path.islink(link) else [link])


def different(root: str, interpreter: str) -> t.List[str]:
    """Return the files that are not as they should be."""
    changed = [path for path, text in wanted(interpreter).items() if not _is(root, path, text)]
    link = os.path.join(root, units.WANTS_LINK)
    is_linked = os.path.islink(link) and os.readlink(link) == f"/{units.UNIT_FOLDER}/{units.UNIT}"
    return changed if is_linked else [*changed, units.WANTS_LINK]


def all_paths() -> t.List[str]:
    """Return every path, what is needed last being last: the reverse of the order of writing."""
    return [units.WANTS_LINK, *reversed([*units.PROGRAM_FILES, *units.files("")])]


def mode_of(path: str) -> int:
    return 0o755 if path in units.PROGRAM_FILES else 0o644


def _is(root: str, path: str, text: str) -> bool:
    full = os.path.join(root, path)
    try:
        with open(full, encoding="utf-8", errors="replace") as stream:
            return stream.read() == text and os.stat(full).st_mode & 0o777 == mode_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
