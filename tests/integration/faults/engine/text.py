# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A scenario as its text has it: C(tests/faults/<topic>/<name>.yml). Read and checked here; nothing is done yet."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

from ..probe.kvmfleet_moments import NAMES
from .ledgers import ETCD, FILES, KINDS
from .located import Located, TextError, load
from .phrases import HOSTS, Action, action_of

ROOT = pathlib.Path(__file__).resolve().parents[3] / "faults"

TASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Kind of task: keys that are its own, and those of them that it needs; what else it has are the module's options.
    "move": (("guest", "to", "from"), ("guest",)),
    "moves": (("guests", "to", "from"), ("guests", "to")),
    "abort": (("guest", "from"), ("guest",)),
    "force": (("guest", "from"), ("guest",)),
    "evacuate": (("source", "on"), ("source", "on")),
    "clean": (("host",), ("host",)),
    "drain": (("host",), ("host",)),
    "recover": (("host",), ("host",)),
    "protect": ((), ()),
    "settle": (("guest", "on", "status"), ("guest", "on", "status")),
}
GUEST_KEYS = ("host", "mib", "dirty_mib", "rate", "storage", "paused", "off", "transient", "autostart")
VERDICT_KEYS = ("exit", "error", "says", "does_not_say", "changed")
RECORD_KEYS = (
    *("guest", "history", "acts", "status", "reason", "from", "to", "mode", "rung", "generation"),
    *("percent", "superseded", "as_written", "at_least_seconds", "at_most_seconds"),
)
SEEN_KEYS = ("guests", "records", "either", "state", "possible_hosts", "tasks")
TOP_KEYS = ("title", "shows", "essential", "protect", "ledger", "ledger_mib", "guests", "steps", "expect", "unsettled")
DEFAULT_LIMIT_SECONDS = 300.0


@dataclasses.dataclass(frozen=True)
class Task:
    """A task that somebody at the control node runs."""

    kind: str
    own: t.Mapping[str, t.Any]
    options: t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a task is to end: C(exit) is ok, failed or any; its error code, and words that it prints or does not print."""

    exit: str
    error: str | None
    says: tuple[str, ...]
    does_not_say: tuple[str, ...]
    changed: bool | None


@dataclasses.dataclass(frozen=True)
class Step:
    """One step, of which only what its C(kind) needs is set."""

    kind: str
    line: int
    name: str = ""
    task: Task | None = None
    verdict: Verdict | None = None
    moment: str = ""
    guest: str = ""
    times: int = 1
    keep: bool = False
    repeat: bool = False
    actions: tuple[Action, ...] = ()
    seen: Located | None = None
    limit_seconds: float = DEFAULT_LIMIT_SECONDS


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The whole text.

    :arg is_essential: it is played whenever all is tested, and not only when all scenarios are.
    :arg unsettled: guests whose record a person has to settle, with the sentence that says why.
    """

    file: pathlib.Path
    title: str
    shows: str
    is_essential: bool
    protect: bool
    ledger: str
    ledger_mib: int | None
    guests: t.Mapping[str, t.Mapping[str, t.Any]]
    steps: tuple[Step, ...]
    expect: Located
    unsettled: t.Mapping[str, str]

    @property
    def name(self) -> str:
        """Topic and name."""
        return str(self.file.relative_to(ROOT).with_suffix("")) if self.file.is_relative_to(ROOT) else self.file.stem


def files() -> list[pathlib.Path]:
    """Return all texts."""
    return sorted(ROOT.glob("*/*.yml"))


def read(file: pathlib.Path) -> Scenario:
    """Return the scenario of a file. Raises L(TextError), which names file and line, for whatever is not understood."""
    text = load(file)
    text.check_keys(TOP_KEYS, "a scenario", ("title", "shows", "guests", "steps", "expect"))
    guests = {name: _guest(name, found, text) for name, found in text["guests"].items()}
    scenario = Scenario(
        file,
        str(text["title"]),
        " ".join(str(text["shows"]).split()),
        _truth(text, "essential"),
        _truth(text, "protect"),
        str(text.get("ledger", FILES)),
        text.get("ledger_mib"),
        guests,
        tuple(_step(found, text, tuple(guests)) for found in text["steps"]),
        text["expect"],
        dict(text.get("unsettled") or {}),
    )
    check_seen(scenario.expect, text, scenario.guests)
    _check_names(scenario, text)
    _check_ledger(scenario, text)
    return scenario


def _truth(text: Located, key: str) -> bool:
    if not isinstance(text.get(key, False), bool):
        raise text.wrong(f"'{key}' is true or false", key)
    return bool(text.get(key, False))


