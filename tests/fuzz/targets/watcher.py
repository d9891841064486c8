# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a watcher leaves on its host, read there and on the control node; the other small files that hosts keep."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import cleanup_expiry, notes, tokens
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import COMPLETE, FOLDER, read_manifest, restore_command
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.migrations import in_progress, read_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard.program import Guard
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intents, process
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import read_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.heartbeat import Heartbeat
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import remote
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._progress import ProgressLines

from .. import sandbox
from ..mutation import mutated, text_of
from ..target import Target

UUID = "00000000-0000-4000-8000-000000000001"
HOST_ID = "11111111-0000-4000-8000-000000000001"
RECORD = "33333333-0000-4000-8000-000000000003"


def _state() -> dict[str, t.Any]:
    ends = schema.place("kvm1", HOST_ID, HOST_ID), schema.place("kvm2")
    record = schema.new_record(s.LIVE_MIGRATION, {"uuid": UUID, "name": "web"}, *ends, {}, "watcher pid 7", {"memory_mib": 256})
    sample = {
        "elapsed_ms": 1,
        "remaining_bytes": 2,
        "bandwidth_bytes": 3,
        "dirty_rate_bytes": 4,
        "allowed_downtime_ms": 5,
        "throttle_percent": 0,
        "iteration": 1,
    }
    progress = {**record["progress"], "memory_total_bytes": 2**30, "memory_remaining_bytes": 2**20, "bandwidth_bytes": 2**26, "percent": 40}
    watcher = {"pid": 1, "start_ticks": process.start_ticks(1), "run_id": RECORD}
    return {
        **record,
        "status": s.RUNNING,
        "generation": 1,
        "progress": progress,
        "samples": [sample],
        "acts": [{"at": "", "act": "migrate"}],
        "watcher": watcher,
        "answers": {},
    }


_STATE = _state()


class _QuietHost:
    """A host on which that domain leaves."""

    uri = "qemu:///system"

    def domains(self) -> list[h.DomainInfo]:
        view = h.GuestView(present=True, active=True, persistent=True, state=h.RUNNING, reason="", job=h.JOB_OUTGOING)
        return [h.DomainInfo(UUID, "web", view, memory_bytes=2**28)]

    def job(self, uuid: str) -> h.JobStats:
        return h.JobStats(memory_total_bytes=100, memory_remaining_bytes=50)

    def host_uuid(self) -> str:
        return HOST_ID

    def hostname(self) -> str:
        return "kvm1"


class _IdleHost(_QuietHost):
    """A host on which nothing moves."""

    def domains(self) -> list[h.DomainInfo]:
        return []


def check_state(state: t.Any) -> None:
    """Read a state file on its host and, as a line, on the control node, where it is shown and mirrored."""
    text = text_of(state)
    folder = str(sandbox.laid_out("run", {f"{UUID}.json": text.encode("ascii")}))
    for host in (_QuietHost(), _IdleHost()):
        json.dumps(in_progress(t.cast("t.Any", host), read_states(folder)))
    states, _seen = remote._parse(f"motd\n{text}\n1 (init) S 0\n")
    for found in states.values():
        _followed(found)


def _followed(state: dict[str, t.Any]) -> None:
    ledger = FileLedger(str(sandbox.laid_out("mirror", {})))
    record = {key: value for key, value in _STATE.items() if key not in ("watcher", "answers")}
    mirror = Mirror(ledger, ledger.open_record({**record, "status": s.SCHEDULED}), owner=True)
    lines: list[str] = []
    ProgressLines(lines.append).see(state)
    mirror.follow(state)


def check_lines(data: bytes) -> None:
    """Read the output of a poll."""
    states, seen = remote._parse(data.decode("utf-8", "surrogateescape"))
    assert all(isinstance(state["alive"], bool) for state in states.values())
    assert seen is None or isinstance(seen, dict)


_FILES = {
    "state": json.dumps(_STATE).encode(),
    "lock": json.dumps({"record": RECORD, "generation": 3}).encode().ljust(128) + b"\n",
    "intent": json.dumps({"act": "abort", "record": RECORD, "generation": 1, "by": "me", "bandwidth_mib": None, "id": RECORD}).encode(),
    "token": json.dumps({"host_id": HOST_ID, "nonce": UUID}).encode(),
    "note": json.dumps({"record": RECORD}).encode(),
    "guard": json.dumps({"boot_id": "b", "at": "2026-11-21T03:00:00Z", "grant": RECORD}).encode(),
    "heartbeat": b"17",
    "stat": b"1 (a) b) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 12345 1 1",
}


