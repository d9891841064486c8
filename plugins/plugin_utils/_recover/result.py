# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What became of the single steps of a recovery, and the result as lines that a person reads in a terminal."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import COMPLETED

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]


def failed_items(results: Iterable[Body], what: str) -> list[Document]:
    """Return C({what, uuid, name, reason}) of each domain of a loop whose task failed or did not reach its host.

    :arg results: of the registered loop; its items have C(uuid) and C(name).
    """
    return [
        {"what": what, "uuid": result["item"]["uuid"], "name": result["item"]["name"], "reason": _message(result)} for result in results if _is_failed(result)
    ]


def moved_home(moves: Iterable[Body], results: Iterable[Body], check_mode: bool = False) -> dict[str, list[Document]]:
    """Return C({brought_home, failed}) of the domains that were to move home.

    :arg moves: each with C(uuid), C(name) and C(source).
    :arg results: of the loop of C(live_migrate) over the sources.
    """
    by_source = {result["item"]: result for result in results}
    found: dict[str, list[Document]] = {"brought_home": [], "failed": []}
    for move in moves:
        # In check mode nothing is asked of a source whose domains could not move before their host is enabled.
        nothing = {"failed": not check_mode, "msg": "Its move was not started."}
        why = _why_not(move["uuid"], by_source.get(move["source"], nothing), check_mode)
        entry = {"uuid": move["uuid"], "name": move["name"]}
        if why is None:
            found["brought_home"].append({**entry, "source": move["source"]})
        else:
            found["failed"].append({"what": "bring home", **entry, "reason": why})
    return found


def _why_not(uuid: str, result: Body, check_mode: bool) -> t.Optional[str]:
    refusal = next((failure["msg"] for failure in result.get("failures") or [] if failure["uuid"] == uuid), None)
    if refusal:
        return str(refusal)
    record = next((record for record in result.get("migrations") or [] if record["domain"]["uuid"] == uuid), None)
    if record is not None and record["status"] == COMPLETED:
        return None
    if _is_failed(result) and not result.get("failures"):
        return _message(result)
    if record is None or check_mode:
        return None
    return f"Its move is '{record['status']}' (record {record['id']})."


def _is_failed(result: Body) -> bool:
    return bool(result.get("failed") or result.get("unreachable"))


def _message(result: Body) -> str:
    return str(result.get("msg") or "It failed without a message.")


def result_lines(result: Mapping[str, Body]) -> list[str]:
    """Return what was done on each host, what was not, and how the host is left."""
    lines: list[str] = []
    for host, own in result.items():
        lines += [f"CLEANED {_named(entry)} on {host}" for entry in own["cleaned"]]
        lines += [f"BACK    {_named(entry)} on {host}: {_reason(entry)}" for entry in own["superseded"]]
        lines += [f"DELETED {path} of {_named(entry)} on {host}" for entry in own["deleted"] for path in entry["paths"]]
        lines += [f"KEPT    {_named(entry)} on {host}: {_reason(entry)}" for entry in own["kept"]]
        lines += [f"REFUSED {_named(entry)} on {host}: {_reason(entry)}" for entry in own["refused"]]
        lines += [f"STARTED {_named(entry)} on {host}" for entry in own["started"]]
        lines += [f"HOME    {_named(entry)} from {entry['source']} to {host}" for entry in own["brought_home"]]
        lines += [f"LEFT    {_named(entry)}: {_reason(entry)}" for entry in own["skipped"]]
        lines += [f"FAILED  to {entry['what']} {_named(entry)}: {_reason(entry)}" for entry in own["failed"]]
        lines += [f"NOTE    {host}: {note}" for note in own["notes"]]
        lines += [f"FAILED  {host}: {own['error']}"] if own["error"] else []
        lines.append(f"{host}: {_counts(own)}. {_verdict(own)}")
    return [printable(line) for line in lines]


def problems(own: Body) -> list[str]:
    """Return the sentences for which the role fails on a host."""
    sentences = [own["error"]] if own["error"] else []
    sentences += [f"Failed to {entry['what']} {_named(entry)}: {_reason(entry)}" for entry in own["failed"]]
    sentences += [f"{_named(entry)} was not cleaned up: {_reason(entry)}" for entry in own["refused"]]
    return [printable(sentence) for sentence in sentences]


def _counts(own: Body) -> str:
    counted = [("cleaned", "cleaned"), ("started", "started"), ("brought_home", "brought home"), ("failed", "failed")]
    return ", ".join(f"{len(own[key])} {word}" for key, word in counted)


def _verdict(own: Body) -> str:
    held = "Its boot is released" if own["released"] else "It was NOT released: what was held stays held"
    return f"{held}, and it {'takes domains again' if own['enabled'] else 'does NOT take domains'}."


def _named(entry: Body) -> str:
    domain = entry.get("domain")
    named = domain if isinstance(domain, Mapping) else entry
    return str(named.get("name") or named.get("uuid"))


def _reason(entry: Body) -> str:
    told: t.Any = entry.get("reason") or entry.get("reasons") or entry.get("msg") or ""
    return "; ".join(map(str, told)) if isinstance(told, Sequence) and not isinstance(told, str) else str(told)
