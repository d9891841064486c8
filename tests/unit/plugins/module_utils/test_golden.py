# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What version 0.1.0 left on hosts is read by the present code, and written back byte for byte where it writes such a thing."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import notes, tokens
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import ROOT, Quarantine, read_manifest
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.identity import create_host_id, read_host_id
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.migrations import read_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard import program
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import changed, is_same, parse
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import check_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import read_json, record_in, write_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.heartbeat import Heartbeat
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import order_from
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.turns import GIVEN, Turns

CORPUS = Path(__file__).resolve().parents[3] / "golden" / "0.1.0"
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


def found(pattern: str) -> t.List[Path]:
    """Return files of the corpus; a pattern that finds none would test nothing."""
    paths = sorted(CORPUS.glob(pattern))
    assert paths, pattern
    return paths


def name_of(path: Path) -> str:
    return str(path.relative_to(CORPUS))


STATES = [*found("run/*/*.json"), *found("unknown-keys/state.json")]


# State files


@pytest.mark.parametrize("path", STATES, ids=name_of)
def test_a_state_file_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    state = read_json(str(path))
    record = record_in(state)
    assert check_record(record) == record
    write_json(str(tmp_path / "state"), state)
    assert (tmp_path / "state").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", STATES, ids=name_of)
def test_a_watcher_that_takes_a_move_over_keeps_all_that_its_state_file_says(path: Path, tmp_path: Path) -> None:
    state = read_json(str(path))
    Journal(record_in(state), state["watcher"], str(tmp_path)).write()
    written = read_json(str(tmp_path / f"{state['domain']['uuid']}.json"))
    assert {**written, "answers": state["answers"]} == state


def test_phases_and_ends_of_moves_are_in_the_corpus() -> None:
    seen = {json.loads(path.read_text(encoding="utf-8"))["status"] for path in STATES}
    assert seen >= {s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED, s.CANCELLED}


@pytest.mark.parametrize("folder", ["preparing", "in-flight", "aborting", "post-copy"])
def test_moves_in_flight_are_seen(folder: str) -> None:
    states = read_states(str(CORPUS / "run" / folder))
    assert states
    assert all(record["status"] not in s.FINAL for record in states.values())


# Beside the state files


@pytest.mark.parametrize("path", found("run/*/*.lock"), ids=name_of)
def test_a_lock_is_taken_over_under_the_next_generation_and_no_older_one(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / path.name)
    before = json.loads(path.read_text(encoding="utf-8"))
    ownership = Ownership(path.stem, str(tmp_path))
    assert ownership.take_over(before["record"], 0) == before["generation"] + 1
    ownership.release()
    after = (tmp_path / path.name).read_bytes()
    expected = path.read_bytes().replace(b'"generation": %d}' % before["generation"], b'"generation": %d}' % (before["generation"] + 1))
    assert after == expected
    with pytest.raises(Conflict):
        Ownership(path.stem, str(tmp_path)).begin(before["record"], before["generation"])


@pytest.mark.parametrize("path", found("run/*/*.heartbeat"), ids=name_of)
def test_a_heartbeat_is_heard(path: Path, tmp_path: Path) -> None:
    now = [0.0]
    shutil.copyfile(path, tmp_path / path.name)
    heartbeat = Heartbeat(path.stem, lambda: now[0], str(tmp_path))
    now[0] = 61.0
    assert not heartbeat.is_fresh()
    (tmp_path / path.name).write_text(str(int(path.read_text(encoding="ascii")) + 1), encoding="ascii")
    assert heartbeat.is_fresh()


@pytest.mark.parametrize("path", found("run/turns/*.turns"), ids=name_of)
def test_a_turn_that_was_given_is_heard(path: Path) -> None:
    turns = Turns(path.stem, str(path.parent))
    turns.read()
    given = json.loads(path.read_text(encoding="utf-8"))[GIVEN]
    assert given
    assert all(turns.given(record) == why for record, why in given.items())


