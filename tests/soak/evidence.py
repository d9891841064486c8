# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is kept of a lab in which something happened that must never be: enough to find out why without it."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import subprocess

from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import disk_of

from .actions import HOSTS
from .journal import Journal
from .looks import told
from .stage import Stage

_QUESTIONS = {
    "virsh-list": "virsh -q list --all",
    "jobs": 'for one in $(virsh -q list --name); do echo "== $one"; virsh domstate --reason $one; virsh domjobinfo $one; done',
    "processes": "ps -eo pid,ppid,etimes,stat,args",
    "run-kvmfleet": 'for one in /run/kvmfleet/*; do echo "== $one"; cat "$one"; done',
    "quarantine": "find /var/lib/kvmfleet -ls",
}
SECONDS = 20


def keep(stage: Stage, journal: Journal, why: BaseException) -> pathlib.Path:
    """Write everything into one folder, and return it. What cannot be read is left out."""
    folder = stage.folder / "evidence"
    folder.mkdir(exist_ok=True)
    (folder / "why").write_text(f"{type(why).__name__}: {why}\n", encoding="utf-8")
    (folder / "last-actions").write_text("\n".join(journal.last()) + "\n", encoding="utf-8")
    (folder / "looks.json").write_text(json.dumps(stage.watch.kept(), indent=1), encoding="utf-8")
    (folder / "look-now.json").write_text(json.dumps(told(stage.eyes.look()), indent=1), encoding="utf-8")
    for number in HOSTS:
        _ask(stage, number, folder)
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(disk_of(stage.lab, number) / "var-log-libvirt", folder / f"host-{number}-log", dirs_exist_ok=True)
    shutil.copytree(stage.site.path, folder / "ledger", dirs_exist_ok=True)
    return folder


def _ask(stage: Stage, number: int, folder: pathlib.Path) -> None:
    for name, script in _QUESTIONS.items():
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = stage.lab.try_("exec", stage.lab.host(number), "--", "sh", "-c", script, timeout=SECONDS)
            (folder / f"host-{number}-{name}").write_text(done.stdout + done.stderr, encoding="utf-8")
