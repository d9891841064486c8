# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a version decides when it reads a corpus, as far as no host has to be asked for it.

The version that made a corpus writes its answers beside it; a later version has to give the same ones. When the code that is asked here moves or gets other
names, this file follows it: the questions and the answers stay.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Host
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import AdaptiveSchedule
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.outcome import judge_outcome
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import host_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import (
    StartOrder,
    SurveyedDomain,
    read_start_order,
    read_survey,
    record_in,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order_terms import limits_of, terms_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.settle import Settlement
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import tombstones
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.leftovers import closing_status
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import describe_record, holds_domain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.decide import decide_move
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import DEFAULT_SCHEDULING, Scheduling

Document = t.Dict[str, t.Any]


def _view(state: str, reason: str = "", job: str = domain_states.JOB_NONE) -> domain_states.DomainView:
    return domain_states.DomainView(
        answered=True, present=True, active=state in (domain_states.RUNNING, domain_states.PAUSED), state=state, reason=reason, job=job, persistent=True
    )


GONE = domain_states.DomainView(answered=True, present=False, active=False)
READINGS = {
    "arrived": (GONE, _view(domain_states.RUNNING)),
    "both gone": (GONE, GONE),
    "stayed": (_view(domain_states.RUNNING), GONE),
    "handed over": (_view(domain_states.PAUSED, domain_states.MIGRATION), _view(domain_states.RUNNING)),
    "left behind": (_view(domain_states.PAUSED, domain_states.MIGRATION), GONE),
    "broken": (_view(domain_states.PAUSED, domain_states.POST_COPY_FAILED), _view(domain_states.RUNNING, domain_states.POST_COPY)),
    "twice": (_view(domain_states.RUNNING), _view(domain_states.RUNNING)),
    "silent": (GONE, domain_states.NO_ANSWER),
}


def of(corpus: pathlib.Path) -> Document:
    """Return all answers, by question."""
    found: Document = {
        "limits": {f"{number}": _limits(order) for number, order in enumerate(orders(corpus))},
        "verdicts": {str(path.relative_to(corpus / "run")): _verdicts(path) for path in states(corpus)},
        "decisions": [{case: decided(question) for case, question in _cases(corpus, one)} for one in lines(corpus / "wire/decisions.jsonl")],
    }
    for name in ("file", "courses", "unknown-keys"):
        with tempfile.TemporaryDirectory() as folder:
            found[f"ledger {name}"] = _of_ledger(opened(corpus / "ledgers" / name, pathlib.Path(folder)))
    return found


def opened(kept: pathlib.Path, folder: pathlib.Path, moved: bool = False) -> FileLedger:
    """Return a copy of a ledger of the corpus, opened: a corpus is never written."""
    copy = folder / "ledger"
    shutil.copytree(kept, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return FileLedger(str(copy), create=False, moved=moved)


def lines(path: pathlib.Path) -> t.List[Document]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def orders(corpus: pathlib.Path) -> t.List[StartOrder]:
    """Return the start orders, as a watcher reads them."""
    return [read_start_order(document) for document in lines(corpus / "wire/orders.jsonl")]


def states(corpus: pathlib.Path) -> t.List[pathlib.Path]:
    """Return the state files of moves."""
    return sorted(path for path in (corpus / "run").glob("*/*.json"))


def _limits(order: StartOrder) -> Document:
    limits = limits_of(order)
    schedule = limits.downtime
    # A ramp without a timeout was longer in 0.1.0 than it should have been: only its ends are promised.
    ramp = dataclasses.asdict(schedule) if isinstance(schedule, AdaptiveSchedule) else {"first_ms": schedule.first_ms}
    rest = {key: getattr(limits, key) for key in ("timeout_seconds", "stall_seconds", "force_on_timeout")}
    # The bandwidth that a person gives with a force is not of the order.
    terms = {key: value for key, value in dataclasses.asdict(terms_of(order)).items() if key != "bandwidth_mib"}
    return {"domain": order.name, "adopt": order.adopt, "waits": order.waits, "downtime": ramp, **rest, "terms": terms}


def _verdicts(path: pathlib.Path) -> Document:
    """Return what settling the move of a state file comes to, for each pair of readings."""
    record = read_record(record_in(json.loads(path.read_text(encoding="utf-8"))))
    journal = Journal(record, None, folder=None)
    # In 0.1.0 it did not count that a guest had arrived.
    move = dataclasses.replace(Settlement(_nobody, _nobody, journal, lambda: None, lambda: 0.0, lambda _seconds: None)._move, ran_there=False)
    return {name: dataclasses.asdict(judge_outcome(source, destination, move)) for name, (source, destination) in READINGS.items()}


def _nobody(_seconds: float) -> Host:
    raise AssertionError("no host is asked")


def _cases(corpus: pathlib.Path, one: Document) -> t.Iterator[t.Tuple[str, Document]]:
    """Yield a decision as it was asked for, and as it would be asked with a watcher, without one, with somebody else's job, and after the arrival."""
    yield "as it was", one
    uuid = one["domain"]["info"]["uuid"]
    (uri, *dummy_others) = one["request"]["uris"].values()
    there = {uri: {"active": True, "uuid": uuid, "present": True}}
    view = {**one["domain"]["info"]["view"], "job": domain_states.JOB_OUTGOING}
    moving = {**one["domain"], "info": {**one["domain"]["info"], "view": view}}
    yield "somebody else moves it", {**one, "stored": None, "domain": {**moving, "there": there}}
    yield "it is there", {**one, "stored": None, "domain": {**one["domain"], "found": False, "there": there}}
    for path in states(corpus):
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["domain"]["uuid"] == uuid:
            record = {**record_in(state), "status": "running"}
            for case, alive in (("watched", True), ("not watched", False)):
                asked = {**one, "stored": {"record": record, "version": 1}, "domain": {**moving, "watch": {"record": state, "alive": alive}}}
                yield f"{path.relative_to(corpus / 'run')}, {case}", asked


def decided(one: Document) -> Document:
    """Return the decision about a move, from what was known at the time."""
    asked = dict(one["request"])
    asked.pop("is")
    place = asked.pop("place")
    asked["scheduling"] = decode(Scheduling, place) if place else DEFAULT_SCHEDULING
    request = MoveRequest(**{**asked, "options": MoveOptions(**asked["options"])})
    stored = Stored(read_record(one["stored"]["record"]), one["stored"]["version"]) if one["stored"] else None
    decision = decide_move(request, one["source"], read_survey(one["survey"]), decode(SurveyedDomain, one["domain"]), stored, "replayed")
    keys = [key for key in ("uuid", "host", "destination", "candidates", "refused", "record") if hasattr(decision, key)]
    return {"is": type(decision).__name__, **{key: encode(getattr(decision, key)) for key in keys}}


def _of_ledger(ledger: Ledger) -> Document:
    hosts = [document.body for document in ledger.list_hosts()]
    return {
        "records": {record.id: _of_record(record) for record in ledger.list_records()},
        "cleaning": {host["name"]: _cleaning(ledger, host) for host in hosts},
        "hosts": {host["name"]: host["state"] for host in hosts},
        "places": {document.body["uuid"]: document.body["possible_hosts"] for document in ledger.list_domains()},
        "audit": ledger.verify_audit(),
    }


def _of_record(record: MoveRecord) -> Document:
    return {"is": describe_record(record), "holds": holds_domain(record), "unsettled": record.is_unsettled, "aborting": record.is_aborting}


def _cleaning(ledger: Ledger, host: Document) -> t.List[Document]:
    """Return what a cleanup of the host asks about, and what it would end."""
    found, here = tombstones.find_tombstones(ledger, host["host_id"]), host_of(host)
    ends = {tombstone.record.id: closing_status(tombstone.record) for tombstone in found}
    # The source of a superseded evacuation is cleaned, too, which 0.1.0 did not do.
    asked = [tombstone for tombstone in found if not (tombstone.record.superseded_by and tombstone.record.source.host_id == host["host_id"])]
    return [{**encode(tombstones.build_question(tombstone, ledger, here)), "ends": ends[tombstone.record.id]} for tombstone in asked]
