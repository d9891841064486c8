# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The state of the boot guard on this host: its units for systemd, missing files, whether systemd runs it, and the documents that it has written."""

from __future__ import annotations

import os
import subprocess
import types
import typing as t

from .._dataclass import dataclass
from .._model.boot_guard import AutomaticStart, BootRelease, BootStatus
from .._model.codec import decode
from .._model.errors import Forbidden, Internal, InvalidState
from .._systemd import PROGRAM_FOLDER, UNIT_FOLDER, has_content, is_linked, is_systemd_running
from .._systemd import run_systemctl as run_any_systemctl
from . import program, storage_program
from .program import Guard

PROGRAM_FILE = f"{PROGRAM_FOLDER}/kvmfleet-guard"
STORAGE_FILE = f"{PROGRAM_FOLDER}/kvmfleet-guard-storage"
PROGRAM_FILES = (STORAGE_FILE, PROGRAM_FILE)
"""In the order of writing: the second program runs the first."""
UNIT = "kvmfleet-guard.service"
TOKEN_UNIT = "kvmfleet-guard-token.service"  # noqa: S105 - it names a unit
DROP_IN = "50-kvmfleet-guard.conf"
WANTS_LINK = f"{UNIT_FOLDER}/multi-user.target.wants/{UNIT}"
RELEASED_FILE = "/run/kvmfleet/guard/released.json"

DAEMONS = ("libvirtd", "virtqemud")
"""They start guests: marked for autostart, with or without a managed-save image, and those they shut down with the host (libvirt 11.2 and later)."""
SOCKETS = ("", "-ro", "-admin", "-tcp", "-tls")
LIBVIRT_GUESTS = "libvirt-guests.service"


def unit_files(interpreter: str) -> t.Dict[str, str]:
    """Return the texts by their paths below the root. C(interpreter) runs the program, so that it needs no execute bit and no label."""
    drop_ins = {f"{UNIT_FOLDER}/{name}.service.d/{DROP_IN}": _daemon_drop_in(interpreter) for name in DAEMONS}
    return {
        f"{UNIT_FOLDER}/{UNIT}": _guard_unit(interpreter),
        f"{UNIT_FOLDER}/{TOKEN_UNIT}": _token_unit(interpreter),
        f"{UNIT_FOLDER}/{LIBVIRT_GUESTS}.d/{DROP_IN}": _libvirt_guests_drop_in(),
        **drop_ins,
    }


def command_line(interpreter: str, verb: str) -> str:
    """Return the command line of one verb of the program. The interpreter is isolated from variables and folders of users."""
    return f"{interpreter} -I /{PROGRAM_FILE} {verb}"


def list_held_units() -> t.List[str]:
    """Return the units that may start only after the guard; a unit that a host does not have is not an error."""
    services = [f"{name}.service" for name in DAEMONS]
    sockets = [f"{name}{kind}.socket" for name in DAEMONS for kind in SOCKETS if name == "libvirtd" or kind not in ("-tcp", "-tls")]
    return [*services, *sockets, LIBVIRT_GUESTS]


def _guard_unit(interpreter: str) -> str:
    return f"""\
[Unit]
Description=Hold automatic starts of guests until this host is released
DefaultDependencies=no
Requires=sysinit.target
After=sysinit.target
Before={" ".join(list_held_units())}
Conflicts=shutdown.target
Before=shutdown.target
RefuseManualStop=yes

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command_line(interpreter, "hold")}
ExecStop={command_line(interpreter, "shutdown")}
TimeoutStartSec=90
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""


def _token_unit(interpreter: str) -> str:
    services = [f"{name}.service" for name in DAEMONS]
    return f"""\
[Unit]
Description=Release this host if shared storage confirms its clean-shutdown token
Wants={UNIT}
After={UNIT} remote-fs.target
Before={" ".join([*services, LIBVIRT_GUESTS])}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command_line(interpreter, "confirm")}
TimeoutStartSec=120
"""


def _daemon_drop_in(interpreter: str) -> str:
    return f"""\
[Unit]
Wants={UNIT} {TOKEN_UNIT}
After=remote-fs.target

[Service]
ExecStartPre=+{command_line(interpreter, "confirm")}
"""


def _libvirt_guests_drop_in() -> str:
    return f"""\
[Unit]
Wants={UNIT} {TOKEN_UNIT}
ConditionPathExists={RELEASED_FILE}
"""


def read_program(interpreter: str, module: types.ModuleType = program) -> str:
    """Return a program as it is installed. It is read from this collection's own package, which may be an archive."""
    source = module.__loader__.get_source(module.__name__) if module.__loader__ else None  # type: ignore[attr-defined]
    if not source:
        raise Internal("The boot guard's program cannot be read from the collection.", "Report this as a bug.")
    return f"#!{interpreter} -I\n{source}"


def wanted_files(interpreter: str) -> t.Dict[str, str]:
    """Return path below the root: text, in the order in which the files are written; no file refers to a later one."""
    programs = {STORAGE_FILE: read_program(interpreter, storage_program), PROGRAM_FILE: read_program(interpreter)}
    return {**programs, **unit_files(interpreter)}


def list_missing_files(root: str = "/") -> t.List[str]:
    """Return the files of an installed guard that are missing or empty; none means that it is installed."""
    there = [os.path.join(root, path) for path in [*PROGRAM_FILES, *unit_files("")]]
    link = os.path.join(root, WANTS_LINK)
    return [path for path in there if not (os.path.isfile(path) and os.path.getsize(path))] + ([] if os.path.islink(link) else [link])


