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

from ansible_collections.kvmfleet.migration.plugins.module_utils import _proc_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.program import Guard
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images, quarantine, restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import QUARANTINE_FOLDER, read_manifest, restore_command
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import list_in_progress, read_unfinished_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import COMPLETE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, read_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import control_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import Heartbeat
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import ProgressLines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import source_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RecordMirror

from .. import sandbox
from ..mutation import mutated, text_of
from ..target import Target

UUID = "00000000-0000-4000-8000-000000000001"
HOST_ID = "11111111-0000-4000-8000-000000000001"
RECORD = "33333333-0000-4000-8000-000000000003"


def _state() -> dict[str, t.Any]:
    ends = HostRef("kvm1", HOST_ID, HOST_ID), HostRef("kvm2", None, None)
    record = encode(new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web"), *ends, {}, "watcher pid 7", {"memory_mib": 256}))
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
    watcher = {"pid": 1, "start_ticks": _proc_files.read_start_ticks(1), "run_id": RECORD}
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

    def list_domains(self) -> list[domain_states.DomainInfo]:
        view = domain_states.DomainView(present=True, active=True, persistent=True, state=domain_states.RUNNING, reason="", job=domain_states.JOB_OUTGOING)
        return [domain_states.DomainInfo(UUID, "web", view, memory_bytes=2**28)]

    def read_job(self, uuid: str) -> domain_states.JobStats:
        return domain_states.JobStats(memory_total_bytes=100, memory_remaining_bytes=50)

    def host_uuid(self) -> str:
        return HOST_ID

    def read_hostname(self) -> str:
        return "kvm1"


class _IdleHost(_QuietHost):
    """A host on which nothing moves."""

    def list_domains(self) -> list[domain_states.DomainInfo]:
        return []


def check_state(state: t.Any) -> None:
    """Read a state file on its host and, as a line, on the control node, where it is shown and mirrored."""
    text = text_of(state)
    folder = str(sandbox.laid_out("run", {f"{UUID}.json": text.encode("ascii")}))
    for host in (_QuietHost(), _IdleHost()):
        json.dumps([found.as_json() for found in list_in_progress(t.cast("t.Any", host), read_unfinished_states(folder))])
    states, _seen = source_host._parse_output(f"motd\n{text}\n1 (init) S 0\n")
    for found in states.values():
        _followed(found)


def _followed(found: source_host.PolledState) -> None:
    ledger = FileLedger(str(sandbox.laid_out("mirror", {})))
    record = {key: value for key, value in _STATE.items() if key not in ("watcher", "answers")}
    mirror = RecordMirror(ledger, ledger.open_record(read_record({**record, "status": s.SCHEDULED})), owner=True)
    lines: list[str] = []
    ProgressLines(lines.append).show_record(found.record, found.waits_for)
    mirror.follow_state(found.record)


def check_lines(data: bytes) -> None:
    """Read the output of a poll."""
    states, seen = source_host._parse_output(data.decode("utf-8", "surrogateescape"))
    assert all(isinstance(state.is_alive, bool) for state in states.values())
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
            lock.begin_record(RECORD, 4)
        finally:
            with contextlib.suppress(OSError):
                lock.release_lock()
    for intent in control_files.take_intents(UUID, RECORD, 1, folder):
        assert intent.act in (control_files.ABORT, control_files.FORCE_COMPLETE, control_files.BANDWIDTH)
        assert intent.bandwidth_mib is None or intent.bandwidth_mib >= 0
    assert UUID.encode() in data or b"\\u" in data or not images.is_token_seen(folder, HOST_ID, UUID)
    restart.read_noted_record(UUID, folder)
    json.dumps(read_json(os.path.join(folder, f"{UUID}.json")))
    Heartbeat(RECORD, lambda: 0.0, folder).is_fresh()
    _proc_files.parse_start_ticks(data.decode("utf-8", "replace"))
    Guard(folder).report_status()


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
    "items": [{"kind": "disk", "target": "vda", "from": "/srv/a", "to": f"/srv/{QUARANTINE_FOLDER}/{RECORD}/vda-a"}],
    "state": COMPLETE,
    "completed_at": "2026-01-21T03:00:00.000Z",
    "restore": "true",
}


def check_manifest(manifest: t.Any) -> None:
    """Read a manifest of what was put aside; nothing is named there that is not in its own folder."""
    folder = sandbox.laid_out("quarantine", {f"{RECORD}.json": text_of(manifest).encode("ascii")})
    quarantine.list_quarantined(str(folder))
    quarantine.expire_quarantine([RECORD], lambda _path: (), check=True, root=str(folder))
    found = read_manifest(str(folder / f"{RECORD}.json"))
    assert found is not None
    assert all(f"/{QUARANTINE_FOLDER}/{RECORD}/" in file.destination and ".." not in file.destination.split("/") for file in found.items)
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
