# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents as a later minor version writes them: with keys that this one does not know, written by this version's own code, so that checksums hold."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import write_json
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import plan_digest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

Document = t.Dict[str, t.Any]

BY = "root@control pid 1"
LATER = {"of_a_later_version": {"text": "ä", "list": [1, 2.5, None, True], "nested": {"deep": {}}}}
IDS = ("11111111-0000-4000-8000-00000000000", "22222222-0000-4000-8000-00000000000")
ENDS = tuple(HostRef(f"kvm{number}", f"{host_id}{number}", f"{host_id}a") for number, host_id in enumerate(IDS, 1))


def write_ledger(folder: pathlib.Path) -> None:
    """Write a ledger of which every document has keys of a later version: a host, domains, a record of each type, open and closed."""
    ledger = FileLedger(str(folder))
    for end in ENDS:
        ledger.put_host(host_entry({**encode(end), "name": end.host, "state": "enabled", "schema": 1, **LATER}), None)
    for number, (record_type, statuses) in enumerate(_COURSES):
        domain = DomainRef(f"0000000{number}-0000-4000-8000-000000000000", f"web{number}")
        record = new_record(record_type, domain, ENDS[0], ENDS[1], {"timeout_seconds": {"value": 0, "source": "task", **LATER}}, BY)
        stored = ledger.open_record(read_record(_with_later(encode(record))))
        for status in statuses:
            changed = stored.record.advance(status, BY)
            last = dataclasses.replace(changed.history[-1], extra=LATER)
            stored = ledger.update_record(stored, dataclasses.replace(changed, history=(*changed.history[:-1], last)))
    for document in ledger.list_domains():
        ledger.put_domain(domain_entry({**document.body, "protected": {**LATER}, **LATER}), document.version)


_COURSES = (
    (s.LIVE_MIGRATION, (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING)),
    (s.LIVE_MIGRATION, (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED)),
    (s.EVACUATION, (s.PRE_MIGRATING, s.DONE)),
)


def _with_later(document: Document) -> Document:
    """Add a key to the document and to each object in it."""
    inner = {key: {**value, **LATER} if isinstance(value, dict) and key != "policy" else value for key, value in document.items()}
    return {**inner, **LATER}


def write_others(corpus: pathlib.Path, folder: pathlib.Path) -> None:
    """Write what lies elsewhere, after documents of the corpus: a state file, a note of an evacuation, a plan of a drain, a start order."""
    folder.mkdir(parents=True, exist_ok=True)
    state = json.loads(next((corpus / "run/in-flight").glob("*.json")).read_text(encoding="utf-8"))
    write_json(str(folder / "state.json"), _with_later(state))
    note = json.loads(next((corpus / "host/took-over/evacuations").glob("*.json")).read_text(encoding="utf-8"))
    restart.write_note(note["domain"]["uuid"], _with_later(note), str(folder / "evacuations"))
    plan = json.loads((corpus / "plans/drain.json").read_text(encoding="utf-8"))
    later = {**plan, **LATER, "moves": [{**move, **LATER} for move in plan["moves"]]}
    later["digest"] = plan_digest(later)
    (folder / "drain.json").write_text(json.dumps(later, indent=4, sort_keys=True) + "\n", encoding="utf-8")
    order = json.loads((corpus / "wire/orders.jsonl").read_text(encoding="utf-8").splitlines()[0])
    (folder / "order.json").write_text(json.dumps({**order, **LATER, "record": _with_later(order["record"])}, sort_keys=True) + "\n", encoding="utf-8")
