# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Installs the boot guard on a host, and revokes the grants of clean-shutdown tokens.

A tombstone on shared storage tells a host that is off, at its next boot, that its token was revoked.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import typing as t

from .._dataclass import dataclass
from .._files import replace_file, sync_folder
from .._model.boot_guard import GrantTombstone, TokenGrant
from .._model.codec import Json, decode, encode
from .._model.errors import Conflict, Forbidden, Internal, InvalidArgument
from .._systemd import choose_interpreter, install_file, is_systemd_running, link_unit, not_runnable_error, try_program, warn_of_interpreter
from .._time_limits import answer_all_within
from . import program, status, storage_program

NOT_HELD = "systemd does not run this host: the boot guard is installed, but nothing runs it. The next boot holds no automatic starts of guests."

NOT_REVOKED_ON_STORAGE = (
    "The earlier right to leave clean-shutdown tokens was withdrawn on this host, but not on shared storage: "
    "do not start the host from an earlier copy of its disk while its guests run elsewhere"
)


@dataclass(frozen=True)
class GuardChange:
    """What was changed, or would be in check mode."""

    changed: bool
    files: t.List[str]
    systemd: bool
    """Whether systemd runs the guard at the next boot."""
    warnings: t.List[str]
    unrevoked: str
    """Why an earlier copy of the host's disk could still use a grant that was withdrawn; empty if it could not."""


def install_guard(
    root: str = "/",
    grant: t.Optional[TokenGrant] = None,
    check_mode: bool = False,
    taken_back: t.Sequence[str] = (),
    withdrawn: t.Optional[TokenGrant] = None,
) -> GuardChange:
    """Install the guard for the next boot, or bring it up to date. The guests of this boot are not affected, and a held host stays held.

    A host whose guard was damaged, so that it did not run in this boot, is held from now on: its guests may have been started elsewhere.

    :arg grant: the grant under which this host may leave clean-shutdown tokens; null revokes an earlier one and deletes its token.
    :arg taken_back: IDs of grants that this host must never accept again.
    :arg withdrawn: one of these, as the ledger has it: it is revoked on shared storage also if this host has forgotten it since.
    Raises L(Conflict) for a grant that was withdrawn, L(Forbidden) without root, L(Internal) if the host cannot run the program.
    """
    _require_root(root)
    guard = program.Guard(root)
    _check_not_withdrawn(guard, grant)
    interpreter = choose_interpreter()
    changes = status.list_different_files(root, interpreter)
    is_granted = (
        guard.read_grant_document() == encode(grant) and (grant is not None or not _has_token(guard)) and set(taken_back) <= set(guard.list_revoked_grants())
    )
    unrevoked = "" if check_mode else _revoke_on_storage(guard, grant, withdrawn)
    if not check_mode and (changes or not is_granted):
        _attempt_write(lambda: _apply_changes(guard, interpreter, changes, grant, taken_back))
    if not check_mode and is_systemd_running(root):
        _activate_units(reload_units=bool(changes))
    files = [f"/{path}" for path in changes] + ([] if is_granted else [guard.grant_file])
    warnings = [] if is_systemd_running(root) else [NOT_HELD]
    warnings += warn_of_interpreter(interpreter, "The boot guard", "libvirt does not start on this host")
    return GuardChange(bool(files), files, is_systemd_running(root), warnings, unrevoked)


def revoke_grant(root: str = "/", check_mode: bool = False, grant: t.Optional[str] = None, withdrawn: t.Optional[TokenGrant] = None) -> t.Tuple[bool, str]:
    """Withdraw the grant for clean-shutdown tokens, and delete a token. Return whether either existed, and C(unrevoked) as in L(GuardChange).

    :arg grant: the ID of a grant that this host must never accept again, not even from a delayed request.
    :arg withdrawn: that grant, as the ledger has it; null for one of an earlier version, which names no folders.
    """
    _require_root(root)
    guard = program.Guard(root)
    is_there, unrevoked = os.path.lexists(guard.grant_file) or _has_token(guard), ""
    if not check_mode and (is_there or grant is not None):
        unrevoked = _revoke_on_storage(guard, None, withdrawn)
        _attempt_write(lambda: _write_grant(guard, None, [grant] if grant is not None else []))
    return is_there, unrevoked


def _apply_changes(guard: program.Guard, interpreter: str, changes: t.Sequence[str], grant: t.Optional[TokenGrant], taken_back: t.Sequence[str]) -> None:
    if not guard.report_status()["ran"]:
        _decide_this_boot(guard)
    texts = status.wanted_files(interpreter)
    if changes:
        _require_runnable(guard, interpreter, texts[status.PROGRAM_FILE])
    for path in changes:
        if path == status.WANTS_LINK:
            link_unit(os.path.join(guard.root, path), status.UNIT)
        else:
            install_file(os.path.join(guard.root, path), texts[path], status.file_mode(path))
    _write_grant(guard, grant, taken_back)


def _decide_this_boot(guard: program.Guard) -> None:
    """Leave a boot without an installed guard unchanged. If a damaged guard was to hold this boot but did not run, hold it now."""
    if any(os.path.lexists(os.path.join(guard.root, path)) for path in status.all_paths()):
        guard.hold_boot()
    else:
        guard.release_boot(program.BY_INSTALL)


def _require_runnable(guard: program.Guard, interpreter: str, text: str) -> None:
    """Prove that the host can run the program before any file is changed: a daemon cannot start if the installed program fails."""
    done = try_program(interpreter, text, "--root", guard.root, "status")
    if done.returncode:
        raise not_runnable_error("The boot guard's program", done, "The guard was not changed.")


def _activate_units(reload_units: bool) -> None:
    """Load the units into systemd, and activate the guard's unit: only an active unit runs at shutdown."""
    if reload_units:
        status.run_systemctl("daemon-reload")
    status.run_systemctl("start", status.UNIT)