def _guest(name: str, found: t.Any, text: Located) -> Located:
    if not isinstance(found, Located) or not re.fullmatch("[a-z][a-z0-9-]*", name):
        raise text.wrong(f"the guest {name!r} is a small word, and a mapping of {', '.join(GUEST_KEYS)}", "guests")
    found.check_keys(GUEST_KEYS, f"guest {name}", ("host",))
    if found["host"] not in HOSTS:
        raise found.wrong(f"there is no host {found['host']!r}", "host")
    return found


def _step(found: t.Any, text: Located, guests: t.Sequence[str]) -> Step:
    if not isinstance(found, Located) or not found:
        raise text.wrong(f"a step is a mapping, not {found!r}", "steps")
    kind = next(iter(found))
    reader = {"begin": _begin, "run": _run, "wait": _wait, "at": _at, "do": _do, "see": _see, "release": _release}.get(kind)
    if reader is None:
        raise found.wrong(f"a step begins with begin, run, wait, at, do, see or release, not with '{kind}'", kind)
    return reader(found, guests)


def _begin(found: Located, guests: t.Sequence[str]) -> Step:
    return Step("begin", found.line, name=str(found["begin"]), task=_task(found, ("begin",), guests))


def _run(found: Located, guests: t.Sequence[str]) -> Step:
    task = _task(found, ("run", "limit", "repeat", *VERDICT_KEYS), guests)
    repeat = _truth(found, "repeat")
    return Step("run", found.line, name=str(found["run"]), task=task, verdict=_verdict(found), repeat=repeat, limit_seconds=_limit(found, 400))


def _wait(found: Located, dummy_guests: t.Sequence[str]) -> Step:
    found.check_keys(("wait", "limit", *VERDICT_KEYS), "'wait'", ("exit",))
    return Step("wait", found.line, name=str(found["wait"]), verdict=_verdict(found), limit_seconds=_limit(found, 400))


def _at(found: Located, guests: t.Sequence[str]) -> Step:
    found.check_keys(("at", "of", "times", "do", "keep", "limit"), "'at'", ("do",))
    moment, guest = _moment(found, "at", guests)
    actions = tuple(action_of(one, found) for one in found["do"] or ())
    keep = _truth(found, "keep")
    return Step("at", found.line, moment=moment, guest=guest, times=int(found.get("times", 1)), keep=keep, actions=actions, limit_seconds=_limit(found))


def _release(found: Located, guests: t.Sequence[str]) -> Step:
    found.check_keys(("release", "of"), "'release'")
    moment, guest = _moment(found, "release", guests)
    return Step("release", found.line, moment=moment, guest=guest)


def _moment(found: Located, key: str, guests: t.Sequence[str]) -> tuple[str, str]:
    if found[key] not in NAMES:
        raise found.wrong(f"there is no moment '{found[key]}'. There are: {', '.join(sorted(NAMES))}.", key)
    guest = found.get("of") or (guests[0] if len(guests) == 1 else None)
    if guest not in guests:
        raise found.wrong("say which guest: 'of: …'", key)
    return str(found[key]), str(guest)


def _do(found: Located, dummy_guests: t.Sequence[str]) -> Step:
    found.check_keys(("do",), "'do'")
    return Step("do", found.line, actions=tuple(action_of(one, found) for one in found["do"]))


def _see(found: Located, guests: t.Sequence[str]) -> Step:
    """What can be seen by now, or within the limit."""
    found.check_keys(("see", "limit"), "'see'")
    check_seen(found["see"], found, dict.fromkeys(guests))
    return Step("see", found.line, seen=found["see"], limit_seconds=_limit(found))


def _limit(found: Located, default: float = DEFAULT_LIMIT_SECONDS) -> float:
    limit = found.get("limit", default)
    if not isinstance(limit, (int, float)) or not 0 < limit <= 600:
        raise found.wrong("'limit' is a number of seconds, at most 600", "limit")
    return float(limit)


def _task(found: Located, beside: t.Sequence[str], guests: t.Sequence[str]) -> Task:
    kinds = [key for key in found if key in TASKS]
    found.check_keys((*beside, *TASKS), f"'{beside[0]}'")
    if len(kinds) != 1 or not isinstance(found[kinds[0]], Located):
        raise found.wrong(f"say what is run, one of: {', '.join(TASKS)}, each with a mapping")
    given: Located = found[kinds[0]]
    own, needed = TASKS[kinds[0]]
    given.check_keys((*own, *given), f"'{kinds[0]}'", needed)
    named = [given["guest"]] if "guest" in given else given.get("guests", [])
    for name in named:
        if name not in guests:
            raise given.wrong(f"there is no guest {name!r}")
    for key in ("to", "from", "host", "source", "on"):
        if key in own and key in given and given[key] not in HOSTS:
            raise given.wrong(f"there is no host {given[key]!r}", key)
    return Task(kinds[0], {key: given[key] for key in given if key in own}, {key: given[key] for key in given if key not in own})


