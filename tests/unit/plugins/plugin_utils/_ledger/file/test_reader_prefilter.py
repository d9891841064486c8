# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cheap tests before parsing: they never hold back what is wanted, nor what is damaged, and they do hold back the rest."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import codec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import (
    Damaged,
    canonical_json,
    decode_document,
    encode_document,
    open_envelope,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file import reader
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.selection import make_selection

NewMove = Callable[..., MoveRecord]
NAMES = st.sampled_from(["web1", "wéb", 'quo"te', "back\\slash", "line\nfeed", "0a7d4a5c-1f4e-4f9e-8d3c-6f0a5a2c9b11"])
TIMES = st.sampled_from(["2024-09-30T23:59:59.999Z", "2024-10-01T00:00:00.000Z", "2024-10-02T12:00:00.000Z"])
CLOSED = st.sampled_from([s.COMPLETED, s.FAILED, s.CANCELLED])


def record_of(name: str, host: str, status: str, at: str, kind: str = s.LIVE_MIGRATION) -> MoveRecord:
    made = new_record(kind, DomainRef("5" * 8 + "-0000-4000-8000-" + "5" * 12, name), HostRef(host, None, None), HostRef("kvm9", "id9", "uuid9"), {}, by="me")
    return dataclasses.replace(made, status=status, updated_at=at)


def text_of(record: MoveRecord) -> bytes:
    return canonical_json(codec.encode(record)).encode("ascii")


@given(
    NAMES,
    NAMES,
    CLOSED,
    TIMES,
    st.fixed_dictionaries({}, optional={"domain": NAMES, "host": NAMES, "since": TIMES, "until": TIMES, "statuses": st.lists(CLOSED)}),
)
def test_a_selected_record_passes_the_screen(name: str, host: str, status: str, at: str, conditions: dict[str, t.Any]) -> None:
    record, selection = record_of(name, host, status, at), make_selection(**conditions)
    passes = selection.prefilter.may_match(text_of(record))
    assert passes or not selection.matches(record)


@pytest.mark.parametrize(
    "conditions",
    [
        {"domain": "web2"},
        {"domain": "web"},
        {"host": "kvm3"},
        {"statuses": [s.FAILED]},
        {"types": [s.EVACUATION]},
        {"since": "2024-10-01T00:00:00.001Z"},
        {"until": "2024-10-01"},
    ],
)
def test_a_record_that_is_not_selected_is_screened_out(conditions: dict[str, t.Any]) -> None:
    text = text_of(record_of("web1", "kvm1", s.COMPLETED, "2024-10-01T00:00:00.000Z"))
    assert not make_selection(**conditions).prefilter.may_match(text)


def test_a_record_of_another_schema_passes_the_screen() -> None:
    text = text_of(dataclasses.replace(record_of("web1", "kvm1", s.COMPLETED, "2024-10-01T00:00:00.000Z"), schema=2))
    assert make_selection(domain="web2").prefilter.may_match(text)


def put(path: str, record: MoveRecord, name: t.Optional[str] = None) -> Path:
    at = record.updated_at
    folder = Path(path, "migrations", "closed", at[:4], at[5:7])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name or record.id}.json"
    file.write_bytes(encode_document(record, 6))
    return file


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of records that were parsed."""
    found: list[str] = []
    genuine = reader.decode_envelope

    def spy(envelope: t.Any) -> t.Any:
        document = genuine(envelope)
        found.append(document.body["id"])
        return document

    monkeypatch.setattr(reader, "decode_envelope", spy)
    return found


def test_only_records_that_pass_the_screen_are_parsed(ledger: FileLedger, path: str, parsed: list[str]) -> None:
    records = [record_of(name, "kvm1", s.COMPLETED, "2024-10-01T00:00:00.000Z") for name in ("web1", "web2", "web3")]
    for record in records:
        put(path, record)
    assert [record.id for record in ledger.list_records(domain="web2")] == [records[1].id]
    assert parsed == [records[1].id]


def test_files_older_than_the_query_by_more_than_a_day_are_not_opened(ledger: FileLedger, path: str, parsed: list[str]) -> None:
    noon = datetime.datetime(2024, 10, 20, 12, tzinfo=datetime.UTC).timestamp()
    records = [record_of(f"web{hours}", "kvm1", s.COMPLETED, "2024-10-20T13:00:00.000Z") for hours in (0, 23, 25)]
    for hours, record in zip((0, 23, 25), records, strict=True):
        os.utime(put(path, record), (noon - 3600 * hours, noon - 3600 * hours))
    assert {record.domain.name for record in ledger.list_records(since="2024-10-20T12:00:00Z")} == {"web0", "web23"}
    assert len(parsed) == 2
    assert len(list(ledger.list_records(until="2024-10-21"))) == 3


def test_a_month_that_begins_at_the_end_of_the_query_is_not_read(ledger: FileLedger, path: str, parsed: list[str]) -> None:
    for at in ("2024-09-30T12:00:00.000Z", "2024-10-01T00:00:00.000Z"):
        put(path, record_of("web1", "kvm1", s.COMPLETED, at))
    assert [record.updated_at[:7] for record in ledger.list_records(since="2024-09-01", until="2024-10-01")] == ["2024-09"]
    assert len(parsed) == 1


def test_damaged_records_are_reported_by_every_query(ledger: FileLedger, path: str) -> None:
    at = "2024-10-01T00:00:00.000Z"
    torn, edited, copied = (record_of(name, "kvm1", s.COMPLETED, at) for name in ("torn", "edited", "copied"))
    file = put(path, torn)
    file.write_bytes(file.read_bytes()[:-30])
    file = put(path, edited)
    file.write_bytes(file.read_bytes().replace(b'"edited"', b'"edible"'))
    put(path, copied, name="11111111-0000-4000-8000-000000000001")
    assert not list(ledger.list_records(domain="nobody"))
    assert len(ledger.problems) == 3
    assert len(os.listdir(Path(path, "set_aside"))) == 3


def test_a_record_with_an_invalid_time_does_not_break_a_query(ledger: FileLedger, path: str) -> None:
    file = put(path, record_of("odd", "kvm1", s.COMPLETED, "2024-10-01T00:00:00.000Z"))
    body = json.dumps(json.loads(file.read_bytes())["body"], sort_keys=True, separators=(",", ":")).replace("2024-10-01", "２024-10-01")
    text = body.encode()
    checksum = hashlib.sha256(b"1\n" + text).hexdigest()
    file.write_bytes(f'{{"version":1,"sha256":"{checksum}","body":{body}}}\n'.encode())
    assert open_envelope(file.read_bytes()) is not None
    list(ledger.list_records(since="2024-01-01"))


def test_a_reformatted_document_is_read_and_an_edited_one_is_damaged() -> None:
    data = encode_document({"schema": 1, "name": "wéb"}, 3)
    indented = json.dumps(json.loads(data), indent=2).encode()
    assert open_envelope(indented) is None
    assert decode_document(indented) == decode_document(data)
    assert decode_document(data).version == 3
    with pytest.raises(Damaged, match="checksum"):
        decode_document(data.replace(b'"version":3', b'"version":4'))
