# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of the module C(boot_guard): who this host is, whether this boot is held, its release, and what is to be started again."""

from __future__ import annotations

import typing as t

from . import _start_notes as start_notes
from ._facts.host_phases import read as read_identity
from ._facts.remembered import remembered
from ._guard.release import release
from ._guard.state import State, state
from ._module import require_root

Result = t.Dict[str, t.Any]
Work = t.Mapping[str, t.Any]


def read(uri: str, _work: Work) -> Result:
    """Return C(identity), C(guard), C(to_start), and C(remembered), what this host remembers of moves; changes nothing."""
    require_root()
    who = read_identity(uri, {})
    return {"changed": False, "identity": who["identity"], "libvirt_error": who["libvirt_error"], "remembered": remembered(), **_told(state())}


def release_boot(_uri: str, work: Work) -> Result:
    """Release this boot. What a boot would have started is noted first, so that it is known whatever happens to this process.

    The ledger was read before, by the action plugin. C(check) predicts.
    """
    before = state()
    if before.installed and not before.released and not work["check"]:
        for entry in before.would_start:
            if entry["uuid"]:
                start_notes.note(entry["uuid"], entry["name"], entry["why"])
    done = release(check_mode=work["check"])
    told = _told(state())
    told["guard"]["would_start"] = done.would_start
    if work["check"] and done.changed:
        noted = {entry["uuid"] for entry in told["to_start"]}
        told["to_start"] += [{**entry, "at": None} for entry in done.would_start if entry["uuid"] and entry["uuid"] not in noted]
    return {"changed": done.changed, "was_held": done.was_held, **told}


def forget(_uri: str, work: Work) -> Result:
    """Remove the notes of these domains; C(forgotten) are those that had one."""
    require_root()
    had = [uuid for uuid in work["uuids"] if (start_notes.is_noted(uuid) if work["check"] else start_notes.forget(uuid))]
    return {"changed": bool(had), "forgotten": had}


def _told(now: State) -> Result:
    noted, damaged = start_notes.notes()
    guard = {
        "installed": now.installed,
        "systemd": now.systemd,
        "ran": now.ran,
        "held": now.held,
        "released": {key: now.released.get(key) for key in ("at", "by")} if now.released else None,
        "would_start": now.would_start,
    }
    return {"guard": guard, "to_start": noted, "damaged": damaged}


PHASES: t.Dict[str, t.Callable[[str, Work], Result]] = {"read": read, "release": release_boot, "forget": forget}
