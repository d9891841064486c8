# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents that a version's own code writes without any host: records with every end, quarantines, the boot guard's files, policies, turns.

They stand beside those of real hosts, for what a story in the lab did not come to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import program, storage_program
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import quarantine, restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import change_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import PLAN_SCHEMA, plan_digest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import discarded_entry
from ansible_collections.kvmfleet.migration.tests.golden.later import BY, ENDS
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

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
    write_note(next(record for record in records if record.status == s.DONE), out / "host/took-over/evacuations")
    write_policies(out / "policy")
    write_quarantine(out / "host/put-aside/quarantine", False)
    write_quarantine(out / "host/deleted/quarantine", True)
    write_guard(out)
    write_turns(out / "run/turns")
    write_plan(out / "plans")


def write_courses(folder: pathlib.Path) -> t.List[MoveRecord]:
    """Write a ledger with a record of each course, one more that was given up for a newer one, and hosts in every state; return the records of courses."""
    ledger = FileLedger(str(folder))
    for end, state in zip(ENDS, ("enabled", "maintenance")):
        ledger.put_host(
            host_entry({"schema": 1, **encode(end), "name": end.host, "state": state, "reason": "", "by": BY, "since": "2026-11-22T09:00:00.000Z"}), None
        )
    gone = {"schema": 1, "host": "kvm3", "name": "kvm3", "host_id": "33333333-0000-4000-8000-000000000003", "state": "maintenance"}
    discarded = discarded_entry(host_entry(gone), "its mainboard is beyond repair", BY)
    assert discarded is not None
    ledger.put_host(discarded, None)
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
) -> MoveRecord:
    policy = {"timeout_seconds": {"value": 900, "source": "task"}, "downtime_ms": {"value": 500, "source": "default"}}
    record = new_record(record_type, DomainRef(uuid, name), ENDS[0], ENDS[1], policy, BY, {"memory_mib": 2048}, forced, "Begun by an operator.")
    stored = ledger.open_record(record)
    for number, status in enumerate(statuses):
        changed_record = stored.record
        if status == s.RUNNING:
            changed_record = changed_record.intend("migrate").note("migrate", "watcher pid 4711")
        stored = ledger.update_record(stored, changed_record.advance(status, BY, "", reason if number == len(statuses) - 1 else None))
    if more:
        stored = ledger.update_record(stored, dataclasses.replace(stored.record, **more))
    return stored.record


def write_policies(folder: pathlib.Path) -> None:
    """Write a policy with all fields, and one that a later version has written more into."""
    folder.mkdir(parents=True, exist_ok=True)
    text = change_policy("", POLICY)
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
        file = own.locate_file("disk", "vda", str(image), folder)
        own.record_files(DomainRef("44444444-0000-4000-8000-0000000000dd", "web"), t.cast(str, ENDS[0].host_id), "<domain/>", [file])
        own.move_file(file)
        own.mark_complete()
        if deleted:
            own.mark_deleted()
        out.mkdir(parents=True, exist_ok=True)
        for path in pathlib.Path(root).glob("*.json"):
            text = path.read_text(encoding="utf-8").replace(root, quarantine.QUARANTINE_ROOT).replace(folder, "/var/lib/libvirt/images")
            (out / path.name).write_text(text, encoding="utf-8")


def write_guard(out: pathlib.Path) -> None:
    """Write the guard's files of two boots: held, released by the control node, a token left; then held until that is confirmed, and released by it."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        guard = program.Guard(folder)
        _boot(root, BOOTS[0])
        guard.hold_boot()
        _keep(root, "run/kvmfleet/guard", out / "run/guard-held/guard")
        guard.release_boot(program.BY_CONTROL)
        _keep(root, "run/kvmfleet/guard", out / "run/guard-released-by-control/guard")
        program.write_json(guard.grant_file, _grant(root))
        guard.leave_token()
        _keep(root, "var/lib/kvmfleet/guard", out / "host/trusted/guard")
        _boot(root, BOOTS[1])
        guard.hold_boot()
        _keep(root, "run/kvmfleet/guard", out / "run/guard-unconfirmed/guard")
        guard.confirm_token()
        _keep(root, "run/kvmfleet/guard", out / "run/guard-released-by-token/guard")


def _grant(root: pathlib.Path) -> Document:
    """Return a grant, with the storage that confirms it and the program that reads it."""
    host_id, nonce = "77777777-0000-4000-8000-000000000007", "88888888-0000-4000-8000-000000000008"
    images = root / "images"
    images.mkdir()
    (images / f"{storage_program.HOST_TOKEN_PREFIX}{host_id}").write_text(json.dumps({"host_id": host_id, "nonce": nonce}), encoding="ascii")
    program_file = root / program.STORAGE_PROGRAM
    program_file.parent.mkdir(parents=True)
    shutil.copyfile(storage_program.__file__, program_file)
    return {"grant": "55555555-0000-4000-8000-000000000005", "host_id": host_id, "folders": {str(images): nonce}}


def _boot(root: pathlib.Path, boot_id: str) -> None:
    kernel = root / "proc/sys/kernel/random"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "boot_id").write_text(boot_id, encoding="ascii")


def _keep(root: pathlib.Path, source: str, target: pathlib.Path) -> None:
    """Keep the files of a folder below a root, without the name of that temporary folder."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (root / source).glob("*.json"):
        text = path.read_text(encoding="utf-8").replace(str(root), "/var/lib/libvirt")
        (target / path.name).write_text(text, encoding="utf-8")


def write_turns(folder: pathlib.Path) -> None:
    """Write a file of turns, as the control node's shell command does."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"given": {"66666666-0000-4000-8000-000000000006": "It had waited 12 s for its turn."}, "ended": {}}
    (folder / "66666666-0000-4000-8000-000000000060.turns").write_text(json.dumps(told, separators=(",", ":")), encoding="utf-8")


def write_note(record: MoveRecord, folder: pathlib.Path) -> None:
    """Write the note of an evacuation, as the host that took the domain over does."""
    restart.write_note(record.domain.uuid, encode(dataclasses.replace(record, ledger_id="77777777-0000-4000-8000-000000000007")), str(folder))


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
    (folder / "drain.json").write_text(
        json.dumps({"schema": PLAN_SCHEMA, "digest": plan_digest(plan), **plan}, indent=4, sort_keys=True) + "\n", encoding="utf-8"
    )
