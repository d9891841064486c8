# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a scenario's text expects to be seen of guests and records, against what there is."""

from __future__ import annotations

import typing as t

from ...support.control import Record
from .histories import matches, words
from .located import Located

if t.TYPE_CHECKING:
    from .stage import Stage


def differences(stage: Stage, seen: Located) -> list[str]:
    """Return a sentence for each thing that is not as it is expected; none where all is."""
    found = [_guest(stage, name, places) for name, places in (seen.get("guests") or {}).items()]
    found += [_state(stage, name, status) for name, status in (seen.get("state") or {}).items()]
    found += [_possible(stage, name, numbers) for name, numbers in (seen.get("possible_hosts") or {}).items()]
    found += [_task(stage, name, end) for name, end in (seen.get("tasks") or {}).items()]
    if "records" in seen:
        found += _records(stage, seen["records"] or [])
    others = [differences(stage, other) for other in seen.get("either") or ()]
    if others and all(others):
        found.append("neither: " + "; nor: ".join(", ".join(one) for one in others))
    return [one for one in found if one]


def _guest(stage: Stage, name: str, wanted: t.Mapping[str, str]) -> str:
    """Compare the places of a guest, on all hosts that answer; C(running) is any reason, C(paused (post-copy failed)) that one."""
    there = stage.lab.places(name)
    for number, state in wanted.items():
        if "(" in state and int(number) in there:
            there[int(number)] = stage.lab.virsh(int(number), "domstate", name, "--reason").strip()
    return "" if there == {int(number): state for number, state in wanted.items()} else f"{name} is {there or 'nowhere'}, not {dict(wanted)}"


def _state(stage: Stage, name: str, wanted: str) -> str:
    """Compare what the watcher of a guest's last move has written on its source."""
    state = stage.lab.state_file(stage.uuids[name], stage.home(name))
    status = state["status"] if state else "none"
    return "" if status == wanted else f"the state file of {name} says '{status}', not '{wanted}'"


def _possible(stage: Stage, name: str, wanted: t.Sequence[int]) -> str:
    """Compare the hosts that may have a guest by the ledger."""
    hosts = stage.site.possible_hosts(name)
    return "" if hosts == [stage.site.name(number) for number in wanted] else f"{name} may be on {hosts}, not on {list(wanted)}"


def _task(stage: Stage, name: str, wanted: str) -> str:
    """Compare how a task has ended."""
    end = "ok" if stage.run(name).code == 0 else "failed"
    return "" if end == wanted else f"the task '{name}' is {end}, not {wanted}"


def _records(stage: Stage, wanted: t.Sequence[Located]) -> list[str]:
    records = stage.site.records()
    if len(records) != len(wanted):
        return [f"there are {len(records)} records, not {len(wanted)}: {[_told(record) for record in records]}"]
    return [_record(stage, record, one) for record, one in zip(records, wanted, strict=True)]


def _record(stage: Stage, record: Record, wanted: Located) -> str:
    told = {
        "guest": record["domain"]["name"],
        "status": record["status"],
        "reason": record["reason"],
        "from": _number(stage, record["source"]["host"]),
        "to": _number(stage, record["destination"]["host"]),
        "mode": record["result"]["mode"],
        "rung": record["result"]["rung"],
        "generation": record["generation"],
        "percent": record["progress"]["percent"],
        "superseded": bool(record["superseded_by"]),
    }
    wrong = [f"{key} is {told[key]!r}, not {wanted[key]!r}" for key in wanted if key in told and told[key] != wanted[key]]
    lines = {"history": [line["status"] for line in record["history"]], "acts": [one["act"] for one in record["acts"]]}
    wrong += [f"{key} is '{', '.join(lines[key])}', not '{wanted[key]}'" for key in lines if key in wanted and not matches(lines[key], words(wanted[key]))]
    wrong += _times(record, wanted)
    if wanted.get("as_written") and record["result"] != (stage.lab.state_file(record["domain"]["uuid"], told["from"] or 1) or {}).get("result"):
        wrong.append("its result is not what the watcher has written")
    return f"{_told(record)}: {', '.join(wrong)}" if wrong else ""


def _times(record: Record, wanted: Located) -> list[str]:
    """Compare how long a job took, by the product's own measure."""
    seconds = (record["result"]["elapsed_ms"] or 0) / 1000
    at_least, at_most = wanted.get("at_least_seconds", 0), wanted.get("at_most_seconds", float("inf"))
    return [] if at_least <= seconds <= at_most else [f"it took {seconds} s, not {at_least} to {at_most} s"]


def _number(stage: Stage, name: str) -> int | None:
    return next((number for number in stage.numbers if stage.site.name(number) == name), None)


def _told(record: Record) -> str:
    return f"{record['domain']['name']} {record['status']} ({record['reason']})"