def check_file(data: bytes) -> None:
    """Let every reader of a small file read it. Each may refuse it by itself."""
    folder = str(sandbox.laid_out("small", {**dict.fromkeys(_PLACES, data), "proc/sys/kernel/random/boot_id": f"{HOST_ID}\n".encode()}))
    with contextlib.suppress(KvmfleetError):
        lock = Ownership(UUID, folder)
        try:
            lock.begin(RECORD, 4)
        finally:
            with contextlib.suppress(OSError):
                lock.release()
    for intent in intents.take(UUID, RECORD, 1, folder):
        assert intent.act in (intents.ABORT, intents.FORCE_COMPLETE, intents.BANDWIDTH)
        assert intent.bandwidth_mib is None or intent.bandwidth_mib >= 0
    assert UUID.encode() in data or b"\\u" in data or not tokens.is_seen(folder, HOST_ID, UUID)
    notes.record_of(UUID, folder)
    json.dumps(read_json(os.path.join(folder, f"{UUID}.json")))
    Heartbeat(RECORD, lambda: 0.0, folder).is_fresh()
    process.parse_start_ticks(data.decode("utf-8", "replace"))
    Guard(folder).status()


_PLACES = (
    f"{UUID}.json",
    f"{UUID}.lock",
    f"{UUID}.{RECORD}.intent",
    f".kvmfleet-host-{HOST_ID}",
    f"{RECORD}.heartbeat",
    "run/kvmfleet/guard/held.json",
    "run/kvmfleet/guard/released.json",
    "var/lib/kvmfleet/guard/token.json",
    "var/lib/kvmfleet/guard/grant.json",
    "etc/libvirt/qemu/autostart/web.xml",
    "var/lib/libvirt/libvirt-guests",
)

_ROOT = "/nowhere/quarantine"
_MANIFEST = {
    "schema": 1,
    "record": RECORD,
    "domain": {"uuid": UUID, "name": "web"},
    "host_id": HOST_ID,
    "created_at": "2026-11-21T03:00:00.000Z",
    "definition": None,
    "items": [{"kind": "disk", "target": "vda", "from": "/srv/a", "to": f"/srv/{FOLDER}/{RECORD}/vda-a"}],
    "state": COMPLETE,
    "completed_at": "2026-01-21T03:00:00.000Z",
    "restore": "true",
}


def check_manifest(manifest: t.Any) -> None:
    """Read a manifest of what was put aside; nothing is named there that is not in its own folder."""
    folder = sandbox.laid_out("quarantine", {f"{RECORD}.json": text_of(manifest).encode("ascii")})
    cleanup_expiry.list_quarantined(str(folder))
    cleanup_expiry.expire([RECORD], lambda _path: (), check=True, root=str(folder))
    found = read_manifest(str(folder / f"{RECORD}.json"))
    assert found is not None
    assert all(f"/{FOLDER}/{RECORD}/" in item["to"] and ".." not in item["to"].split("/") for item in found["items"])
    restore_command(found)


def _line_seeds() -> tuple[bytes, ...]:
    seen = json.dumps({"seen": {"qemu:///system": {"gathered_at": "x", "host_uuid": HOST_ID, "host_id": None, "domains": []}}}, separators=(",", ":"))
    return (
        b"Welcome\n" + _FILES["state"] + b"\n" + _FILES["stat"] + b"\n",
        seen.encode() + b"\n",
        b'{"domain":{"uuid":"a"},"watcher":{"pid":1,"start_ticks":5}}\n1 (x) S\n',
    )


TARGETS = [
    Target("watcher_state", check_state, mutated(_STATE)),
    Target.of_bytes("watcher_lines", check_lines, *_line_seeds()),
    Target.of_bytes("host_files", check_file, *_FILES.values()),
    Target(
        "host_documents",
        lambda document: check_file(text_of(document).encode("ascii")),
        st.one_of(*(mutated(json.loads(_FILES[name])) for name in ("lock", "intent", "token", "guard"))),
    ),
    Target("quarantine_manifest", check_manifest, mutated(_MANIFEST)),
]
