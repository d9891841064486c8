# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger's files: torn, edited, spoilt with a checksum that is right all the same; its journal; its audit chain."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import source
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import audit, contents, document_bytes, query
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_parts import ProtectTime
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import list_sights_of, with_protect_times, write_sights
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

from .. import sandbox
from ..mutation import damaged, mutated, text_of
from ..target import Target

KVM1 = HostRef("kvm1", "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-0000000000a1")
KVM2 = HostRef("kvm2", "22222222-0000-4000-8000-000000000002", "22222222-0000-4000-8000-0000000000a2")
WEB, DB, MAIL, NEW = (f"00000000-0000-4000-8000-00000000000{number}" for number in range(4))
BY = "root@control pid 1"
_DISK = {"target": "vda", "kind": "file", "path": "/srv/web.qcow2", "readonly": False, "optional": False, "folders": ["/srv"], "wwn": None, "seen_by": ["kvm2"]}
_SAVED = {
    "definition": "<domain type='kvm'><name>web</name></domain>",
    "persistent": True,
    "autostart": False,
    "state": "running",
    "request": {"memory_mib": 256, "vcpus": 1, "disks": [{"target": "vda", "source": "/srv/web.qcow2"}]},
    "disks": [_DISK],
    "host": encode(KVM1),
    "tpm": None,
}

Body = dict[str, t.Any]


def _record(uuid: str, name: str, kind: str = s.LIVE_MIGRATION) -> MoveRecord:
    policy = {"timeout_seconds": {"value": 60, "source": "task"}}
    made = new_record(kind, DomainRef(uuid, name), KVM1, KVM2, policy, BY, {"memory_mib": 256, "vcpus": 1})
    # A case names its file: it is to be the same in the next process.
    return dataclasses.replace(made, id=f"3{uuid[1:]}")


def _led(ledger: FileLedger, record: MoveRecord, *statuses: str) -> None:
    stored = ledger.open_record(record)
    for status in statuses:
        stored = ledger.update_record(stored, stored.record.advance(status, BY))


@functools.cache
def pristine() -> dict[str, bytes]:
    """Return the files of a ledger with a move in flight, one that is over, an evacuation, two hosts and a protected domain."""
    root = sandbox.laid_out("pristine", {})
    ledger = FileLedger(str(root))
    _led(ledger, _record(WEB, "web"), s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING)
    _led(ledger, _record(DB, "db"), s.SCHEDULED, s.CANCELLED)
    _led(ledger, _record(MAIL, "mail", s.EVACUATION), s.PRE_MIGRATING, s.DONE)
    for where in (KVM1, KVM2):
        ledger.put_host(host_entry({"name": where.host, "state": "enabled", "reason": "", "host_id": where.host_id, "host_uuid": where.host_uuid}), None)
    write_sights(ledger, str(KVM1.host_id), {str(KVM2.host_id): {"/srv": "nonce"}})
    ledger.put_protect_time(ProtectTime(str(KVM1.host_id), "2026-11-21T03:00:00.000Z", BY))
    present = t.cast("t.Any", ledger.read_domain(MAIL))
    ledger.put_domain(domain_entry({**present.body, "protected": _SAVED}), present.version)
    return {name: data for name, data in sandbox.contents(root).items() if not name.endswith(".lock")}


def _documents() -> dict[str, Body]:
    return {name: document_bytes.decode_document(data).body for name, data in pristine().items() if name.endswith(".json")}


def sealed(body: t.Any, version: int = 1) -> bytes:
    """Return the file of a document of any kind, as one would write it who knows how checksums are made."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f'{{"version":{version},"sha256":"{document_bytes.compute_digest(str(version), text)}","body":{text}}}\n'.encode("ascii")


# A file that may lie there, and a document in it with a right checksum.
_SEALED = st.deferred(lambda: st.sampled_from(sorted(_documents())).flatmap(lambda name: st.tuples(st.just(name), mutated(_documents()[name]), st.booleans())))
# The same with bytes, one character each.
_DAMAGED = st.deferred(
    lambda: st.sampled_from(sorted(pristine())).flatmap(lambda name: st.tuples(st.just(name), damaged((pristine()[name],)).map(_characters)))
)


def _characters(data: bytes) -> str:
    return data.decode("latin-1")


def check_sealed(case: tuple[str, t.Any, bool]) -> None:
    """Put the document into a ledger, in its own layout or in that of a person's tools, and use it."""
    name, body, is_plain = case
    data = sealed(body)
    _check_file(name, json.dumps(json.loads(data), indent=1).encode() if is_plain else data)


def check_damaged(case: tuple[str, str]) -> None:
    """Put the bytes into a ledger and use it."""
    _check_file(case[0], case[1].encode("latin-1"))


def _check_file(name: str, data: bytes) -> None:
    root = sandbox.laid_out("ledger", {**pristine(), name: data})
    _try_each(_reads(str(root)))
    if name.endswith(".json"):
        assert _is_kept(root, name, data), f"{name} was rewritten by reading"
    _try_each(_writes(str(root)))
    if name.endswith(".json"):
        assert _is_kept(root, name, data) or _is_readable(data), f"{name} could not be read, and was rewritten"


def _is_kept(root: Path, name: str, data: bytes) -> bool:
    places = [root / name, *(root / "set_aside").glob("*")]
    return any(place.is_file() and place.read_bytes() == data for place in places)


def _is_readable(data: bytes) -> bool:
    try:
        document_bytes.decode_document(data)
    except document_bytes.Unreadable:
        return False
    return True