def _write_grant(guard: program.Guard, grant: t.Optional[TokenGrant], taken_back: t.Sequence[str]) -> None:
    """Write or delete the grant, under the guard's lock: a boot whose token is being confirmed is decided before or after that."""
    with guard.hold_lock():
        _check_not_withdrawn(guard, grant)
        before, revoked = guard.read_grant_id(), guard.list_revoked_grants()
        lost = {*taken_back, *([before] if before and before != (grant.grant if grant else None) else [])} - set(revoked)
        if lost:
            program.write_json(guard.revoked_file, [*revoked, *sorted(lost)])
        if grant is not None:
            program.write_json(guard.grant_file, encode(grant))
            return
        for path in (guard.token_file, guard.grant_file):
            _unlink_durably(guard, path)


def _revoke_on_storage(guard: program.Guard, grant: t.Optional[TokenGrant], withdrawn: t.Optional[TokenGrant]) -> str:
    """Leave tombstones of the grant that this host has, unless it keeps it, and of the withdrawn one; return a sentence if no folder took those of one.

    The note of a withdrawn grant is on the host's own disk. If that is restored from an earlier copy, only a tombstone shows that the token in it was revoked.
    """
    document = guard.read_grant_document()
    before = read_grant(document) if storage_program.is_grant(document) else None
    lost = {one.grant: one for one in (withdrawn, before) if one and one.grant != (grant.grant if grant else None)}
    tried = [leave_tombstones(one) for one in lost.values()]
    why = "; ".join(f"{folder}: {problem}" for folders, problems in tried if not folders for folder, problem in sorted(problems.items()))
    return f"{NOT_REVOKED_ON_STORAGE} ({why})." if why else ""


def _unlink_durably(guard: program.Guard, path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
        sync_folder(guard.kept_folder)


def _has_token(guard: program.Guard) -> bool:
    return os.path.lexists(guard.token_file)


def is_withdrawn(grant: t.Optional[TokenGrant], root: str = "/") -> bool:
    """Whether the host never accepts this grant again."""
    return grant is not None and grant.grant in program.Guard(root).list_revoked_grants()


def _check_not_withdrawn(guard: program.Guard, grant: t.Optional[TokenGrant]) -> None:
    if grant is not None and grant.grant in guard.list_revoked_grants():
        raise Conflict(
            f"The grant {grant.grant} for clean-shutdown tokens was withdrawn on this host. It is not granted again.",
            "Run the task again; it reads the ledger again.",
        )


def _require_root(root: str) -> None:
    if root == "/" and os.geteuid() != 0:
        raise Forbidden("The boot guard can be installed, removed and released by root only.", "Set become: true, or connect as root.")


def _attempt_write(act: t.Callable[[], None]) -> None:
    try:
        act()
    except (OSError, program.GuardError, subprocess.SubprocessError) as error:
        raise Internal(
            f"The boot guard of this host cannot be written: {error}. It may be installed in part; a daemon that it cannot hold does not start.",
            "Repair this and run the task again.",
        ) from error


STORAGE_SECONDS = 20.0
_NO_ANSWER = f"its file system did not answer within {STORAGE_SECONDS:.0f} s"


def list_revoking_folders(grant: TokenGrant) -> t.List[str]:
    """Return the folders in which this grant has a tombstone, as far as they can be read."""
    found = answer_all_within(STORAGE_SECONDS, {folder: functools.partial(_is_revoked, grant, folder) for folder in sorted(grant.folders)})
    return [folder for folder, is_there in found.items() if is_there]


def leave_tombstones(grant: TokenGrant, check_mode: bool = False) -> t.Tuple[t.List[str], t.Dict[str, str]]:
    """Revoke a grant in each of its folders that this host sees; return these folders, and by folder why it has no tombstone.

    One tombstone is enough: the host's guard accepts a token only if no folder has a tombstone. The tombstones are on the storage when this returns, and this
    collection never removes them. In check mode, return what would be done.
    """
    tried = answer_all_within(STORAGE_SECONDS, {folder: functools.partial(_revoke_in, grant, folder, check_mode) for folder in sorted(grant.folders)})
    problems = {folder: _NO_ANSWER if problem is None else problem for folder, problem in tried.items() if problem != ""}
    return [folder for folder, problem in tried.items() if problem == ""], problems


def read_grant(document: Json) -> TokenGrant:
    """Return the grant in a JSON document. Raises L(InvalidArgument) if it has none."""
    if not storage_program.is_grant(document):
        raise InvalidArgument(f"A grant for clean-shutdown tokens must have the UUIDs grant and host_id, and folders: {document!r}.", "Nothing was changed.")
    return decode(TokenGrant, document)


def _is_revoked(grant: TokenGrant, folder: str) -> bool:
    return storage_program.has_tombstone(folder, grant.grant, grant.host_id, grant.folders[folder])


def _revoke_in(grant: TokenGrant, folder: str, check_mode: bool) -> str:
    """Make sure that the folder has the tombstone. Return why it does not; empty when it does and this host provably sees the other host's store."""
    try:
        if _is_revoked(grant, folder):
            if not check_mode:
                # A task that died right after the rename may have left the file, with a name that is not on disk yet.
                sync_folder(folder)
        elif not check_mode:
            _leave_tombstone(grant, folder)
            return "" if _is_revoked(grant, folder) else "the file that was written there is missing"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _leave_tombstone(grant: TokenGrant, folder: str) -> None:
    path = os.path.join(folder, f"{storage_program.TOMBSTONE_PREFIX}{grant.grant}")
    replace_file(path, json.dumps(encode(GrantTombstone(grant.host_id, grant.grant))), 0o644)