def _verdict(found: Located) -> Verdict:
    if found.get("exit") not in ("ok", "failed", "any"):
        raise found.wrong("'exit' is ok, failed or any", "exit")
    changed = found.get("changed")
    return Verdict(found["exit"], found.get("error"), _texts(found.get("says")), _texts(found.get("does_not_say")), changed)


def _texts(given: t.Any) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, list) else (() if given is None else (str(given),))


def check_seen(seen: t.Any, where: Located, guests: t.Mapping[str, t.Any]) -> None:
    """Raise L(TextError) where this is not what can be expected of a fleet."""
    if not isinstance(seen, Located) or not seen:
        raise where.wrong(f"what is seen is a mapping of {', '.join(SEEN_KEYS)}")
    seen.check_keys(SEEN_KEYS, "what is seen")
    for key in ("guests", "state", "possible_hosts"):
        for name, found in (seen.get(key) or {}).items():
            if name not in guests:
                raise seen.wrong(f"there is no guest {name!r}", key)
            if key == "guests" and (not isinstance(found, dict) or not {int(number) for number in found} <= set(HOSTS)):
                raise seen.wrong(f"say on which host {name} is in which state, e.g. {{2: running}}", key)
    for name, end in (seen.get("tasks") or {}).items():
        if end not in ("ok", "failed"):
            raise seen.wrong(f"'{name}' is ok or failed", "tasks")
    for record in seen.get("records") or ():
        if not isinstance(record, Located):
            raise seen.wrong("a record is a mapping", "records")
        record.check_keys(RECORD_KEYS, "a record", ("guest",))
        for key in ("history", "acts"):
            if not isinstance(record.get(key, ""), str):
                raise record.wrong(f"'{key}' is a line of text with commas in it", key)
        if record["guest"] not in guests:
            raise record.wrong(f"there is no guest {record['guest']!r}", "guest")
    for other in seen.get("either") or ():
        check_seen(other, seen, guests)


def _check_names(scenario: Scenario, text: Located) -> None:
    """Each task that is waited for was begun, each that was begun is waited for or killed, and each moment that is released was kept."""
    begun = [step.name for step in scenario.steps if step.kind == "begin"]
    _check_ends(scenario, {step.name for step in scenario.steps if step.kind in ("begin", "run")})
    ended = {step.name for step in scenario.steps if step.kind == "wait"}
    killed = {action.of for step in scenario.steps for action in step.actions if action.verb == "kill" and action.what in ("ansible", "control node")}
    for name in ended - set(begun):
        raise text.wrong(f"'{name}' is waited for and was never begun", "steps")
    for name in begun:
        if name not in ended and name not in killed and None not in killed:
            raise text.wrong(f"'{name}' is begun, and neither waited for nor killed", "steps")
    for guest in scenario.unsettled:
        if guest not in scenario.guests:
            raise text.wrong(f"there is no guest {guest!r}", "unsettled")


def _check_ledger(scenario: Scenario, text: Located) -> None:
    """Nothing happens to a ledger that only the other kind of ledger could have happen to it."""
    if scenario.ledger not in KINDS:
        raise text.wrong(f"'ledger' is one of {', '.join(KINDS)}", "ledger")
    on_etcd = scenario.ledger == ETCD
    if on_etcd and scenario.ledger_mib:
        raise text.wrong("'ledger_mib' is about the disk of a ledger in files", "ledger_mib")
    for step in scenario.steps:
        for action in step.actions:
            if action.is_of_the_ledgers_files if on_etcd else action.is_of_etcd:
                raise TextError(f"{scenario.file}:{step.line}: '{action.verb}: {action.what}' needs 'ledger: {FILES if on_etcd else ETCD}'")


def _check_ends(scenario: Scenario, names: t.Collection[str]) -> None:
    """Each task of which the end says how it ended was begun."""
    for seen in (scenario.expect, *(scenario.expect.get("either") or ())):
        for name in set(seen.get("tasks") or ()) - set(names):
            raise seen.wrong(f"the task '{name}' was never begun", "tasks")


__all__ = ["Scenario", "Step", "Task", "TextError", "Verdict", "files", "read"]
