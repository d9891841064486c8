# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The little of systemd that a host without it needs for units installed on it: what they want to run before libvirtd is run.

Of the units in C(/etc/systemd/system), C(ExecStart) of those that are linked into C(multi-user.target.wants) and name libvirtd in C(Before) is run once
at boot, and C(ExecStartPre) of libvirtd's drop-ins before each of its starts. Where the latter fails, libvirtd is not started. Those with
C(Restart=always) are kept running.
"""

from __future__ import annotations

import pathlib
import shlex
import subprocess
import typing as t

FOLDER = pathlib.Path("/etc/systemd/system")
DAEMON = "libvirtd.service"
SUFFIX = ".service"
SECONDS = 120


def run_at_boot(log: t.Any) -> None:
    """Run the units that come before libvirtd."""
    for unit in sorted(FOLDER.glob("multi-user.target.wants/*.service")):
        text = _text(FOLDER / unit.name)
        if any(DAEMON in value.split() for value in _values(text, "Before")):
            for command in _values(text, "ExecStart"):
                _succeeds(command, log)


def list_kept() -> t.Dict[str, t.List[str]]:
    """Return the commands of the units that are kept running, by their names."""
    texts = {unit.name: _text(FOLDER / unit.name) for unit in FOLDER.glob(f"multi-user.target.wants/*{SUFFIX}")}
    return {name: shlex.split(_values(text, "ExecStart")[0]) for name, text in texts.items() if "always" in _values(text, "Restart")}


def may_start_libvirtd(log: t.Any) -> bool:
    """Run what its drop-ins want before a start; return whether all of it succeeded."""
    texts = [_text(path) for path in sorted(FOLDER.glob(f"{DAEMON}.d/*.conf"))]
    return all(_succeeds(command, log) for text in texts for command in _values(text, "ExecStartPre"))


def _succeeds(command: str, log: t.Any) -> bool:
    try:
        return subprocess.run(shlex.split(command.lstrip("+")), stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _values(text: str, key: str) -> t.List[str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return [value.strip() for name, _sign, value in pairs if name.strip() == key and value.strip()]


def _text(path: pathlib.Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
