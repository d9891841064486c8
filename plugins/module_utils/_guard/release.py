# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Releases a held host for this boot, and says which guests a boot without guard would have started."""

from __future__ import annotations

import dataclasses
import subprocess
import typing as t

from .._errors import Internal, InvalidState
from . import program
from .state import state


@dataclasses.dataclass(frozen=True)
class Release:
    """The release of this boot."""

    changed: bool
    """False where it had been released before: then the rest is of that release."""
    was_held: bool
    released: t.Dict[str, t.Any]
    would_start: t.List[t.Dict[str, t.Any]]
    """C(uuid) (null where a definition was unreadable), C(name), C(why): what a boot without guard would have started. Nothing of it was started."""


def release(root: str = "/", check_mode: bool = False) -> Release:
    """Release this boot. The caller, and nobody else, starts guests then: libvirt and libvirt-guests count this boot's automatic starts as done.

    To be called only after the ledger was read, and no record withholds the release. Raises L(InvalidState) where no guard is
    installed, L(Forbidden) without root, L(Internal) where it cannot be done; then the host is still held.
    """
    before = state(root)
    if not before.installed:
        raise InvalidState("No boot guard is installed on this host, so nothing is held and nothing can be released.", "Run protect_host on it.")
    if check_mode and not before.released:
        return Release(True, before.held is not None, {}, before.would_start)
    # also where it was released before: the call that did it may have died on its way
    document, changed = (before.released, False) if check_mode and before.released else _released(root)
    return Release(changed, before.held is not None, document, document.get("would_start", []))


def _released(root: str) -> t.Tuple[t.Dict[str, t.Any], bool]:
    try:
        answer = program.Guard(root).release(program.BY_CONTROL)
    except (OSError, program.GuardError) as error:
        raise Internal(f"The host cannot be released: {error}. It is still held.", "Repair this on the host and run the task again.") from error
    try:
        if root == "/":
            program.start_libvirt_guests()
    except (OSError, subprocess.SubprocessError) as error:
        raise Internal(
            f"The host is released, but libvirt-guests, which shuts guests down with the host, could not be started: {error}.",
            "Start libvirt-guests on the host; nothing would be started by it.",
        ) from error
    return answer
