# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The alarm command of a canary: while a run waits after its first host, the command is run again and again; if it fails, no further host is begun."""

from __future__ import annotations

import subprocess
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line

ALARM_SECONDS = 60
_MAX_SHOWN = 200


def run_alarm(command: str) -> t.Optional[str]:
    """Run the command with the shell of the control node, and return why no further host may begin; None if it ended with 0."""
    try:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, errors="replace", timeout=ALARM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"the alarm command did not end within {ALARM_SECONDS} s"
    except OSError as error:
        return f"the alarm command could not be started: {error.strerror}"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    said = f": {printable_line(lines[-1].strip())[:_MAX_SHOWN]}" if lines else ""
    return f"the alarm command ended with {done.returncode}{said}"
