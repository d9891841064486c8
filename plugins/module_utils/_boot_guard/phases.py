# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of the modules C(boot_guard) and C(host): reading whether this boot is held, releasing it, and carrying out the decisions of a person."""

from __future__ import annotations

import typing as t

from .._domains import starting as start_notes
from .._facts.identity import read_identity
from .._facts.own_moves import find_remembered, list_remembered
from .._host_identity import adopt_host_id
from .._libvirt.host import open_reader
from .._model.boot_guard import AutomaticStart
from .._model.codec import Json, JsonObject, encode
from .._model.domain_states import RUNNING
from .._model.errors import InvalidState, KvmfleetError
from .._module import Phase, Result, require_local, require_root
from .install import leave_tombstones, read_grant, revoke_grant
from .status import GuardState, read_guard_state, release_host


class _AdoptIdentity(t.TypedDict):
    """The input of L(adopt_identity)."""

    host_id: str


class _RevokeTokens(t.TypedDict):
    """The input of L(revoke_tokens)."""

    grant: t.Optional[str]
    check: bool
    withdrawn: Json


class _RevokePeerGrant(t.TypedDict):
    """The input of L(revoke_peer_grant)."""

    grant: Json
    check: bool


class _RecallRecord(t.TypedDict):
    """The input of L(recall_record)."""

    id: str


def adopt_identity(uri: str, work: _AdoptIdentity) -> Result:
    """Give this host, which has lost its identity file, the C(host_id) that the ledger has for it. Raises L(Conflict) if the host has an identity already."""
    require_root()
    require_local(uri)
    adopt_host_id(work["host_id"])
    return {"changed": True, "host_id": work["host_id"]}


def revoke_tokens(uri: str, work: _RevokeTokens) -> Result:
    """Withdraw this host's right to leave clean-shutdown tokens, and delete a token; return C(changed), and C(unrevoked) as in L(GuardChange).

    :arg work: C(grant), the ID of the grant that the ledger has, which the host must never accept again; null for none. C(withdrawn), that grant.
    """
    require_root()
    require_local(uri)
    withdrawn = read_grant(work["withdrawn"]) if work.get("withdrawn") else None
    changed, unrevoked = revoke_grant(check_mode=work["check"], grant=work["grant"], withdrawn=withdrawn)
    return {"changed": changed, "unrevoked": unrevoked}


def revoke_peer_grant(uri: str, work: _RevokePeerGrant) -> Result:
    """Revoke the grant C(grant) (C(grant), C(host_id), C(folders)) of another host on the storage that both see.

    Returns C(folders), in which the grant is revoked now, and C(problems), by folder why it is not.
    """
    require_root()
    require_local(uri)
    folders, problems = leave_tombstones(read_grant(work["grant"]), work["check"])
    return {"changed": bool(folders), "folders": folders, "problems": problems}


def recall_record(uri: str, work: _RecallRecord) -> Result:
    """Return C(told): the record of C(work["id"]) as this host remembers it, whether it is C(watched), and whether its domain is C(running) here; or null."""
    require_root()
    require_local(uri)
    told = find_remembered(work["id"])
    if told is None:
        return {"changed": False, "told": None}
    record = t.cast("t.Dict[str, t.Any]", told["record"])
    return {"changed": False, "told": {**told, "running": _is_running(uri, record["domain"]["uuid"])}}


def _is_running(uri: str, uuid: str) -> t.Optional[bool]:
    """Whether the domain runs on this host; null if libvirt does not answer."""
    try:
        host = open_reader(uri)
    except KvmfleetError:
        return None
    try:
        return host.view_domain(uuid).state == RUNNING
    except KvmfleetError:
        return None
    finally:
        host.close()


DECISION_PHASES: t.Dict[str, Phase] = {
    "adopt": adopt_identity,
    "revoke": revoke_tokens,
    "revoke_elsewhere": revoke_peer_grant,
    "recall": recall_record,
}


class _ReleaseBoot(t.TypedDict):
    """The input of L(release_boot)."""

    check: bool
    boot_id: t.Optional[str]


class _ForgetStarts(t.TypedDict):
    """The input of L(forget_starts)."""

    uuids: t.Sequence[str]
    check: bool


def read_guard(uri: str, _work: JsonObject) -> Result:
    """Return C(identity), C(guard), C(to_start), and C(remembered), what this host remembers of moves; changes nothing."""
    require_root()
    who = read_identity(uri, {})
    return {
        "changed": False,
        "identity": who["identity"],
        "libvirt_error": who["libvirt_error"],
        "remembered": list_remembered(),
        **_describe_guard(read_guard_state()),
    }


def release_boot(_uri: str, work: _ReleaseBoot) -> Result:
    """Release this boot. The guests that a boot would have started are noted first, so that they are known even if this process dies.

    The action plugin has read the ledger before. With C(check), the release is only predicted. Raises L(InvalidState) if the host is in another boot than
    C(boot_id) by now: it may have been fenced and evacuated since the ledger was read.
    """
    require_root()
    before = read_guard_state()
    if work.get("boot_id") not in (None, before.boot.boot_id):
        raise InvalidState("The host was booted while its release was decided. It was not released.", "Run the task again; it reads the ledger again.")
    if before.can_release and not before.boot.released and not work["check"]:
        for entry in before.boot.would_start:
            if entry.uuid:
                start_notes.note_start(entry.uuid, entry.name, entry.why)
    done = release_host(check_mode=work["check"])
    result = _describe_guard(read_guard_state(), done.would_start)
    if work["check"] and done.changed:
        result["to_start"] = _predict_starts(done.would_start)
    return {"changed": done.changed, "was_held": done.was_held, **result}


def forget_starts(_uri: str, work: _ForgetStarts) -> Result:
    """Remove the notes of these domains; C(forgotten) are those that had one."""
    require_root()
    had = [uuid for uuid in work["uuids"] if (start_notes.is_noted(uuid) if work["check"] else start_notes.forget_note(uuid))]
    return {"changed": bool(had), "forgotten": had}


def _predict_starts(would_start: t.Sequence[AutomaticStart]) -> t.List[JsonObject]:
    """Return the notes of domains that are to be started, with those that a release would add."""
    noted, _damaged = start_notes.list_notes()
    known = {note.uuid for note in noted}
    return [*encode(noted), *({**encode(entry), "at": None} for entry in would_start if entry.uuid and entry.uuid not in known)]


def _describe_guard(now: GuardState, would_start: t.Optional[t.Sequence[AutomaticStart]] = None) -> Result:
    """Return the state as the module returns it.

    :arg would_start: what a boot without guard would have started, if this is the result of a release.
    """
    noted, damaged = start_notes.list_notes()
    guard = {
        "installed": now.installed,
        "systemd": now.systemd,
        "boot_id": now.boot.boot_id,
        "ran": now.boot.ran,
        "held": encode(now.boot.held),
        "released": {"at": now.boot.released.at or None, "by": now.boot.released.by} if now.boot.released else None,
        "would_start": encode(now.boot.would_start if would_start is None else would_start),
    }
    return {"guard": guard, "to_start": encode(noted), "damaged": damaged}


PHASES: t.Dict[str, Phase] = {"read": read_guard, "release": release_boot, "forget": forget_starts}
