# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The JSON Schemas are those that the program writes, and real documents fulfill them. The results of roles are checked by the tests of their actions."""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.record_notices import Notice, events_of_change
from ansible_collections.kvmfleet.migration.tests.golden.corpus import find_files, find_records
from ansible_collections.kvmfleet.migration.tests.schemas.check import FOLDER, check_document, find_errors, read_schema
from ansible_collections.kvmfleet.migration.tests.schemas.meanings import COMMON, MEANINGS, SUMMARY
from ansible_collections.kvmfleet.migration.tests.schemas.writer import DOCUMENTS, write_page_tables, write_schema

Document = dict[str, t.Any]
LEDGER_ID = "7d0a1a0e-6d0b-4a55-8f3a-1f0e9d6c2b31"
# Keys that a record has beside those of the schema, in a start order and a state file.
BESIDE = {"answers", "watcher"}
PAGE = FOLDER.parent / "documents.md"


def real_records() -> list[Document]:
    return [record for _path, record in find_records()]


def real_notices() -> list[Document]:
    records = [read_record(document) for document in real_records()]
    return [t.cast(Document, event) for record in records if record.history for event in events_of_change(None, record, LEDGER_ID)]


def real_plans() -> list[Document]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in find_files("plans/drain.json")]


REAL: dict[str, t.Callable[[], list[Document]]] = {"record.json": real_records, "drain-plan.json": real_plans, "notice.json": real_notices}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_committed_schema_is_the_one_that_the_program_writes(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == write_schema(name), "Run 'make schemas'."


def test_there_is_no_schema_that_the_program_does_not_write() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(DOCUMENTS)


def test_the_tables_of_the_page_are_those_that_the_program_writes() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(write_page_tables()), "Run 'make schemas'."


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_valid_and_describes_every_key(name: str) -> None:
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    nameless = [f"{kind}.{key}" for kind, body in schema["$defs"].items() for key, value in body["properties"].items() if not value.get("description")]
    assert nameless == []


def test_each_meaning_belongs_to_a_key() -> None:
    found = {(kind, key) for name in DOCUMENTS for kind, body in read_schema(name)["$defs"].items() for key in body["properties"]}
    assert {(kind, key) for kind, keys in MEANINGS.items() for key in keys if key != SUMMARY} <= found
    assert set(COMMON) <= {key for _kind, key in found}


@pytest.mark.parametrize("name", REAL)
def test_real_documents_fulfill_their_schema(name: str) -> None:
    documents = REAL[name]()
    assert documents
    for document in documents:
        assert find_errors(name, document) == []


def test_this_version_writes_no_key_that_the_schema_lacks() -> None:
    for name, real in REAL.items():
        plain = [document for document in real() if "of_a_later_version" not in json.dumps(document)]
        assert plain
        for document in plain:
            check_document(name, {key: value for key, value in document.items() if key not in BESIDE})


def places_of(schema: Document, kind: Document, document: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[tuple[t.Any, ...], Document, bool]]:
    """Yield the path of each key of a document that the schema describes, with its description and whether it is required."""
    kind = schema["$defs"][kind["$ref"].rsplit("/", 1)[1]] if "$ref" in kind else kind
    if isinstance(document, dict):
        for key, value in kind.get("properties", {}).items():
            if key in document:
                yield (*path, key), value, key in kind["required"]
                yield from places_of(schema, value, document[key], (*path, key))
    elif isinstance(document, list) and document and "items" in kind:
        yield from places_of(schema, kind["items"], document[0], (*path, 0))


def damaged(document: Document, path: tuple[t.Any, ...], *value: t.Any) -> Document:
    """Return a copy in which that key is missing, or has another value."""
    changed = copy.deepcopy(document)
    part: t.Any = changed
    for step in path[:-1]:
        part = part[step]
    if value:
        part[path[-1]] = value[0]
    else:
        del part[path[-1]]
    return changed


def richest(name: str) -> Document:
    """Return the real document with the most keys."""
    return max(REAL[name](), key=lambda document: len(json.dumps(document)))


@pytest.mark.parametrize("name", REAL)
def test_a_document_without_a_required_key_is_refused(name: str) -> None:
    document, schema = richest(name), read_schema(name)
    required = [path for path, _kind, is_required in places_of(schema, schema, document) if is_required]
    assert len(required) >= 15
    for path in required:
        assert find_errors(name, damaged(document, path)), path


@pytest.mark.parametrize("name", REAL)
def test_a_value_of_another_form_is_refused(name: str) -> None:
    document, schema = richest(name), read_schema(name)
    # A list is what no scalar and no object may be; a number is no list.
    wrong = [
        (path, 7 if kind.get("type") == "array" else [[]]) for path, kind, _is_required in places_of(schema, schema, document) if set(kind) != {"description"}
    ]
    assert len(wrong) >= 15
    for path, value in wrong:
        assert find_errors(name, damaged(document, path, value)), path


def reads(name: str, document: Document) -> bool:
    """Whether the code of the collection reads a document of that kind."""
    try:
        decode(DOCUMENTS[name][0], document)
    except ShapeError:
        return False
    return True


@pytest.mark.parametrize("name", ["record.json", "drain-plan.json"])
def test_what_the_collection_refuses_the_schema_refuses_too(name: str) -> None:
    document, schema = richest(name), read_schema(name)
    assert reads(name, document)
    for path, _kind, _is_required in places_of(schema, schema, document):
        for changed in (damaged(document, path), damaged(document, path, [[]]), damaged(document, path, None), damaged(document, path, -1)):
            assert reads(name, changed) or find_errors(name, changed), path


@pytest.mark.parametrize(("key", "value"), [("status", "lost"), ("type", "warm-migration"), ("schema", 2), ("forced", "FORCED"), ("created_at", "yesterday")])
def test_words_that_no_version_writes_are_refused(key: str, value: t.Any) -> None:
    assert find_errors("record.json", {**richest("record.json"), key: value})


def test_a_key_of_a_later_version_is_permitted() -> None:
    document = {**richest("record.json"), "of_a_later_version": 1}
    assert find_errors("record.json", document) == []
    assert find_errors("record.json", document, is_strict=True)


def test_a_notice_is_written_by_the_dataclass_of_its_schema() -> None:
    for event in real_notices():
        assert encode(decode(Notice, event)) == event


def test_a_check_of_another_kind_of_document_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="'schema' is a required property"):
        check_document("record.json", real_plans()[0]["moves"][0])