def list_different_files(root: str, interpreter: str) -> t.List[str]:
    """Return the files that are not as they should be."""
    changed = [path for path, text in wanted_files(interpreter).items() if not has_content(os.path.join(root, path), text, file_mode(path))]
    return changed if is_linked(os.path.join(root, WANTS_LINK), UNIT) else [*changed, WANTS_LINK]


def all_paths() -> t.List[str]:
    """Return every path in the reverse order of writing."""
    return [WANTS_LINK, *reversed([*PROGRAM_FILES, *unit_files("")])]


def file_mode(path: str) -> int:
    return 0o755 if path in PROGRAM_FILES else 0o644


def run_systemctl(*arguments: str) -> None:
    """Run systemctl. Raises L(Internal) with its output."""
    run_any_systemctl(*arguments, state="The boot guard's files are in place, but systemd does not hold this host's guests yet.")


@dataclass(frozen=True)
class GuardState:
    """Whether the guard is installed, and what it did in this boot."""

    installed: bool
    systemd: bool
    """Whether systemd runs here. Where it does not, nothing runs the guard, and so nothing is held at the next boot."""
    boot: BootStatus

    @property
    def can_release(self) -> bool:
        """Whether there is something to release: a guard whose files are missing in part may hold this boot all the same, or have held it."""
        return self.installed or self.boot.ran


def read_guard_state(root: str = "/") -> GuardState:
    """Return the state; changes nothing. Raises L(Forbidden) without root."""
    if root == "/" and os.geteuid() != 0:
        raise Forbidden("The files of the boot guard belong to root.", "Set become: true, or connect as root.")
    return GuardState(installed=not list_missing_files(root), systemd=is_systemd_running(root), boot=decode(BootStatus, Guard(root).report_status()))


def is_boot_held(root: str = "/") -> t.Optional[bool]:
    """Whether the guard holds this boot; null for any user but root, who alone may read that."""
    if root == "/" and os.geteuid() != 0:
        return None
    guard = Guard(root)
    return guard.read_release() is None and guard.read_hold() is not None


def check_not_held(domain: str, root: str = "/") -> None:
    """Raise L(InvalidState) if the guard holds this boot: only the release asks the ledger whether the guests of the host run elsewhere.

    :arg domain: that is to be started, with its host, as a sentence begins with it.
    """
    if is_boot_held(root):
        raise InvalidState(
            f"{domain} cannot be started: the boot guard holds this boot, because the guests of the host may have been started elsewhere.",
            "It was not started. Run recover for the host, or release it with kvmfleet.migration.boot_guard first; both ask the ledger.",
        )


def check_same_boot(domain: str, boot_id: t.Optional[str], root: str = "/") -> None:
    """Raise L(InvalidState) if the host was booted since it was decided to start a domain: it may have been fenced, and its guests started elsewhere.

    A boot guard would hold the new boot. Not every host has one.

    :arg domain: that is to be started, with its host, as a sentence begins with it.
    :arg boot_id: the boot in which that was decided; null for a start that no recovery has decided.
    """
    if boot_id and Guard(root).boot_id() != boot_id:
        raise InvalidState(
            f"{domain} was not started: the host was booted since it was decided to start it, and the guests of the host may have been started elsewhere.",
            "Run recover for the host again; it asks the ledger and all hosts.",
        )


@dataclass(frozen=True)
class HostRelease:
    """The release of this boot."""

    changed: bool
    """False where it had been released before: then the rest is of that release."""
    was_held: bool
    released: t.Optional[BootRelease]
    """Null in check mode, where nothing was released."""
    would_start: t.Tuple[AutomaticStart, ...]
    """What a boot without guard would have started. Nothing of it was started."""


def release_host(root: str = "/", check_mode: bool = False) -> HostRelease:
    """Release this boot. After that, only the caller starts guests: libvirt and libvirt-guests consider the automatic starts of this boot done.

    Call this only after the ledger was read, and if no record withholds the release. Raises L(InvalidState) if no guard is
    installed and none has run in this boot, L(Forbidden) without root, L(Internal) if it cannot be done; then the host is still held.
    """
    now = read_guard_state(root)
    if not now.can_release:
        raise InvalidState("No boot guard is installed on this host, so nothing is held and nothing can be released.", "Run protect_host on it.")
    before, was_held = now.boot, now.boot.held is not None
    if check_mode and not before.released:
        return HostRelease(True, was_held, None, before.would_start)
    # Also if the boot was released before: that call may have died before its end.
    released, changed = (before.released, False) if check_mode and before.released else _write_release(root)
    return HostRelease(changed, was_held, released, released.would_start or ())


def _write_release(root: str) -> t.Tuple[BootRelease, bool]:
    try:
        document, is_new = program.Guard(root).release_boot(program.BY_CONTROL)
    except (OSError, program.GuardError) as error:
        raise Internal(f"The host cannot be released: {error}. It is still held.", "Repair this on the host and run the task again.") from error
    try:
        if root == "/":
            program.start_libvirt_guests()
    except (OSError, subprocess.SubprocessError) as error:
        raise Internal(
            f"The host is released, but libvirt-guests, which shuts guests down with the host, could not be started: {error}.",
            "Start libvirt-guests on the host; this starts no guests.",
        ) from error
    return decode(BootRelease, document), is_new
