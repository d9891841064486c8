# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Installs and removes the timer that stores a reading of the load on this host at intervals."""

from __future__ import annotations

import os
import typing as t

from .._archive import build_archive
from .._files import Content
from .._model.errors import Internal
from .._systemd import (
    PROGRAM_FOLDER,
    UNIT_FOLDER,
    RestartNote,
    UnitChange,
    attempt_write,
    choose_interpreter,
    delete_files,
    has_content,
    install_file,
    is_linked,
    is_systemd_running,
    link_unit,
    not_runnable_error,
    run_systemctl,
    start_unit,
    try_program,
    warn_of_interpreter,
)
from .store import NOT_STORED, store_reading

PROGRAM_FILE = f"{PROGRAM_FOLDER}/kvmfleet-load.pyz"
SERVICE, TIMER = "kvmfleet-load.service", "kvmfleet-load.timer"
WANTS_LINK = f"{UNIT_FOLDER}/timers.target.wants/{TIMER}"
_PATHS = (PROGRAM_FILE, f"{UNIT_FOLDER}/{SERVICE}", f"{UNIT_FOLDER}/{TIMER}", WANTS_LINK)
_MODE = 0o644
_RUN_SECONDS = 60

NOT_RUN = "systemd does not run this host: the timer is installed, but nothing runs it."
_UNTRIED = ("The program of the load timer cannot be tried on this host", "The timer was not changed.")
_UNWRITTEN = ("The load timer of this host cannot be written", "It may be installed in part.")
_NOT_STARTED = "The files of the timer are in place, but systemd does not run it."
_NOT_STOPPED = "Its files are still in place, and it may still run."


def install_timer(seconds: int, root: str = "/", check_mode: bool = False) -> UnitChange:
    """Install the timer, or bring it up to date. Raises L(Internal) if the host cannot run its program (any more); then nothing has changed.

    :arg seconds: the interval.
    """
    interpreter = choose_interpreter()
    contents = _list_contents(interpreter, seconds)
    changes = [path for path, content in contents.items() if not has_content(os.path.join(root, path), content, _MODE)]
    is_on = is_linked(os.path.join(root, WANTS_LINK), TIMER)
    note = RestartNote(TIMER, root)
    files = [*changes, *([] if is_on else [WANTS_LINK]), *([note.path] if note.exists else [])]
    if not check_mode:
        if root == "/":
            attempt_write(lambda: _require_runnable(interpreter, contents[PROGRAM_FILE]), *_UNTRIED)
        if is_systemd_running(root) and changes:
            attempt_write(note.write, *_UNWRITTEN)
        attempt_write(lambda: _write_files(root, {path: contents[path] for path in changes}, is_on), *_UNWRITTEN)
        if is_systemd_running(root):
            start_unit(note, _NOT_STARTED)
    warnings = warn_of_interpreter(interpreter, "The program of the load timer", "no reading is stored")
    return UnitChange(tuple(f"/{path}" for path in files), is_systemd_running(root), warnings)


def remove_timer(root: str = "/", check_mode: bool = False) -> UnitChange:
    """Remove the timer. The readings that it has stored stay until the next boot."""
    present = [path for path in reversed(_PATHS) if os.path.lexists(os.path.join(root, path))]
    if present and not check_mode:
        if is_systemd_running(root) and f"{UNIT_FOLDER}/{TIMER}" in present:
            run_systemctl("stop", TIMER, state=_NOT_STOPPED)
        attempt_write(lambda: delete_files(root, present), *_UNWRITTEN)
        if is_systemd_running(root):
            run_systemctl("daemon-reload", state="The timer is stopped and its files are removed.")
    return UnitChange(tuple(f"/{path}" for path in present), is_systemd_running(root))


def _list_contents(interpreter: str, seconds: int) -> t.Dict[str, Content]:
    """Return path below the root: content, in the order in which the files are written; no file refers to a later one."""
    return {
        PROGRAM_FILE: build_archive(store_reading),
        f"{UNIT_FOLDER}/{SERVICE}": _service_unit(interpreter),
        f"{UNIT_FOLDER}/{TIMER}": _timer_unit(seconds),
    }


def _service_unit(interpreter: str) -> str:
    return f"""\
[Unit]
Description=Store a reading of the load of this host and its guests

[Service]
Type=oneshot
ExecStart={interpreter} -I /{PROGRAM_FILE}
TimeoutStartSec={_RUN_SECONDS}
Nice=10
"""


def _timer_unit(seconds: int) -> str:
    return f"""\
[Unit]
Description=Store readings of the load of this host and its guests

[Timer]
OnActiveSec=0
OnUnitActiveSec={seconds}s
AccuracySec=15s

[Install]
WantedBy=timers.target
"""


def _write_files(root: str, contents: t.Mapping[str, Content], is_on: bool) -> None:
    for path, content in contents.items():
        install_file(os.path.join(root, path), content, _MODE)
    if not is_on:
        link_unit(os.path.join(root, WANTS_LINK), TIMER)


def _require_runnable(interpreter: str, archive: Content) -> None:
    """Prove that the host can run the program, which nobody sees fail later. This stores a reading, unless there is a recent one."""
    done = try_program(interpreter, archive)
    if done.returncode == NOT_STORED:
        why = done.stderr.decode(errors="replace").strip().rstrip(".")
        raise Internal(
            f"The program of the load timer runs on this host, and could not store a reading: {why}. {_UNTRIED[1]}", "Repair this and run the task again."
        )
    if done.returncode:
        raise not_runnable_error("The program of the load timer", done, _UNTRIED[1])