def _try_each(acts: Iterator[Callable[[], object]]) -> None:
    for act in acts:
        with contextlib.suppress(KvmfleetError):
            act()


_TERMS = ("migrations", "evacuations", "hosts", "domains", "maintenance_runs", "balance_runs")
_WANTED = (
    query.Conditions(),
    query.Conditions(host="kvm1"),
    query.Conditions(query="[?contains(to_string(@), 'kvm')] | sort_by(@, &to_string(name || id)) | [0]"),
)


def _reads(path: str) -> Iterator[Callable[[], object]]:
    opened: list[FileLedger] = []
    with contextlib.suppress(KvmfleetError):
        opened.append(FileLedger(path, create=False))
    if not opened:
        return
    ledger = opened[0]
    for term in _TERMS:
        for wanted in _WANTED:
            yield lambda term=term, wanted=wanted: query.read_term(ledger, term, wanted)  # type: ignore[misc]
    yield lambda: list(ledger.list_records(domain="web", since="2020-01-01", until="2999-01-01", statuses=[s.CANCELLED, s.RUNNING]))
    yield lambda: list(ledger.list_records(domain=DB))
    yield lambda: list_sights_of(ledger, list_entries(ledger), KVM2.host_id)
    yield lambda: with_protect_times(ledger, list_entries(ledger))
    yield lambda: ledger.examine_contents(contents.find_problems)
    yield lambda: ledger.find_unsettled(WEB)
    yield lambda: ledger.find_unsettled(MAIL)
    yield lambda: ledger.find_host(name="kvm1")
    yield lambda: ledger.find_host(host_uuid=KVM2.host_uuid)
    yield lambda: ledger.find_domains("mail")
    yield ledger.verify_audit
    yield lambda: _evacuated(ledger)
    yield lambda: _scheduled(ledger)


def _evacuated(ledger: FileLedger) -> None:
    dead = source.resolve_source([document.host for document in ledger.list_hosts()], "kvm1")
    found, _tombstones = source.select_candidates(source.list_candidates(ledger, dead.host_ref), None, ledger, dead)
    for candidate in found:
        with contextlib.suppress(KvmfleetError):
            source.check_saved_values(candidate.entry)


def _scheduled(ledger: FileLedger) -> None:
    facts = HostFacts(answered=True, host_uuid=KVM2.host_uuid, gathered_at="2026-11-21T03:00:00.000Z", domains=())
    entry = ledger.find_host(name="kvm2")
    HostState.from_facts("kvm2", facts, ledger.list_records(), entry.host if entry else None)


def _writes(path: str) -> Iterator[Callable[[], object]]:
    yield lambda: FileLedger(path, create=False).open_record(_record(NEW, "new"))
    yield lambda: _advanced(FileLedger(path, create=False))
    yield lambda: FileLedger(path).put_host(host_entry({"name": "kvm1", "state": "maintenance", "host_id": KVM1.host_id, "host_uuid": KVM1.host_uuid}), 1)
    yield lambda: FileLedger(path).put_domain(domain_entry({"uuid": MAIL, "name": "mail", "possible_hosts": [encode(KVM2)]}), 3)

    yield lambda: write_sights(FileLedger(path, create=False), str(KVM1.host_id), {str(KVM2.host_id): {"/srv": "another"}})


def _advanced(ledger: FileLedger) -> None:
    stored = ledger.find_unsettled(WEB)
    assert stored is None or stored.record.domain.uuid.lower() == WEB
    if stored:
        ledger.update_record(stored, stored.record.advance(s.COMPLETED, BY))


def check_encoding(data: bytes) -> None:
    """Read bytes as a document, and as a line of the audit."""
    with contextlib.suppress(document_bytes.Unreadable):
        assert isinstance(document_bytes.decode_document(data).body, dict)
    lines = data.split(b"\n")
    for line in lines:
        audit.read_link(line)
    assert audit.verify_lines(lines, "first", None) or all(audit.read_link(line) for line in lines)


def _chain() -> bytes:
    previous, lines = audit.genesis_hash("ledger"), []
    for number in range(3):
        line, previous = audit.make_audit_line(audit.audit_transition(_record(WEB, f"web{number}"), None), previous)
        lines.append(line)
    return "\n".join(lines).encode()


_UNIT = {
    "writes": [{"place": ["migrations", "open", f"{WEB}.json"], "version": 9, "text": sealed(encode(_record(WEB, "web")), 9).decode()}],
    "removes": [["hosts", f"{WEB}.json"]],
    "line": audit.make_audit_line(audit.audit_transition(_record(WEB, "web"), None), audit.genesis_hash("x"))[0],
}


def check_journal(unit: t.Any) -> None:
    """Open a ledger with a pending unit whose checksum is right."""
    text = text_of(unit)
    root = sandbox.laid_out("ledger", {**pristine(), "journal": f"pending\n{document_bytes.compute_digest(text)}\n{text}".encode("ascii")})
    _try_each(_reads(str(root)))
    _try_each(_writes(str(root)))


TARGETS = [
    Target.of_bytes(
        "ledger_encoding", check_encoding, sealed(encode(_record(WEB, "web"))), sealed({"schema": 1, "uuid": WEB, "possible_hosts": [encode(KVM1)]}), _chain()
    ),
    Target("ledger_sealed", check_sealed, _SEALED),
    Target("ledger_damaged", check_damaged, _DAMAGED),
    Target("ledger_journal", check_journal, mutated(_UNIT)),
]
