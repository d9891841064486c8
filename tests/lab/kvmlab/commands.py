# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running other programs, and saying clearly what failed."""

from __future__ import annotations

import shlex
import subprocess
import typing as t

from .errors import LabError


def run(*command: str, check: bool = True, timeout: float = 300, stdin: t.Optional[str] = None) -> str:
    """Run a program and return what it wrote to standard output.

    :arg timeout: seconds.
    :raises LabError: it is not installed, took too long, or (with ``check``) ended with an error.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, input=stdin, check=False)
    except FileNotFoundError as exc:
        raise LabError(f"{command[0]} is not installed.") from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"'{shlex.join(command)}' did not end within {timeout:g} s.") from exc
    if check and done.returncode:
        raise LabError(f"'{shlex.join(command)}' failed with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def succeeds(*command: str, timeout: float = 300) -> bool:
    """Run a program and return whether it ended with 0."""
    try:
        return subprocess.run(command, capture_output=True, timeout=timeout, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
