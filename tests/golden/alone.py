# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents that a version's own code writes without any host: records with every end, quarantines, the boot guard's files, policies, turns.

They stand beside those of real hosts, for what a story in the lab did not come to.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import notes, quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard import program, storage
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import changed
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, copied, intend, new_record, note
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved import sealed
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.decisions import scrapped
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.golden.later import BY, ENDS

Document = t.Dict[str, t.Any]

POLICY = {
    "auto_converge": False,
    "post_copy": True,
    "timeout_seconds": 900,
    "on_timeout": "force_complete",
    "downtime_ms": 400,
    "priority": 10,
    "drain": "migrate",
    "group": {"name": "web", "policy": "soft-anti-affinity", "max_per_host": 2},
    "labels": ["ssd"],
    "profile": "gold",
}
BOOTS = tuple(f"00000000-0000-4000-8000-00000000b00{number}" for number in range(4))
_JOB = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING)
# Type, statuses, reason of the last one, forced.
COURSES: t.Tuple[t.Tuple[str, t.Tuple[str, ...], t.Optional[str], t.Optional[str]], ...] = (
    (s.LIVE_MIGRATION, (*_JOB, s.COMPLETED), None, "FORCED_MIGRATE"),
    (s.LIVE_MIGRATION, (*_JOB, s.RUNNING_POST_COPY, s.COMPLETED), None, None),
    (s.LIVE_MIGRATION, (s.RUNNING, s.COMPLETED), None, None),
    (s.LIVE_MIGRATION, (s.CONFLICT,), None, None),
    (s.LIVE_MIGRATION, (*_JOB, s.FAILED), None, None),
    *((s.LIVE_MIGRATION, (*_JOB, s.CANCELLED), reason, None) for reason in (s.REASON_OPERATOR, s.REASON_TIMEOUT, s.REASON_STALLED, s.REASON_PAUSE_OVERRUN)),
    *((s.LIVE_MIGRATION, (s.SCHEDULED, s.QUEUED, s.CANCELLED), reason, None) for reason in (s.REASON_CONTROLLER_LOST, s.REASON_QUEUE_TIMEOUT)),
    (s.LIVE_MIGRATION, (*_JOB, s.RUNNING_POST_COPY, s.ERROR), "memory_lost", None),
    (s.LIVE_MIGRATION, (*_JOB, s.ERROR, s.FAILED), None, None),
    (s.LIVE_MIGRATION, (), None, None),
    (s.LIVE_MIGRATION, (s.SCHEDULED, s.QUEUED), None, None),
    (s.LIVE_MIGRATION, _JOB, None, None),
    (s.EVACUATION, (s.CONFLICT,), None, None),
    (s.EVACUATION, (s.PRE_MIGRATING,), None, None),
    (s.EVACUATION, (s.PRE_MIGRATING, s.DONE), None, "FORCED_REBUILD"),
    (s.EVACUATION, (s.PRE_MIGRATING, s.DONE), None, None),
    (s.EVACUATION, (s.PRE_MIGRATING, s.DONE, s.COMPLETED), None, None),
    (s.EVACUATION, (s.PRE_MIGRATING, s.DONE, s.COMPLETED), "source_discarded", None),
    (s.EVACUATION, (s.PRE_MIGRATING, s.DONE, s.COMPLETED), "superseded", None),
    (s.EVACUATION, (s.PRE_MIGRATING, s.FAILED), None, None),
    (s.EVACUATION, (s.PRE_MIGRATING, s.ERROR), None, None),
)


def write(out: pathlib.Path) -> None:
    """Write all of them below a corpus."""
    records = write_courses(out / "ledgers/courses")
    write_note(next(record for record in records if record["status"] == s.DONE), out / "host/took-over/evacuations")
    write_policies(out / "policy")
    write_quarantine(out / "host/put-aside/quarantine", False)
    write_quarantine(out / "host/deleted/quarantine", True)
    write_guard(out)
    write_turns(out / "run/turns")
    write_plan(out / "plans")


def write_courses(folder: pathlib.Path) -> t.List[Document]:
    """Write a ledger with a record of each course, one more that was given up for a newer one, and hosts in every state; return the records of courses."""
    ledger = FileLedger(str(folder))
    for end, state in zip(ENDS, ("enabled", "maintenance")):
        ledger.put_host({"schema": 1, **end, "name": end["host"], "state": state, "reason": "", "by": BY, "since": "2026-11-22T09:00:00.000Z"}, None)
    gone = {"schema": 1, "host": "kvm3", "name": "kvm3", "host_id": "33333333-0000-4000-8000-000000000003", "state": "maintenance"}
    ledger.put_host(t.cast(Document, scrapped(gone, "its mainboard is beyond repair", BY)), None)
    records = [_run(ledger, f"{number:08d}-0000-4000-8000-000000000000", f"guest{number}", *course) for number, course in enumerate(COURSES)]
    _run(
        ledger,
        "99999999-0000-4000-8000-000000000000",
        "sup",
        s.EVACUATION,
        (s.PRE_MIGRATING,),
        None,
        None,
        superseded_by="99999999-0000-4000-8000-000000000001",
    )
    return records


def _run(
    ledger: FileLedger, uuid: str, name: str, record_type: str, statuses: t.Sequence[str], reason: t.Optional[str], forced: t.Optional[str], **more: str
) -> Document:
    policy = {"timeout_seconds": {"value": 900, "source": "task"}, "downtime_ms": {"value": 500, "source": "default"}}
    record = new_record(record_type, {"uuid": uuid, "name": name}, ENDS[0], ENDS[1], policy, BY, {"memory_mib": 2048}, forced, "Begun by an operator.")
    stored = ledger.open_record(record)
    for number, status in enumerate(statuses):
        changed_record = copied(stored.record)
        if status == s.RUNNING:
            intend(changed_record, "migrate")
            note(changed_record, "migrate", "watcher pid 4711")
        advance(changed_record, status, BY, "", reason if number == len(statuses) - 1 else None)
        stored = ledger.update(stored, changed_record)
    if more:
        stored = ledger.update(stored, {**copied(stored.record), **more})
    return stored.record


