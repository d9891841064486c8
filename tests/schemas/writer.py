# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the JSON Schemas of the documents that other programs read, derived from the dataclasses that read and write them: C(make schemas).

Descriptions are in C(meanings.py), or else the first paragraphs and the C(:arg) lines of the docstrings. What an annotation cannot express is in
C(VALUES).
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import types
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import EXTRA, MOST, Absent, SignedInt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA, MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.result import BalanceResult
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import (
    PlannedMove,
    PlannedShutdown,
    PlanOptions,
    SkippedDomain,
    UnplacedDomain,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import PLAN_SCHEMA, DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import HostDrain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.result import EvacuationPlan, EvacuationResult
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import (
    ISOLATED,
    SILENT_TOGETHER,
    UNREADABLE,
    BrakeDocument,
    BrakeIncident,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake_notices import BrakeNotice
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.cloud_events import EVENT_TYPE_PREFIX
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.host_notices import HostNotice
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.record_notices import Notice, NoticeData
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.run_notices import RunNotice
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import HostRecovery
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.parallel import AUTO
from ansible_collections.kvmfleet.migration.tests.schemas.meanings import COMMON, MEANINGS, SUMMARY
from ansible_collections.kvmfleet.migration.tests.schemas.returns import (
    ActOfOthers,
    FleetStatus,
    HostProtection,
    MigrateResult,
    MissingRecord,
    MoveFailure,
    MoveInFlight,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BASE = "https://github.com/kvmfleet/migration/blob/main/docs/schemas"
PAGE = "documents.md"
TABLES_BEGIN = "<!-- The rest of this page is written by: make schemas -->"

Schema = dict[str, t.Any]

# By the name of the file: the dataclass; whether the document is a dictionary of it by host; and the title.
DOCUMENTS: dict[str, tuple[type, bool, str]] = {
    "record.json": (MoveRecord, False, "The record of one move or evacuation"),
    "migrate-result.json": (MigrateResult, False, "The result of live_migrate"),
    "drain-plan.json": (DrainPlan, False, "The plan of a drain or of a balance"),
    "drain-result.json": (HostDrain, True, "The result of a drain, by host"),
    "balance-result.json": (BalanceResult, False, "The result of a balance"),
    "evacuation-plan.json": (EvacuationPlan, False, "The plan of an evacuation"),
    "evacuation-result.json": (EvacuationResult, True, "The result of an evacuation, by host"),
    "protect-result.json": (HostProtection, True, "The result of protecting a host, by host"),
    "status-result.json": (FleetStatus, False, "The state of the fleet"),
    "recovery-result.json": (HostRecovery, True, "The result of a recovery, by host"),
    "notice.json": (Notice, False, "A notice: a CloudEvents event of a change of a record, or of an act of others"),
    "maintenance-notice.json": (RunNotice, False, "A notice of a maintenance run"),
    "host-notice.json": (HostNotice, False, "A notice of a host that could not be fenced, or that is isolated"),
    "brake-notice.json": (BrakeNotice, False, "A notice of the brake on reactions"),
    "brake.json": (BrakeDocument, False, "The brake on reactions to events"),
}

FORCED = ["FORCED_MIGRATE", "FORCED_REBUILD", None]
_ERROR_CODES = sorted({kind.error_code for kind in KvmfleetError.__subclasses__()})
_TYPES, _STATUSES = list(s.TYPES), sorted(s.UNSETTLED | s.CLOSED | s.TOMBSTONE)
_POLICY_FIELD: Schema = {
    "type": "object",
    "properties": {
        "value": {"type": ["boolean", "integer", "string", "null"], "description": "Its value; null if it follows from the size of the guest."},
        "source": {"enum": ["task", "domain", "profile", "host", "default"], "description": "The layer that has set it."},
    },
    "required": ["value", "source"],
}
# By the kind of notice, the names of its events.
_NOTICES: dict[type, str] = {Notice: "[a-z_.]+", RunNotice: "maintenance\\.[a-z_]+", HostNotice: "host\\.[a-z_]+", BrakeNotice: "brake\\.[a-z_]+"}
# What the values of a field are, where its annotation permits more.
VALUES: dict[tuple[type, str], Schema] = {
    (MoveRecord, "schema"): {"const": SCHEMA},
    (MoveRecord, "type"): {"enum": _TYPES},
    (MoveRecord, "status"): {"enum": _STATUSES},
    (MoveRecord, "forced"): {"enum": FORCED},
    (MoveRecord, "policy"): {"type": "object", "additionalProperties": _POLICY_FIELD},
    **{(kind, "type"): {"enum": _TYPES} for kind in (MissingRecord, MoveInFlight)},
    **{(kind, "status"): {"enum": _STATUSES} for kind in (MissingRecord, MoveInFlight)},
    (MissingRecord, "ledger_status"): {"enum": [*_STATUSES, None]},
    **{(kind, "error_code"): {"enum": _ERROR_CODES} for kind in (MigrateResult, MoveFailure)},
    (ActOfOthers, "act"): {"enum": [domain_states.MOVED, domain_states.STOPPED, domain_states.STARTED]},
    (DrainPlan, "schema"): {"const": PLAN_SCHEMA},
    (DrainPlan, "digest"): {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
    (PlanOptions, "parallel"): {"type": ["integer", "string"], "minimum": 0, "pattern": f"^{AUTO}$"},
    (PlannedMove, "predicted_seconds"): {"type": "number", "minimum": 0, "exclusiveMaximum": 10**12},
    **{(kind, "uuid"): {"type": "string", "minLength": 36, "maxLength": 36} for kind in (PlannedMove, PlannedShutdown, UnplacedDomain, SkippedDomain)},
    **{(kind, "specversion"): {"const": "1.0"} for kind in _NOTICES},
    **{(kind, "source"): {"type": "string", "pattern": "^urn:uuid:[0-9a-f-]{36}$"} for kind in _NOTICES},
    **{(kind, "type"): {"type": "string", "pattern": f"^{re.escape(EVENT_TYPE_PREFIX)}\\.{names}$"} for kind, names in _NOTICES.items()},
    **{(kind, "datacontenttype"): {"const": "application/json"} for kind in _NOTICES},
    (BrakeDocument, "schema"): {"const": SCHEMA},
    (BrakeIncident, "kind"): {"enum": [SILENT_TOGETHER, ISOLATED, UNREADABLE]},
    (NoticeData, "record_type"): {"enum": [*_TYPES, None]},
    (NoticeData, "forced"): {"enum": FORCED},
}
# What holds between the fields of an object.
RULES: dict[type, Schema] = {
    DrainPlan: {
        "if": {"properties": {"options": {"properties": {"n_plus_one": {"const": True}}}}},
        "then": {"properties": {"n_plus_one": {"type": "object"}}},
    },
}
_TIMESTAMP = re.compile(r"at|.*_at|time|since|until")
_TIME: Schema = {"type": "string", "format": "date-time", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$"}


def make_schema(name: str) -> Schema:
    """Return the schema of the documents of one kind, by the name of its file."""
    kind, is_by_host, title = DOCUMENTS[name]
    writer = _Writer()
    body = writer.describe_type(kind)
    if is_by_host:
        body = {"type": "object", "description": "By the inventory name of the host.", "additionalProperties": body}
    defined = {key: writer.defined[key] for key in sorted(writer.defined)}
    return {"$schema": DIALECT, "$id": f"{BASE}/{name}", "title": title, **body, "$defs": defined}


class _Writer:
    """Describes dataclasses; each becomes one definition of the schema."""

    def __init__(self) -> None:
        self.defined: dict[str, Schema] = {}

    def describe_type(self, kind: t.Any) -> Schema:
        """Return the schema of a value of an annotated type."""
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if dataclasses.is_dataclass(kind):
            return self._refer_to(t.cast(type, kind))
        origin, arguments = t.get_origin(kind), t.get_args(kind)
        if origin in (t.Union, types.UnionType):
            return self._describe_union(arguments)
        if origin is tuple:
            return {"type": "array", "items": self.describe_type(arguments[0])}
        if origin is not None and issubclass(origin, Mapping):
            values = self.describe_type(arguments[1])
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        raise TypeError(f"No schema for {kind}.")

    def _refer_to(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.defined:
            self.defined[name] = {}
            self.defined[name] = self._describe_object(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _describe_object(self, kind: type) -> Schema:
        hints, keys, needed = t.get_type_hints(kind), getattr(kind, "KEYS", {}), getattr(kind, "NEEDED", ())
        summary, own_meanings = read_docstring(kind)
        # Fields of a base class are described there.
        meanings = {**(read_docstring(kind.__base__)[1] if dataclasses.is_dataclass(kind.__base__) else {}), **own_meanings}
        own = MEANINGS.get(kind.__name__, {})
        properties: Schema = {}
        required: list[str] = []
        for field in dataclasses.fields(t.cast(t.Any, kind)):
            if field.name == EXTRA:
                continue
            key = keys.get(field.name, field.name)
            meaning = own.get(field.name) or meanings.get(field.name) or COMMON.get(field.name, "")
            properties[key] = {
                **self._describe_field(kind, field.name, hints[field.name], field.default is None),
                **({"description": meaning} if meaning else {}),
            }
            if field.default is dataclasses.MISSING or field.name in needed or getattr(kind, "IS_WHOLE", False):
                required.append(key)
        return {"type": "object", "description": own.get(SUMMARY, summary), "properties": properties, "required": required, **RULES.get(kind, {})}

    def _describe_field(self, kind: type, name: str, hint: t.Any, is_missing_as_none: bool) -> Schema:
        """Return the schema of one key.

        :arg is_missing_as_none: the key is omitted where the field is None, and null is refused.
        """
        if (kind, name) in VALUES:
            return dict(VALUES[kind, name])
        if is_missing_as_none:
            hint = t.Union[tuple(one for one in t.get_args(hint) if one is not type(None))]
        found = self.describe_type(hint)
        if _TIMESTAMP.fullmatch(name) and "string" in found.get("type", ()):
            return {**_TIME, "type": found["type"]}
        return found

    def _describe_union(self, arguments: tuple[t.Any, ...]) -> Schema:
        (wanted,) = [one for one in arguments if one not in (type(None), Absent)]
        found = self.describe_type(wanted)
        if type(None) not in arguments or not found:
            return found
        if "type" in found:
            return {**found, "type": [found["type"], "null"]}
        return {"anyOf": [found, {"type": "null"}]}


_PLAIN: dict[t.Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0, "maximum": MOST - 1},
    SignedInt: {"type": "integer", "exclusiveMinimum": -MOST // 2, "exclusiveMaximum": MOST // 2},
    float: {"type": "number"},
    object: {},
}


def read_docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a dataclass's docstring, and what it says about each field."""
    text = re.sub(r"\b[CL]\(([^()]*)\)", r"`\1`", kind.__doc__ or "")
    summary, *arguments = re.split(r"^ *:arg ", text, flags=re.MULTILINE)
    pairs = (one.split(":", 1) for one in arguments)
    return _one_line(summary.split("\n\n")[0]), {name.strip(): _sentence(meaning) for name, meaning in pairs}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    line = _one_line(text)
    return line[:1].upper() + line[1:]


def write_page_tables() -> str:
    """Return the tables of the page: one for each dataclass, below the heading of the first document in which it occurs."""
    lines, seen = [TABLES_BEGIN], set()
    for name in DOCUMENTS:
        schema = make_schema(name)
        lines += ["", f"## {schema['title']}", "", f"[{name}](schemas/{name})"]
        for kind, body in _order_definitions(schema):
            if kind not in seen:
                seen.add(kind)
                lines += ["", f"### {kind}", "", body["description"], "", *_table_of(body)]
    return "\n".join(lines) + "\n"


def _order_definitions(schema: Schema) -> list[tuple[str, Schema]]:
    """Return the definitions of a schema, the outermost one first."""
    root = (schema.get("additionalProperties") or schema)["$ref"].rsplit("/", 1)[1]
    return sorted(schema["$defs"].items(), key=lambda pair: (pair[0] != root, pair[0]))


def _table_of(body: Schema) -> list[str]:
    rows = [
        f"| `{key}` | {_type_text(value)}{'' if key in body['required'] else ', optional'} | {value['description']} |"
        for key, value in body["properties"].items()
    ]
    return ["| key | value | meaning |", "| --- | --- | --- |", *rows]


def _type_text(value: Schema) -> str:
    """Return the type of a value for the table."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    if "anyOf" in value:
        return " or ".join(map(_type_text, value["anyOf"]))
    names = value.get("type", "any value")
    return " or ".join(_name_text(name, value) for name in ([names] if isinstance(names, str) else names))


def _name_text(name: str, value: Schema) -> str:
    """Return one of the types of a value for the table."""
    if name == "array":
        return f"list of {_type_text(value['items'])}"
    if name == "object" and "additionalProperties" in value:
        return f"object of {_type_text(value['additionalProperties'])}"
    return "time" if name == "string" and "format" in value else name


def write_schema(name: str) -> str:
    """Return the content of the file of that name."""
    return json.dumps(make_schema(name), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write each schema into the folder that the command line names, and the tables of the page beside it."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (folder / name).write_text(write_schema(name), encoding="utf-8")
    page = folder.parent / PAGE
    introduction = page.read_text(encoding="utf-8").split(TABLES_BEGIN)[0]
    page.write_text(introduction + write_page_tables(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
