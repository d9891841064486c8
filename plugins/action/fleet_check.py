# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(fleet_check) judges the whole fleet on the control node.

The tasks file runs it three times: C(ask) returns what the hosts are to be asked, C(answer) asks one host, and the last one makes the verdict.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, fleet_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, SignedInt, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import FleetAnswers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import LONGEST_AGE_SECONDS, TaskResult
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.records import read_unsettled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import VARIABLE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.cpus import make_questions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.differences import (
    ClockOffset,
    find_clock_skew,
    find_failed_answers,
    find_failed_peers,
    find_old_protection,
    find_other_ledgers,
    find_unasked_hosts,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.fence_devices import ask_fence_devices, find_fence_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.texts import list_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.verdict import FleetVerdict, LossQuestion, judge_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import read_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import to_plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import with_protect_times
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.unreadable_hosts import UnreadableHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import SCHEMA, CheckedFleet, keep_check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet_guests import FleetGuests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import MOST_FAILOVER_HOSTS, check_failover_hosts, count_failover_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import age_seconds as facts_age_seconds

ASK, ANSWER, TRY_PEERS = "ask", "answer", "try"
# Each host tries the next ones by name. In a large fleet, each of them trying all others would be as many logins as an evacuation.
MOST_PEERS = 16
# A check may take minutes in a large fleet. Older facts are not of this run.
FACTS_MAX_AGE_SECONDS = 900
# The question whether certain hosts can be lost is about this moment. The plan of a drain gathers facts right before it.
LOST_FACTS_MAX_AGE_SECONDS = LONGEST_AGE_SECONDS


@dataclass(frozen=True)
class _Answered(TaskResult):
    """What C(answer) has returned for one host: nothing if it did not answer."""

    answers: Maybe[FleetAnswers] = ABSENT
    clock: Maybe[JsonObject] = ABSENT
    fencing: Maybe[tuple[str, ...]] = ABSENT
    asked_peers: Maybe[tuple[str, ...]] = ABSENT
    failed_peers: Maybe[Mapping[str, str]] = ABSENT


@dataclass(frozen=True)
class _Work:
    """What the tasks file passes.

    :arg step: C(ask) or C(answer); absent for the verdict.
    :arg questions: for one host; C(peers) are the URIs of the hosts that it tries to ask, and C(peers_without_uri) is why it cannot ask others.
    :arg answers: of C(answer), by host; C(silence) is why C(host_facts) has returned nothing.
    """

    step: Maybe[str] = ABSENT
    questions: Maybe[JsonObject] = ABSENT
    peers: Maybe[Mapping[str, str]] = ABSENT
    peers_without_uri: Maybe[Mapping[str, str]] = ABSENT
    answers: Maybe[Mapping[str, _Answered]] = ABSENT
    silence: Maybe[Mapping[str, str]] = ABSENT


@dataclass(frozen=True)
class _CheckTask:
    """The options of C(fleet_check)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    uri: str
    ledger: t.Optional[str]
    fleet: tuple[str, ...]
    hosts_lost: t.Optional[SignedInt]
    lost: tuple[str, ...]
    accept_fresh: tuple[str, ...]
    ignore: tuple[str, ...]
    max_clock_skew_seconds: SignedInt
    protect_max_hours: SignedInt
    work: Json


@dataclass(frozen=True)
class _Ledger:
    """What the ledger says of the fleet; nothing if there is none."""

    ledger: Ledger | None = None
    entries: Sequence[HostEntry] = ()
    unreadable: Sequence[UnreadableHost] = ()
    domains: Sequence[DomainEntry] = field(default_factory=tuple)


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "fleet_check"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return fleet_check_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Judge the fleet. Raises L(InvalidArgument) for invalid options, and for a fleet without facts."""
        task = decode(_CheckTask, to_plain(args))
        with readable_results():
            work = decode(_Work, task.work or {}, "_work")
        if work.step == ANSWER:
            return self._ask_host(work, task.uri, task_vars)
        settings = self.settings(task_vars)
        fleet = list(dict.fromkeys(task.fleet)) or settings.fleet()
        hosts_lost = _choose_hosts_lost(task, fleet, settings)
        _check_options(task, hosts_lost, fleet)
        known = _read_ledger(open_if_any(*settings.ledger(self.target_host(task_vars), task.ledger)))
        max_age = LOST_FACTS_MAX_AGE_SECONDS if task.lost else FACTS_MAX_AGE_SECONDS
        inputs = _read_inputs(fleet, settings, known, work, max_age)
        view = inputs.collect_guests(fleet, task.accept_fresh)
        if work.step == ASK:
            return {"changed": False, **_describe_questions(view), **_choose_peers(list(inputs.hosts), settings)}

        answered = {host: one for host, one in (work.answers or {}).items() if one.answers}
        clocks = {host: decode(ClockOffset, one.clock) for host, one in answered.items() if one.clock}
        ledgers = {host: facts.ledger_id for host, facts in inputs.hosts.items()}
        others = [
            *find_other_ledgers(ledgers, known.ledger),
            *find_clock_skew(clocks, task.max_clock_skew_seconds),
            *find_old_protection(fleet, known.entries, task.protect_max_hours),
            *find_fence_problems({host: one.fencing or () for host, one in answered.items()}),
            *find_failed_peers(
                {host: one.asked_peers or () for host, one in answered.items()}, {host: one.failed_peers or {} for host, one in answered.items()}
            ),
        ]
        question = LossQuestion(hosts_lost, tuple(dict.fromkeys(task.lost)))
        unlisted = [entry for entry in known.entries if entry.name not in fleet and not settings.is_known(entry.name)]
        failed = {host: one.message for host, one in (work.answers or {}).items() if not one.answers and host not in inputs.unreachable}
        silent = [*find_unasked_hosts(unlisted, known.unreadable, [inputs.host_ref(host) for host in inputs.hosts]), *find_failed_answers(failed)]
        verdict = judge_fleet(view, question, {host: one.answers for host, one in answered.items() if one.answers}, silent, others, task.ignore)
        is_whole = not task.lost and not set(settings.fleet()) - set(fleet)
        return self._describe(verdict, known.ledger if is_whole else None, [*known.ledger.find_threats(), *known.ledger.problems] if known.ledger else ())

    def _ask_host(self, work: _Work, uri: str, task_vars: Result) -> JsonObject:
        """Return the answers of the host, how many seconds its clock is ahead of that of the control node, what is wrong with its fence devices, and why it
        cannot ask other hosts.
        """
        begin = time.time()
        answers = t.cast(JsonObject, self.run_phase(ANSWER, {"questions": work.questions or {}}, uri, task_vars)["answers"])
        end, seconds = time.time(), t.cast(float, answers["seconds"])
        host = self.target_host(task_vars)
        fencing = ask_fence_devices(self.settings(task_vars).of(host, VARIABLE), host)
        clock = {"least": seconds - end, "most": seconds - begin}
        asked, failed = self._try_peers(work.peers or {}, uri, task_vars)
        without_uri = dict(work.peers_without_uri or {})
        found: JsonObject = {"answers": answers, "clock": clock, "fencing": fencing}
        return {"changed": False, **found, "asked_peers": [*asked, *without_uri], "failed_peers": {**failed, **without_uri}}

    def _try_peers(self, peers: Mapping[str, str], uri: str, task_vars: Result) -> tuple[Sequence[str], Mapping[str, str]]:
        """Return which of them the host has asked, and why it cannot ask some. An error is about all of them, and not about its other answers."""
        if not peers:
            return [], {}
        try:
            tried = self.run_phase(TRY_PEERS, {"peers": dict(peers)}, uri, task_vars)
        except KvmfleetError as error:
            return list(peers), dict.fromkeys(peers, str(error))
        return t.cast("Sequence[str]", tried["asked"]), t.cast("Mapping[str, str]", tried["silent"])

    def _describe(self, verdict: FleetVerdict, keeper: Ledger | None, problems: Sequence[str]) -> JsonObject:
        """Return the verdict. A check of the whole fleet is kept for the ledger C(keeper)."""
        at, lines = utc_now(), list_lines(verdict)
        problem = keep_check(_make_summary(verdict, keeper.ledger_id, at, lines)) if keeper and not self._task.check_mode else None
        warnings = [*problems, *([problem] if problem else ())]
        result = {"changed": False, "at": at, **t.cast("dict[str, Json]", encode(verdict)), "lines": lines}
        return {**result, "warnings": warnings} if warnings else result


def _choose_hosts_lost(task: _CheckTask, fleet: Sequence[str], settings: Settings) -> int:
    """Return how many hosts are lost: as many as the task gives, else as many as the fleet has to be able to lose, and one at least."""
    if task.hosts_lost is not None:
        return task.hosts_lost
    failover_hosts = count_failover_hosts(settings.scheduler(host) for host in fleet if settings.is_known(host))
    check_failover_hosts(failover_hosts, len(fleet))
    return max(1, failover_hosts)


def _check_options(task: _CheckTask, hosts_lost: int, fleet: Sequence[str]) -> None:
    """Raise L(InvalidArgument) for an invalid option."""
    least = max(1, len(set(task.lost)))
    most = len(set(task.lost)) + MOST_FAILOVER_HOSTS
    if not least <= hosts_lost <= most:
        raise InvalidArgument(f"hosts_lost is {hosts_lost}.", f"Give the number of hosts that are lost at the same time, {least} to {most}.")
    strangers = [host for host in task.lost if host not in fleet]
    if strangers:
        raise InvalidArgument(f"lost has {', '.join(strangers)}, which is not in the fleet that is checked.", "Name hosts of the fleet.")
    if len(fleet) <= hosts_lost:
        raise InvalidArgument(
            f"The fleet has {len(fleet)} {'host' if len(fleet) == 1 else 'hosts'}, and hosts_lost is {hosts_lost}.", "Check more hosts, or lose fewer."
        )
    if task.protect_max_hours < 1:
        raise InvalidArgument(f"protect_max_hours is {task.protect_max_hours}.", "Give a number of hours from 1.")
    if task.max_clock_skew_seconds < 1:
        raise InvalidArgument(f"max_clock_skew_seconds is {task.max_clock_skew_seconds}.", "Give a number of seconds from 1.")


def _read_ledger(ledger: Ledger | None) -> _Ledger:
    if ledger is None:
        return _Ledger()
    hosts = read_hosts(ledger)
    return _Ledger(ledger, with_protect_times(ledger, hosts.entries), hosts.unreadable, [document.domain for document in ledger.list_domains()])


def _read_inputs(fleet: Sequence[str], settings: Settings, known: _Ledger, work: _Work, max_age_seconds: int) -> DrainInputs:
    """Return the facts of the hosts, with what the inventory and the ledger say of them."""
    silence = dict(work.silence or {})
    facts: dict[str, JsonObject] = {}
    for host in fleet:
        gathered = settings.facts(host)
        age = facts_age_seconds(gathered) if gathered else None
        if host in silence:
            continue
        if gathered is None or age is None or age > max_age_seconds:
            silence[host] = "no facts of it were gathered in this run"
        else:
            facts[host] = gathered
    for host, name in _find_second_names(facts, known.entries).items():
        del facts[host]
        silence[host] = (
            f"The host at its address is {name}, by its ID or libvirt's UUID. Remove one of the two names from the inventory. If they are two hosts, give the"
            " libvirt of each its own UUID (host_uuid in libvirtd.conf), and protect both"
        )
    variables = ("kvmfleet_scheduler", "kvmfleet_migration_policy", "kvmfleet_profiles")
    scheduler, policies, profiles = ({host: settings.of(host, variable, {}) for host in fleet if settings.is_known(host)} for variable in variables)
    maps = {host: settings.resource_maps(host) for host in fleet}
    return DrainInputs(
        facts,
        known.entries,
        read_unsettled(known.ledger),
        silence,
        scheduler,
        policies=policies,
        profiles=profiles,
        resource_maps=maps,
        documents=known.domains,
        unreadable=known.unreadable,
        ledger_id=known.ledger.ledger_id if known.ledger else ABSENT,
    )


def _find_second_names(facts: Mapping[str, JsonObject], entries: Sequence[HostEntry]) -> dict[str, str]:
    """Return the hosts that are the same as another one, with its name: the one in the ledger, else the first one. Their places would count twice."""
    names: dict[str, str] = {}
    listed = {entry.name for entry in entries}
    found: dict[str, str] = {}
    for host in sorted(facts, key=lambda host: host not in listed):
        # Boards of one series may have one UUID.
        name = names.setdefault(str(facts[host].get("host_id") or facts[host].get("host_uuid") or host), host)
        if name != host:
            found[host] = name
    return found


def _describe_questions(view: FleetGuests) -> JsonObject:
    """Return the questions: those about CPUs are the same for all hosts."""
    questions = make_questions(view)
    cpus: Json = next((encode(one.cpus) for one in questions.values()), [])
    return {"cpus": cpus, "baselines": {host: encode(one.baselines) for host, one in questions.items() if one.baselines}}


def _choose_peers(hosts: Sequence[str], settings: Settings) -> JsonObject:
    """Return for each host which others it tries to ask: C(peers) with their URIs, and C(peers_without_uri) with the reason why there is none."""
    ring = sorted(host for host in hosts if settings.is_known(host))
    chosen: dict[str, dict[str, Json]] = {host: {} for host in ring}
    without_uri: dict[str, dict[str, Json]] = {host: {} for host in ring}
    for number, host in enumerate(ring):
        for peer in [*ring[number + 1 :], *ring[:number]][:MOST_PEERS]:
            try:
                chosen[host][peer] = settings.libvirt_uri(peer, host)
            except InvalidArgument as error:
                without_uri[host][peer] = str(error)
    return {"peers": t.cast(Json, chosen), "peers_without_uri": t.cast(Json, without_uri)}


def _make_summary(verdict: FleetVerdict, ledger_id: str, at: str, lines: Sequence[str]) -> CheckedFleet:
    kinds: dict[str, int] = {}
    for finding in verdict.findings:
        kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
    return CheckedFleet(
        schema=SCHEMA,
        ledger_id=ledger_id,
        at=at,
        met=verdict.met,
        hosts_lost=verdict.hosts_lost,
        sets=verdict.sets,
        hosts={host: one.alone for host, one in verdict.hosts.items()},
        findings=kinds,
        attention=tuple(finding.msg for finding in verdict.findings),
        lines=tuple(lines),
    )
