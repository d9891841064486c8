# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Programs and units that the collection installs on a host for systemd: their files, the Python that runs them, and systemctl."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import typing as t

from ._dataclass import dataclass
from ._files import Content, replace_file, sync_folder
from ._model.errors import Internal

PROGRAM_FOLDER = "usr/local/lib/kvmfleet"
UNIT_FOLDER = "etc/systemd/system"
INTERPRETERS = ("/usr/bin/python3", "/usr/libexec/platform-python")
"""Tried first: they stay where they are when the operating system is upgraded."""
_OLDEST = "import sys; sys.exit(sys.version_info < (3, 9))"
SYSTEMCTL_SECONDS = 60
_PROGRAM_SECONDS = 60


@dataclass(frozen=True)
class UnitChange:
    """What was changed of a program and its units, or would be in check mode.

    :arg files: the files that were written or removed.
    :arg systemd: whether systemd runs the units.
    :arg warnings: those about the Python that runs the program.
    """

    files: t.Tuple[str, ...]
    systemd: bool
    warnings: t.Tuple[str, ...] = ()


def choose_interpreter() -> str:
    """Return the Python that runs an installed program."""
    for path in INTERPRETERS:
        if os.path.exists(path) and subprocess.run([path, "-I", "-c", _OLDEST], stdin=subprocess.DEVNULL, check=False, timeout=60).returncode == 0:
            return path
    return sys.executable


def warn_of_interpreter(interpreter: str, program: str, without: str) -> t.Tuple[str, ...]:
    """Return a warning if an installed program depends on a virtual environment, which somebody may remove.

    :arg interpreter: what L(choose_interpreter) has returned.
    :arg program: for the message.
    :arg without: what happens without the interpreter, as a clause.
    """
    if interpreter in INTERPRETERS or sys.prefix == sys.base_prefix:
        return ()
    none = f"this host has no Python 3.9 or newer at {' or '.join(INTERPRETERS)}"
    return (f"{program} runs with {interpreter}, because {none}. Keep this virtual environment: without it, {without}.",)


def try_program(interpreter: str, content: Content, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program before it is installed, from a temporary file: one that cannot run neither replaces a program that can, nor passes for an installed one."""
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
        stream.flush()
        command = [interpreter, "-I", stream.name, *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PROGRAM_SECONDS)


def not_runnable_error(program: str, done: subprocess.CompletedProcess[bytes], state: str) -> Internal:
    """Return the error for a program that L(try_program) has run in vain.

    :arg state: that nothing was changed, as a sentence.
    """
    output = done.stderr.decode(errors="replace").strip().rstrip(".")
    return Internal(f"{program} does not run on this host: {output}. {state}", "Repair this and run the task again.")


def is_systemd_running(root: str = "/") -> bool:
    """Return whether systemd runs this host. For another root than the host's own the answer is no."""
    return root == "/" and os.path.isdir("/run/systemd/system")


def run_systemctl(*arguments: str, state: str) -> None:
    """Run systemctl. Raises L(Internal) with its output.

    :arg state: what is now the case if it fails, as a sentence.
    """
    try:
        # Its messages are in the encoding of the locale.
        command, limit = ["systemctl", *arguments], SYSTEMCTL_SECONDS
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=True, timeout=limit)
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", None) or error).strip().rstrip(".")
        raise Internal(f"'systemctl {' '.join(arguments)}' failed: {output}. {state}", "Repair this on the host and run the task again.") from error


def has_content(path: str, content: Content, mode: int) -> bool:
    """Whether a file has this content and mode."""
    wanted = content.encode("utf-8") if isinstance(content, str) else content
    try:
        with open(path, "rb") as stream:
            return stream.read() == wanted and os.stat(path).st_mode & 0o777 == mode
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_linked(path: str, unit: str) -> bool:
    """Whether that path is a link to a unit of L(UNIT_FOLDER)."""
    return os.path.islink(path) and os.readlink(path) == f"/{UNIT_FOLDER}/{unit}"


def install_file(path: str, content: Content, mode: int) -> None:
    """Replace a file in one step, with folders that are missing."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    replace_file(path, content, mode)


def link_unit(path: str, unit: str) -> None:
    """Make that path a link to a unit of L(UNIT_FOLDER), in place of whatever it was, with folders that are missing."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(f"/{UNIT_FOLDER}/{unit}", path)
    sync_folder(os.path.dirname(path))


@dataclass(frozen=True)
class RestartNote:
    """A file that is there from before the files of a unit change until the unit was started anew, or until the next boot.

    If the task dies in between, the next one starts the unit anew.
    """

    unit: str
    root: str

    @property
    def path(self) -> str:
        """The path of the note below the root."""
        return f"run/kvmfleet/{self.unit}.changed"

    @property
    def exists(self) -> bool:
        """Whether files of the unit have changed since it was started."""
        return os.path.lexists(os.path.join(self.root, self.path))

    def write(self) -> None:
        """Write the note."""
        path = os.path.join(self.root, self.path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(path, "", 0o600)

    def remove(self) -> None:
        """Remove the note, after the unit was started anew."""
        delete_files(self.root, [self.path])


def start_unit(note: RestartNote, state: str) -> None:
    """Start the unit of a note, or start it anew if the note exists. Raises L(Internal), see L(run_systemctl)."""
    is_changed = note.exists
    if is_changed:
        run_systemctl("daemon-reload", state=state)
    run_systemctl("restart" if is_changed else "start", note.unit, state=state)
    note.remove()


def delete_files(root: str, paths: t.Iterable[str]) -> None:
    """Delete those of the files that are there."""
    for path in paths:
        if os.path.lexists(os.path.join(root, path)):
            os.unlink(os.path.join(root, path))


def attempt_write(act: t.Callable[[], None], problem: str, state: str) -> None:
    """Change files of the host. Raises L(Internal) if that fails.

    :arg problem: what could not be done, and C(state) what may be the case now.
    """
    try:
        act()
    except (OSError, subprocess.SubprocessError) as error:
        raise Internal(f"{problem}: {error}. {state}", "Repair this and run the task again.") from error