def write_policies(folder: pathlib.Path) -> None:
    """Write a policy with all fields, and one that a later version has written more into."""
    folder.mkdir(parents=True, exist_ok=True)
    text = changed("", POLICY)
    later = text.replace("<priority>", '<of_a_later_version unit="s"><x/></of_a_later_version><priority>')
    (folder / "all-fields.xml").write_text(f"{text}\n", encoding="utf-8")
    (folder / "unknown-keys.xml").write_text(f"{later}\n", encoding="utf-8")


def write_quarantine(out: pathlib.Path, deleted: bool) -> None:
    """Put a file and a definition aside, and keep the manifest as it is where hosts have it."""
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "web.qcow2"
        image.write_bytes(b"")
        root = os.path.join(folder, "quarantine")
        own = quarantine.Quarantine("44444444-0000-4000-8000-000000000004", root)
        item = own.item("disk", "vda", str(image), folder)
        own.begin({"uuid": "44444444-0000-4000-8000-0000000000dd", "name": "web"}, t.cast(str, ENDS[0]["host_id"]), "<domain/>", [item])
        own.move(item)
        own.finish()
        if deleted:
            own.mark_deleted()
        out.mkdir(parents=True, exist_ok=True)
        for path in pathlib.Path(root).glob("*.json"):
            text = path.read_text(encoding="utf-8").replace(root, quarantine.ROOT).replace(folder, "/var/lib/libvirt/images")
            (out / path.name).write_text(text, encoding="utf-8")


def write_guard(out: pathlib.Path) -> None:
    """Write what the guard keeps of four boots: held, released by the control node, released by a token, and with a token left for the next."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        guard = program.Guard(folder)
        _boot(root, BOOTS[0])
        guard.hold()
        _keep(root / "run/kvmfleet/guard", out / "run/guard-held/guard")
        guard.release(program.BY_CONTROL)
        _keep(root / "run/kvmfleet/guard", out / "run/guard-released-by-control/guard")
        program.write_json(guard.grant_file, _grant(root))
        guard.leave_token()
        _keep(root / "var/lib/kvmfleet/guard", out / "host/trusted/guard")
        _boot(root, BOOTS[1])
        guard.confirm()
        _keep(root / "run/kvmfleet/guard", out / "run/guard-released-by-token/guard")


def _grant(root: pathlib.Path) -> Document:
    """Return a grant, with the storage that confirms it and the program that reads it."""
    host_id, nonce = "77777777-0000-4000-8000-000000000007", "88888888-0000-4000-8000-000000000008"
    images = root / "images"
    images.mkdir()
    (images / f"{storage.HOST_TOKEN_PREFIX}{host_id}").write_text(json.dumps({"host_id": host_id, "nonce": nonce}), encoding="ascii")
    program_file = root / program.STORAGE_PROGRAM
    program_file.parent.mkdir(parents=True)
    shutil.copyfile(storage.__file__, program_file)
    return {"grant": "55555555-0000-4000-8000-000000000005", "host_id": host_id, "folders": {str(images): nonce}}


def _boot(root: pathlib.Path, boot_id: str) -> None:
    kernel = root / "proc/sys/kernel/random"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "boot_id").write_text(boot_id, encoding="ascii")


def _keep(source: pathlib.Path, target: pathlib.Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.json"):
        shutil.copyfile(path, target / path.name)


def write_turns(folder: pathlib.Path) -> None:
    """Write a file of turns, as the control node's shell command does."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"given": {"66666666-0000-4000-8000-000000000006": "It had waited 12 s for its turn."}, "ended": {}}
    (folder / "66666666-0000-4000-8000-000000000060.turns").write_text(json.dumps(told, separators=(",", ":")), encoding="utf-8")


def write_note(record: Document, folder: pathlib.Path) -> None:
    """Write the note of an evacuation, as the host that took the domain over does."""
    notes.write(record["domain"]["uuid"], {**record, "ledger_id": "77777777-0000-4000-8000-000000000007"}, str(folder))


def write_plan(folder: pathlib.Path) -> None:
    """Write a sealed plan of a drain, as the role writes its file."""
    domain = {"name": "web", "uuid": "88888888-0000-4000-8000-000000000008", "source": "kvm1", "reason": "Most room."}
    figures = {"order": 1, "destination": "kvm2", "memory_mib": 2048, "priority": 10, "predicted_seconds": 12.5, "predicted_downtime_ms": 90}
    move = {**domain, **figures, "rejected": [{"host": "kvm3", "reason": "It is in maintenance."}], "warnings": [], "request": {"memory_mib": 2048}}
    plan = {
        "created_at": "2026-11-22T09:00:00.000Z",
        "sources": ["kvm1"],
        "candidates": ["kvm2", "kvm3"],
        "options": {"parallel": 4, "n_plus_one": False, "moves": {}},
        "settings": {},
        "moves": [move],
        "shutdowns": [],
        "unplaced": [],
        "skipped": [{**domain, "uuid": "88888888-0000-4000-8000-000000000009", "name": "off", "state": "shut off", "drain": "migrate"}],
        "n_plus_one": None,
        "predicted_seconds": {"kvm1": 12.5},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drain.json").write_text(json.dumps(sealed(plan), indent=4, sort_keys=True) + "\n", encoding="utf-8")
