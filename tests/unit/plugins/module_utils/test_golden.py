# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What earlier trees left on hosts is read by the present code, and written back byte for byte where it writes such a thing."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images, restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import QUARANTINE_ROOT, Quarantine, read_manifest
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import read_unfinished_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import create_host_id, read_host_id
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import DomainState
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import resolve_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import TokenGrant
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import CleanupPlan, CleanupQuestion, QuarantineEntry
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SshEndpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import read_given_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import change_policy, is_same_policy, parse_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import (
    DomainToProbe,
    PeerAnswers,
    RestartOrder,
    RestartResult,
    SavedDisk,
    SavedDomain,
    StorageToken,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import (
    StartOrder,
    Survey,
    SurveyQuestion,
    Watcher,
    read_start_order,
    read_state,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, read_json, write_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import control_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import ADMITTED_KEY, Admissions, Heartbeat
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.tests.golden.corpus import CORPORA, GOLDEN, find_files, find_files_in_some, name_of, read_documents

LATER = "of_a_later_version"
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


every_corpus = pytest.mark.parametrize("corpus", CORPORA, ids=name_of)

STATES = [*find_files("run/*/*.json"), *find_files("unknown-keys/state.json")]


# State files


@pytest.mark.parametrize("path", STATES, ids=name_of)
def test_a_state_file_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    write_json(str(tmp_path / "state"), read_state(read_json(str(path))).as_json())
    assert (tmp_path / "state").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", STATES, ids=name_of)
def test_a_watcher_that_takes_over_keeps_the_whole_state_file(path: Path, tmp_path: Path) -> None:
    state = read_json(str(path))
    known = read_state(state)
    Journal(known.record, known.watcher, str(tmp_path)).write_state()
    written = read_json(str(tmp_path / f"{state['domain']['uuid']}.json"))
    assert {**written, "answers": state["answers"]} == state


@pytest.mark.parametrize("path", find_files("run/*/*.json"), ids=name_of)
def test_the_given_policy_of_a_move_is_read_completely(path: Path) -> None:
    document = read_json(str(path))["policy"]
    policy = read_given_policy(document)
    assert json.dumps(policy.as_json()) == json.dumps(document)
    assert resolve_policy(policy, 2).ramp


def statuses_in(corpus: Path) -> t.Set[str]:
    return {json.loads(path.read_text(encoding="utf-8"))["status"] for path in STATES if corpus in path.parents}


@every_corpus
def test_each_corpus_has_queued_running_and_ended_moves(corpus: Path) -> None:
    assert statuses_in(corpus) >= {s.QUEUED, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED, s.FAILED, s.CANCELLED, s.ERROR}


def test_a_move_that_is_being_prepared_is_in_a_corpus() -> None:
    """Later corpora may lack it: this phase is short."""
    assert s.PREPARING in {status for corpus in CORPORA for status in statuses_in(corpus)}


FLIGHTS = [path for folder in ("in-flight", "aborting", "post-copy") for path in find_files(f"run/{folder}")]
FLIGHTS += [path for folder in ("queued", "taken-over") for path in find_files(f"run/{folder}")]
FLIGHTS += [path for folder in ("preparing", "waiting") for path in find_files_in_some(f"run/{folder}")]


@pytest.mark.parametrize("folder", FLIGHTS, ids=name_of)
def test_moves_in_flight_are_found(folder: Path) -> None:
    states = read_unfinished_states(str(folder))
    assert states
    assert all(state.record.status not in s.FINAL for state in states.values())


# Beside the state files


@pytest.mark.parametrize("path", find_files("run/*/*.lock"), ids=name_of)
def test_a_lock_is_taken_over_with_the_next_generation(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / path.name)
    before = json.loads(path.read_text(encoding="utf-8"))
    ownership = Ownership(path.stem, str(tmp_path))
    assert ownership.take_over(before["record"], 0) == before["generation"] + 1
    ownership.release_lock()
    after = (tmp_path / path.name).read_bytes()
    expected = path.read_bytes().replace(b'"generation": %d}' % before["generation"], b'"generation": %d}' % (before["generation"] + 1))
    assert after == expected
    with pytest.raises(Conflict):
        Ownership(path.stem, str(tmp_path)).begin_record(before["record"], before["generation"])


@pytest.mark.parametrize("path", find_files("run/*/*.heartbeat"), ids=name_of)
def test_a_heartbeat_file_is_read(path: Path, tmp_path: Path) -> None:
    now = [0.0]
    shutil.copyfile(path, tmp_path / path.name)
    heartbeat = Heartbeat(path.stem, lambda: now[0], str(tmp_path))
    now[0] = 61.0
    assert not heartbeat.is_fresh()
    (tmp_path / path.name).write_text(str(int(path.read_text(encoding="ascii")) + 1), encoding="ascii")
    assert heartbeat.is_fresh()


@pytest.mark.parametrize("path", find_files("run/*/*.seen"), ids=name_of)
def test_what_a_watcher_saw_of_hosts_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    document = read_json(str(path))
    domains = [domain for host in document["seen"].values() for domain in host["domains"]]
    assert all(domain.keys() == DomainState.__annotations__.keys() for domain in domains)
    write_json(str(tmp_path / path.name), document)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", find_files("run/turns/*.turns"), ids=name_of)
def test_an_admission_file_is_read(path: Path) -> None:
    turns = Admissions(path.stem, str(path.parent))
    turns.read_file()
    given = json.loads(path.read_text(encoding="utf-8"))[ADMITTED_KEY]
    assert given
    assert all(turns.admission_of(record) == why for record, why in given.items())


@pytest.mark.parametrize("path", find_files("run/aborting/*.intent"), ids=name_of)
def test_an_intent_is_read_and_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / path.name)
    domain, document = path.name.split(".")[0], json.loads(path.read_text(encoding="utf-8"))
    [intent] = control_files.take_intents(domain, document["record"], document["generation"], str(tmp_path))
    assert (intent.act, intent.id) == (control_files.ABORT, document["id"])
    assert list(tmp_path.iterdir()) == []
    control_files.leave_intent(domain, intent, str(tmp_path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


# Start orders

ORDERS = [*read_documents("wire/orders.jsonl"), *read_documents("unknown-keys/order.json")]


@pytest.mark.parametrize("document", ORDERS, ids=lambda document: f"{document['record']['domain']['name']}-{document['record']['id']}")
def test_a_start_order_is_read(document: t.Dict[str, t.Any]) -> None:
    order = read_start_order(document)
    assert encode(order.record) == document["record"]
    assert (order.source_uri, order.destination_uri) == (document["source_uri"], document["destination_uri"])
    assert (order.adopt, order.waits) == (document.get("adopt", False), document.get("waits", False))


@pytest.mark.parametrize("document", ORDERS, ids=lambda document: f"{document['record']['domain']['name']}-{document['record']['id']}")
def test_a_start_order_is_encoded_unchanged(document: t.Dict[str, t.Any]) -> None:
    assert encode(decode(StartOrder, document)) == document


# Surveys


@pytest.mark.parametrize("path", find_files("wire/phases/live_migrate-prepare.json"), ids=name_of)
def test_a_survey_and_its_questions_are_encoded_unchanged(path: Path) -> None:
    prepared = json.loads(path.read_text(encoding="utf-8"))
    assert encode(decode(Survey, prepared["answer"]["survey"])) == prepared["answer"]["survey"]
    assert encode(decode(t.Tuple[SurveyQuestion, ...], prepared["work"]["wanted"])) == prepared["work"]["wanted"]


# Evacuations and cleanups

# Phase, where in its call or answer, and what stands there.
PHASES = (
    ("evacuate-look", "work.domains", t.Tuple[DomainToProbe, ...]),
    ("evacuate-look", "work.knock", t.Tuple[SshEndpoint, ...]),
    ("evacuate-look", "answer.doors", t.Tuple[SshEndpoint, ...]),
    ("evacuate-look", "answer.facts", HostFacts),
    ("evacuate-start", "answer.results", t.Tuple[RestartResult, ...]),
    ("evacuate-start", "answer.elsewhere", PeerAnswers),
    ("evacuation_cleanup-survey", "work.domains", t.Tuple[CleanupQuestion, ...]),
    ("evacuation_cleanup-survey", "answer.plans", t.Tuple[CleanupPlan, ...]),
    ("evacuation_cleanup-clean", "answer.plan", CleanupPlan),
    ("evacuation_cleanup-quarantined", "answer.quarantined", t.Tuple[QuarantineEntry, ...]),
    ("host-revoke_elsewhere", "work.grant", TokenGrant),
    ("live_migrate-start", "answer.watcher", Watcher),
)
# Parts of calls that have another form in 0.1.0: it restarted domains without the files beside their disks, and kept no answers of other hosts.
VERSION_0_1_0 = "0.1.0"
DIFFERENT_IN_0_1_0 = (("evacuate-look", "work.domains"), ("evacuate-start", "work.orders"), ("evacuate-start", "answer.elsewhere"))


def spoken(phase: str, where: str) -> t.List[Path]:
    """Return the calls of a phase in which that part has its present form."""
    paths = find_files_in_some(f"wire/phases/{phase}.json")
    return [path for path in paths if (phase, where) not in DIFFERENT_IN_0_1_0 or GOLDEN / VERSION_0_1_0 not in path.parents]


SPOKEN = [pytest.param(path, where, kind, id=f"{name_of(path)}-{where}") for phase, where, kind in PHASES for path in spoken(phase, where)]


@pytest.mark.parametrize(("path", "where", "kind"), SPOKEN)
def test_requests_and_answers_of_phases_are_encoded_unchanged(path: Path, where: str, kind: t.Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    for key in where.split("."):
        document = document[key]
    assert document
    assert encode(decode(kind, document)) == document


@pytest.mark.parametrize("path", spoken("evacuate-start", "work.orders"), ids=name_of)
def test_restart_orders_are_encoded_unchanged(path: Path) -> None:
    """Definitions are passed separately, because they can hold secrets."""
    orders = [{**order, "definition": "<domain/>"} for order in json.loads(path.read_text(encoding="utf-8"))["work"]["orders"]]
    assert orders
    assert encode(decode(t.Tuple[RestartOrder, ...], orders)) == orders


@pytest.mark.parametrize(("phase", "key", "kind"), [("look", "domains", DomainToProbe), ("start", "orders", RestartOrder)])
def test_an_evacuation_ordered_by_0_1_0_is_refused(phase: str, key: str, kind: t.Any) -> None:
    """Both halves of a call are of one version, so no such call reaches this code. If one did, a domain would be started without its other files."""
    work = json.loads((GOLDEN / VERSION_0_1_0 / f"wire/phases/evacuate-{phase}.json").read_text(encoding="utf-8"))["work"]
    assert work[key]
    with pytest.raises(ShapeError, match=r"^\[0\]\.files must be there$"):
        decode(t.Tuple[kind, ...], [{**one, "definition": "<domain/>"} if kind is RestartOrder else one for one in work[key]])


# What hosts keep over boots


@pytest.mark.parametrize("path", [*find_files("host/*/evacuations/*.json"), *find_files("unknown-keys/evacuations/*.json")], ids=name_of)
def test_the_note_of_an_evacuation_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert restart.read_noted_record(path.stem, str(path.parent)) == record["id"]
    assert encode(read_record(record)) == record
    restart.write_note(path.stem, record, str(tmp_path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", find_files("host/*/host-id"), ids=name_of)
def test_a_host_keeps_its_identity(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / "host-id")
    known = path.read_text(encoding="ascii").strip()
    assert read_host_id(str(tmp_path / "host-id")) == known
    assert create_host_id(str(tmp_path / "host-id")) == (known, False)


@pytest.mark.parametrize("path", find_files("host/*/quarantine/*.json"), ids=name_of)
def test_the_manifest_of_a_quarantine_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    here = path.read_text(encoding="utf-8").replace(QUARANTINE_ROOT, str(tmp_path))
    copy = tmp_path / path.name
    copy.write_text(here, encoding="utf-8")
    manifest = read_manifest(str(copy))
    assert manifest is not None
    copy.unlink()
    Quarantine(path.stem, str(tmp_path))._write_manifest(manifest)
    assert copy.read_text(encoding="utf-8").replace(str(tmp_path), QUARANTINE_ROOT) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("host", "state"), [("put-aside", "complete"), ("deleted", "deleted")])
def test_quarantined_and_deleted_manifests_have_different_states(host: str, state: str) -> None:
    assert {document["state"] for document in read_documents(f"host/{host}/quarantine/*.json")} == {state}


SAVED = [domain for phase in read_documents("wire/phases/protect-save.json") for domain in phase["answer"]["domains"]]
PROTECTED = [
    protected
    for path in find_files("ledgers/*/domains/*.json")
    if (protected := json.loads(path.read_text(encoding="utf-8"))["body"].get("protected")) and protected.get("disks")
]


@pytest.mark.parametrize("document", SAVED, ids=lambda document: document["name"])
def test_a_saved_domain_is_encoded_unchanged(document: t.Dict[str, t.Any]) -> None:
    assert encode(decode(SavedDomain, document)) == document


def test_the_disks_of_a_protected_domain_are_encoded_unchanged() -> None:
    assert PROTECTED
    for protected in PROTECTED:
        disks = decode(t.Tuple[SavedDisk, ...], protected["disks"])
        assert encode(disks) == protected["disks"]
        assert all(disk.seen_by and not disk.extra for disk in disks)


@pytest.mark.parametrize("path", find_files("tokens/*"), ids=name_of)
def test_a_storage_token_is_seen(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / f".{path.name}")
    token = json.loads(path.read_text(encoding="utf-8"))
    assert images.is_token_seen(str(tmp_path), token["host_id"], token["nonce"])
    assert not images.is_token_seen(str(tmp_path), token["host_id"], token["host_id"])
    assert images.leave_tokens([str(tmp_path)], token["host_id"]) == ({str(tmp_path): token["nonce"]}, {})
    assert json.dumps(encode(decode(StorageToken, token))) == path.read_text(encoding="utf-8")


# Policies


@pytest.mark.parametrize("path", [*find_files("policy/all-fields.xml"), *find_files("policy/unknown-keys.xml")], ids=name_of)
def test_a_policy_is_read_completely_and_setting_it_again_changes_nothing(path: Path) -> None:
    policy = path.read_text(encoding="utf-8").strip()
    own = parse_policy(policy)
    assert (own.values, own.wrong) == (POLICY, {})
    assert is_same_policy(change_policy(policy, own.values), policy)


@pytest.mark.parametrize("path", find_files("policy/unknown-keys.xml"), ids=name_of)
def test_a_changed_policy_keeps_unknown_elements(path: Path) -> None:
    text = change_policy(path.read_text(encoding="utf-8").strip(), {"priority": 11}, ["labels"])
    assert LATER in text
    assert parse_policy(text).values == {key: 11 if key == "priority" else value for key, value in POLICY.items() if key != "labels"}
