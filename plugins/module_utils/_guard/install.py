# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Puts the boot guard on a host, and takes it away."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import typing as t

from .._errors import Conflict, Forbidden, Internal, Unsafe
from . import layout, program, systemd, units
from .tombstones import require_grant

NOT_HELD = "systemd does not run this host: the boot guard is installed, but nothing runs it, and at the next boot no automatic start of a guest is held."


@dataclasses.dataclass(frozen=True)
class Change:
    """What was changed, or in check mode would be."""

    changed: bool
    files: t.List[str]
    systemd: bool
    """Whether systemd runs the guard at the next boot."""
    warnings: t.List[str]


def install(root: str = "/", grant: t.Optional[program.Document] = None, check_mode: bool = False, taken_back: t.Sequence[str] = ()) -> Change:
    """Install the guard for the next boot, or bring it up to date. What this boot's guests do is not touched, and a held host stays held.

    A host whose guard was damaged, so that it did not run in this boot, is held from now on: its guests may have been started elsewhere.

    :arg grant: the grant under which this host may leave clean-shutdown tokens (L(storage.is_grant)); null revokes an earlier one and deletes its token.
    :arg taken_back: IDs of grants that this host must never accept again.
    Raises L(InvalidArgument), L(Conflict) for a grant that was taken back, L(Forbidden) without root, L(Internal) where the host cannot run the program.
    """
    if grant is not None:
        require_grant(grant)
    _require_root(root)
    guard = program.Guard(root)
    _check_not_taken_back(guard, grant)
    interpreter = layout.choose_interpreter()
    changes = layout.different(root, interpreter)
    is_granted = guard.grant_document() == grant and (grant is not None or not _has_token(guard)) and set(taken_back) <= set(guard.revoked())
    if not check_mode and (changes or not is_granted):
        _attempt(lambda: _apply(guard, interpreter, changes, grant, taken_back))
    if not check_mode and systemd.is_running(root):
        _activate(reload_units=bool(changes))
    files = [f"/{path}" for path in changes] + ([] if is_granted else [guard.grant_file])
    return Change(bool(files), files, systemd.is_running(root), [] if systemd.is_running(root) else [NOT_HELD])


def revoke(root: str = "/", check_mode: bool = False, grant: t.Optional[str] = None) -> bool:
    """Take back the right to leave clean-shutdown tokens, and delete a token; return whether there was either.

    :arg grant: the ID of a grant that this host must never accept again, not even from a request that is still on its way.
    """
    _require_root(root)
    guard = program.Guard(root)
    is_there = os.path.lexists(guard.grant_file) or _has_token(guard)
    if not check_mode and (is_there or grant is not None):
        _attempt(lambda: _write_grant(guard, None, [grant] if grant is not None else []))
    return is_there


def remove(root: str = "/", check_mode: bool = False) -> Change:
    """Remove the guard; return what was removed. Raises L(Unsafe) on a held host, L(Forbidden) without root."""
    _require_root(root)
    guard = program.Guard(root)
    if guard.status()["held"]:
        raise Unsafe("This host is held: without the guard its guests would start at the next boot.", "Release the host first (recover_host), then remove it.")
    present = [path for path in layout.all_paths() if os.path.lexists(os.path.join(root, path))]
    is_granted = revoke(root, check_mode)
    if not check_mode:
        _attempt(lambda: _unlink(guard, guard.revoked_file))
    if not check_mode and present:
        _attempt(lambda: _delete(root, present))
        if systemd.is_running(root):
            systemd.systemctl("daemon-reload")
    files = [f"/{path}" for path in present] + ([guard.grant_file] if is_granted else [])
    return Change(bool(files), files, systemd.is_running(root), [])


def _apply(guard: program.Guard, interpreter: str, changes: t.Sequence[str], grant: t.Optional[program.Document], taken_back: t.Sequence[str]) -> None:
    if not guard.status()["ran"]:
        _decide_this_boot(guard)
    texts = layout.wanted(interpreter)
    for path in changes:
        if path == units.WANTS_LINK:
            _link(os.path.join(guard.root, path))
        else:
            _replace(os.path.join(guard.root, path), texts[path], layout.mode_of(path))
        if path == units.PROGRAM_FILE:
            _require_runnable(guard, interpreter)
    _write_grant(guard, grant, taken_back)


def _decide_this_boot(guard: program.Guard) -> None:
    """Leave a boot that no guard was there for as it is. What is left of a guard that did not run was there to hold this boot: it is held now."""
    if any(os.path.lexists(os.path.join(guard.root, path)) for path in layout.all_paths()):
        guard.hold()
    else:
        guard.release(program.BY_INSTALL)


def _require_runnable(guard: program.Guard, interpreter: str) -> None:
    """Prove that the host runs the program, before anything depends on it: a daemon would not start without."""
    path = os.path.join(guard.root, units.PROGRAM_FILE)
    done = subprocess.run([interpreter, "-I", path, "--root", guard.root, "status"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Internal(f"The boot guard's program does not run on this host: {said} Nothing depends on it yet.", "Repair this and run the task again.")


def _activate(reload_units: bool) -> None:
    """Have systemd know the units, and the guard's unit be active: only then does it run at shutdown."""
    if reload_units:
        systemd.systemctl("daemon-reload")
    systemd.systemctl("start", units.UNIT)


def _write_grant(guard: program.Guard, grant: t.Optional[program.Document], taken_back: t.Sequence[str]) -> None:
    """Write or delete the grant, under the guard's lock: a boot whose token is being confirmed is decided before or after that."""
    with guard.locked():
        before, revoked = guard.grant(), guard.revoked()
        lost = {*taken_back, *([before] if before and before != (grant or {}).get("grant") else [])} - set(revoked)
        if lost:
            program.write_json(guard.revoked_file, [*revoked, *sorted(lost)])
        if grant is not None:
            program.write_json(guard.grant_file, grant)
            return
        for path in (guard.token_file, guard.grant_file):
            _unlink(guard, path)


def _unlink(guard: program.Guard, path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
        program.sync_folder(guard.kept_folder)


def _replace(path: str, text: str, mode: int) -> None:
    """Replace a file in one step, with folders that are missing."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    program.sync_folder(os.path.dirname(path))


def _link(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(f"/{units.UNIT_FOLDER}/{units.UNIT}", path)
    program.sync_folder(os.path.dirname(path))


def _delete(root: str, paths: t.Sequence[str]) -> None:
    for path in paths:
        os.unlink(os.path.join(root, path))


def _has_token(guard: program.Guard) -> bool:
    return os.path.lexists(guard.token_file)


def _check_not_taken_back(guard: program.Guard, grant: t.Optional[program.Document]) -> None:
    if grant is not None and grant["grant"] in guard.revoked():
        raise Conflict(
            f"The grant {grant['grant']} for clean-shutdown tokens was taken back on this host. Nothing was changed.",
            "Run the task again; it reads the ledger again.",
        )


def _require_root(root: str) -> None:
    if root == "/" and os.geteuid() != 0:
        raise Forbidden("The boot guard can be installed, removed and released by root only.", "Set become: true, or connect as root.")


def _attempt(act: t.Callable[[], None]) -> None:
    try:
        act()
    except (OSError, program.GuardError, subprocess.SubprocessError) as error:
        raise Internal(
            f"The boot guard of this host cannot be written: {error}. It may be there in part; a daemon that it cannot hold does not start.",
            "Repair this and run the task again.",
        ) from error