@pytest.mark.parametrize("path", found("run/aborting/*.intent"), ids=name_of)
def test_an_intent_is_taken_and_left_byte_for_byte(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / path.name)
    domain, document = path.name.split(".")[0], json.loads(path.read_text(encoding="utf-8"))
    [intent] = intents.take(domain, document["record"], document["generation"], str(tmp_path))
    assert (intent.act, intent.id) == (intents.ABORT, document["id"])
    assert list(tmp_path.iterdir()) == []
    intents.leave(domain, intent, str(tmp_path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


# Start orders

ORDERS = [json.loads(line) for line in (CORPUS / "wire/orders.jsonl").read_text(encoding="utf-8").splitlines()]
ORDERS.append(json.loads((CORPUS / "unknown-keys/order.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("document", ORDERS, ids=lambda document: f"{document['record']['domain']['name']}-{document['record']['id']}")
def test_a_start_order_is_read(document: t.Dict[str, t.Any]) -> None:
    order = order_from(document)
    assert order.record == document["record"]
    assert (order.source_uri, order.destination_uri) == (document["source_uri"], document["destination_uri"])
    assert (order.adopt, order.waits) == (document.get("adopt", False), document.get("waits", False))


# What hosts keep over boots


@pytest.mark.parametrize("path", [*found("host/*/evacuations/*.json"), *found("unknown-keys/evacuations/*.json")], ids=name_of)
def test_the_note_of_an_evacuation_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert notes.record_of(path.stem, str(path.parent)) == record["id"]
    assert check_record(record) == record
    notes.write(path.stem, record, str(tmp_path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", found("host/*/host-id"), ids=name_of)
def test_a_host_keeps_its_identity(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / "host-id")
    known = path.read_text(encoding="ascii").strip()
    assert read_host_id(str(tmp_path / "host-id")) == known
    assert create_host_id(str(tmp_path / "host-id")) == (known, False)


@pytest.mark.parametrize("path", found("host/*/quarantine/*.json"), ids=name_of)
def test_the_manifest_of_a_quarantine_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    here = path.read_text(encoding="utf-8").replace(ROOT, str(tmp_path))
    copy = tmp_path / path.name
    copy.write_text(here, encoding="utf-8")
    manifest = read_manifest(str(copy))
    assert manifest is not None
    copy.unlink()
    Quarantine(path.stem, str(tmp_path))._write(manifest)
    assert copy.read_text(encoding="utf-8").replace(str(tmp_path), ROOT) == path.read_text(encoding="utf-8")


def test_what_was_put_aside_and_what_was_deleted_since_are_told_apart(tmp_path: Path) -> None:
    states = {path.parts[-3]: json.loads(path.read_text(encoding="utf-8"))["state"] for path in found("host/*/quarantine/*.json")}
    assert states["put-aside"] == "complete"
    assert states["deleted"] == "deleted"


@pytest.mark.parametrize("path", found("tokens/*"), ids=name_of)
def test_a_token_on_shared_storage_is_seen(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / f".{path.name}")
    token = json.loads(path.read_text(encoding="utf-8"))
    assert tokens.is_seen(str(tmp_path), token["host_id"], token["nonce"])
    assert not tokens.is_seen(str(tmp_path), token["host_id"], token["host_id"])
    assert tokens.leave([str(tmp_path)], token["host_id"]) == ({str(tmp_path): token["nonce"]}, {})


# The boot guard


def booted(root: Path, boot_id: str, run: t.Optional[str] = None, kept: t.Optional[str] = None) -> program.Guard:
    """Return the guard of a host with these files of the corpus, in that boot."""
    kernel = root / "proc/sys/kernel/random"
    kernel.mkdir(parents=True)
    (kernel / "boot_id").write_text(boot_id, encoding="ascii")
    if run:
        shutil.copytree(CORPUS / "run" / run / "guard", root / "run/kvmfleet/guard")
    if kept:
        shutil.copytree(CORPUS / "host" / kept / "guard", root / "var/lib/kvmfleet/guard")
    return program.Guard(str(root))


@pytest.mark.parametrize("path", [*found("run/guard-*/guard/*.json"), *found("host/trusted/guard/*.json")], ids=name_of)
def test_a_file_of_the_boot_guard_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    program.write_json(str(tmp_path / "file"), json.loads(path.read_text(encoding="utf-8")))
    assert (tmp_path / "file").read_bytes() == path.read_bytes()


def test_a_boot_that_was_held_is_held(tmp_path: Path) -> None:
    held = json.loads((CORPUS / "run/guard-held/guard/held.json").read_text(encoding="utf-8"))
    guard = booted(tmp_path, held["boot_id"], run="guard-held")
    assert (guard.held(), guard.released(), guard.hold()) == (held, None, None)


@pytest.mark.parametrize(("run", "by"), [("guard-released", program.BY_INSTALL), ("guard-released-by-control", program.BY_CONTROL)])
def test_a_boot_that_was_released_is_released(tmp_path: Path, run: str, by: str) -> None:
    released = json.loads((CORPUS / f"run/{run}/guard/released.json").read_text(encoding="utf-8"))
    guard = booted(tmp_path, released["boot_id"], run=run)
    assert (guard.released(), released["by"], guard.hold()) == (released, by, released)


def test_a_clean_shutdown_token_whose_grant_names_no_shared_storage_is_not_good_any_more(tmp_path: Path) -> None:
    guard = booted(tmp_path, "00000000-0000-4000-8000-00000000b007", kept="trusted")
    assert guard.grant() is not None
    assert guard.confirm() is None
    assert "names no shared storage" in guard.status()["held"]["why"]


# Policies


def policy(name: str) -> str:
    return (CORPUS / "policy" / name).read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("name", ["all-fields.xml", "unknown-keys.xml"])
def test_a_policy_is_read_whole_and_a_change_to_the_same_changes_nothing(name: str) -> None:
    own = parse(policy(name))
    assert (own.values, own.wrong) == (POLICY, {})
    assert is_same(changed(policy(name), own.values), policy(name))


def test_a_changed_policy_keeps_what_a_later_version_has_written() -> None:
    text = changed(policy("unknown-keys.xml"), {"priority": 11}, ["labels"])
    assert LATER in text
    assert parse(text).values == {key: 11 if key == "priority" else value for key, value in POLICY.items() if key != "labels"}
