# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Evidence that a dead host is off, and every other silent host on which a domain may be.

The evidence is collected, and confirmed before each start. The silence of the source is proved again in the background.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime
import math
import threading
import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import (
    SSH_ALIVE,
    SSH_ANSWERS,
    SSH_REFUSED,
    SSH_SILENT,
    SSH_UNKNOWN,
    probe_ssh,
    probe_ssh_endpoints,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SILENCE, Evidence, SourceSilence, SshEndpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._ledger.documents import HostEntry
from .._ledger.ledger import Ledger
from .._settings.variables import Settings
from .fence_agent import FenceAction
from .fence_config import MAX_SECONDS, VARIABLE, FencingConfig, name_agents, parse_fencing
from .fence_levels import PowerReply, do_at_once, query_host_patiently
from .fencing import ask_power, check_evidence, confirm_evidence, fence_host, find_power_evidence, person_evidence, watchdog_evidence
from .fleet_answers import SourceAnswers, list_second_endpoints, list_ssh_endpoints
from .job import MakeProbe
from .lease_evidence import Proven, Void
from .renewals import OpenLeases, Renewals
from .reset_watch import ResetWatch, check_not_withdrawn, find_late_arrivals
from .source import Source

TryConnection = Callable[[str, int], str]
_CONTROL_NODE = "the control node"


@dataclass
class PowerOffEvidence:
    """The evidence that the source, and other hosts that may have its domains, are off.

    :arg entries: the ledger's hosts, which evidence may be about.
    :arg open_leases: returns a new reader of the leases in the ledger; None for a ledger without any.
    :arg show: receives a line for people while a watchdog is waited for.
    :arg make_probe: returns an attempt to connect to a host of the inventory as Ansible does; None for a task that makes no such attempt.
    :arg is_by_person: returns whether a person confirms that the source is off, and no device does: then its address on a second network has to be silent, too.
    :arg given: the evidence that the task was given: documents of earlier steps or of a tasks file, and a person's confirmation.
    :arg taken: the evidence that this task has taken from agents.
    :arg unproved: by name of another silent host, why its agents are no evidence that it is off.
    :arg asked_power: what the agent of the source has reported, if it was asked while the hosts were.
    :arg has_fenced: whether this task has switched the source off.
    """

    settings: Settings
    source: Source
    entries: Sequence[HostEntry]
    by: str
    open_leases: OpenLeases = lambda: None
    show: Callable[[str], None] = lambda line: None
    is_by_person: Callable[[], bool] = lambda: False
    make_probe: t.Optional[MakeProbe] = None
    try_connection: TryConnection = probe_ssh
    warnings: list[str] = field(default_factory=list)
    given: list[Evidence] = field(default_factory=list)
    taken: list[Evidence] = field(default_factory=list)
    unproved: dict[str, str] = field(default_factory=dict)
    asked_power: PowerReply | None = None
    has_fenced: bool = False
    renewals: Renewals = field(init=False)

    def __post_init__(self) -> None:
        self.renewals = Renewals(self.open_leases)

    @property
    def all_evidence(self) -> list[Evidence]:
        """All evidence."""
        return [*self.given, *self.taken]

    def check_silence(self) -> SourceSilence:
        """Return the answers of the source's addresses to the control node. Raises L(Unsafe) if one answers."""
        endpoints = probe_ssh_endpoints(self.list_endpoints(), self.try_connection)
        self.check_endpoints(endpoints, _CONTROL_NODE)
        return SourceSilence(SILENCE, self.source.name, "control node", endpoints, utc_now())

    def list_endpoints(self) -> list[SshEndpoint]:
        """Return the addresses of the source that have to be silent."""
        return self._list_all_endpoints(self.source) if self.is_by_person() else list_ssh_endpoints(self.settings, self.source)

    def begin_power_query(self, pool: concurrent.futures.Executor) -> concurrent.futures.Future[PowerReply] | None:
        """Ask the first agent of the source for its power state in the background; None if the source has no agent. This changes nothing."""
        config = self._fencing_config(self.source.name)
        return pool.submit(ask_power, config) if config and config.levels else None

    def check_endpoints(self, endpoints: Iterable[SshEndpoint], tried_from: str) -> None:
        """Raise L(Unsafe) if the source's SSH port accepts or refuses a connection; an unreachable address is a warning.

        The control node needs no way to the second network.
        """
        second = {endpoint.address for endpoint in list_second_endpoints(self.settings, self.source)} if tried_from == _CONTROL_NODE else set()
        for endpoint in endpoints:
            if endpoint.says in SSH_ALIVE:
                raise self._answered_error(endpoint, tried_from)
            if endpoint.says == SSH_UNKNOWN and endpoint.address not in second:
                self._add_warning(
                    f"The address {endpoint.address} of {self.source.name} does not resolve on {tried_from}, or cannot be reached from there at all: "
                    "its silence is weak evidence."
                )

    def _answered_error(self, endpoint: SshEndpoint, tried_from: str) -> SourceAnswers:
        """Return the error for an address that answered. It is unknown which machine answered; the address has to become silent first."""
        at = f"{endpoint.address} port {endpoint.port}"
        if endpoint.says == SSH_REFUSED:
            what = f"{at}, the address of {self.source.name}, refuses connections from {tried_from}: a machine with that address is on."
        else:
            what = f"{self.source.name} answers {tried_from} at {at}."
        return SourceAnswers(
            f"{what} A host that answers is never evacuated.",
            f"Nothing was started. If {self.source.name} is on, drain it (kvmfleet.migration.drain_host), or switch it off. If another machine has its address"
            " now, remove it from that machine until this is done; if a firewall refuses connections in its place, let it drop them.",
        )

    def collect_evidence(
        self,
        documents: t.Optional[Sequence[Json]],
        force_down: t.Optional[JsonObject],
        others: Sequence[HostRef],
        check_others: Callable[[], None],
        may_fence: bool,
    ) -> None:
        """Use the given evidence, or fence the source.

        :arg documents: evidence from another source, the option C(fencing).
        :arg force_down: the confirmation of a person, the option of that name.
        :arg others: further silent hosts that need evidence. Their agents are queried whether they are off; they are never switched off.
        :arg check_others: raises what forbids every start, when all evidence about other hosts is there. The source is not fenced then.

        Raises L(Unsafe) for invalid evidence, if there is none, or if another host that should be off answers SSH; what L(fence_host) raises;
        L(InvalidArgument) for two kinds at once.
        """
        if documents and force_down:
            raise InvalidArgument("Both fencing and force_down are given.", "Give one of them. Nothing was started.")
        self.given, self.taken, self.unproved = [self._check_given(one) for one in documents or ()], [], {}
        if force_down:
            options = {key: value for key, value in force_down.items() if value is not None}
            self.given.append(person_evidence(options, self.source.name, self.source.host_id, self.by))
        self._check_stated_silent(others)
        watch = self._watch_reset(self.source.entry) if may_fence and self.of_source is None else None
        try:
            self.taken += self._query_agents(others)
            check_others()
            if self.of_source is None and may_fence:
                self.taken.append(self._fence_source(watch))
        finally:
            if watch:
                watch.cancel()
        self.renewals.note_evidence()

    def confirm_all(self) -> list[Evidence]:
        """Query every agent again, and read the leases. Raises L(Unsafe) or L(Unreachable) if a host is no longer certainly off."""
        now = datetime.datetime.now(datetime.UTC)
        known = [(one, self._fencing_config(one.host)) for one in self.all_evidence]
        confirmed = do_at_once(lambda one: confirm_evidence(one[0], one[1], now, self.open_leases), known)
        self.given, self.taken = confirmed[: len(self.given)], confirmed[len(self.given) :]
        self.renewals.read_leases()
        self.renewals.refuse_renewed(self.all_evidence)
        return self.all_evidence

    @property
    def longest_query_seconds(self) -> float:
        """How long L(confirm_all) may wait for an agent."""
        configs = [config for one in self.all_evidence if (config := self._fencing_config(one.host))]
        return max((device.status_timeout_seconds for config in configs for device in config.devices), default=0)

    def await_expiry(self, only_renewed: bool) -> None:
        """Return when no host with evidence can hold a lease that it renews. Raises L(Unsafe) if one renews its lease, see L(Renewals.await_expiry)."""
        self.renewals.await_expiry(self.all_evidence, only_renewed, self.show)

    def extend_evidence(self, seconds: float) -> None:
        """Extend the evidence by a wait that this task has chosen: agents are queried again, and other evidence is valid for that much longer.

        Raises what L(confirm_evidence) does.
        """
        self.given = [_with_longer_ttl(one, seconds) for one in self.given]
        self.confirm_all()

    def list_proofs_of(self, where: HostRef) -> list[Evidence]:
        """Return the evidence that this host is off."""
        # A record that is older than its host's ID has the libvirt UUID of that time, which may have changed.
        return [one for one in self.all_evidence if where.may_be(HostRef(one.host, one.host_id, self._find_uuid(one.host_id)))]

    def has_proof_of(self, where: HostRef) -> bool:
        """Whether that host is off by evidence."""
        return bool(self.list_proofs_of(where))

    def list_late_arrivals(self, ledger: Ledger) -> dict[str, frozenset[str]]:
        """Return, by ID of each host that is off by its watchdog, the domains that may have come to it after the reset. Raises as L(find_late_arrivals)."""
        return {str(one.host_id): find_late_arrivals(one, ledger) for one in self.all_evidence if one.is_of_watchdog}

    def check_not_withdrawn(self, ledger: Ledger) -> None:
        """Raise L(Unsafe) if what evidence of a watchdog is based on was withdrawn, see L(check_not_withdrawn)."""
        for one in self.all_evidence:
            if one.is_of_watchdog:
                check_not_withdrawn(one, ledger)

    @property
    def of_source(self) -> t.Optional[Evidence]:
        """The evidence about the source."""
        return next((one for one in self.all_evidence if one.host_id == self.source.host_id), None)

    def missing_error(self) -> Unsafe:
        """Return the error for a source without evidence that has no fence agent either."""
        return Unsafe(
            f"There is no evidence that {self.source.name} is off: it has no {VARIABLE}, and neither fencing nor force_down was given.",
            f"Nothing was started. Name its fence agent or its watchdog in {VARIABLE}, or give fencing from a tasks file of your own. When a person"
            " has seen that it is off, set force_down with a reason (evacuate_host_force_down and evacuate_host_reason).",
        )

    @property
    def can_fence(self) -> bool:
        """Whether a fence agent can switch the source off."""
        return self._fencing_config(self.source.name) is not None

    def can_prove(self, where: HostRef, documents: t.Optional[Sequence[Json]]) -> bool:
        """Whether there may be evidence that a host is off: of its agents or its watchdog, or in these documents."""
        is_given = any(isinstance(one, Mapping) and one.get("host") == where.host for one in documents or ())
        return is_given or self._fencing_config(where.label) is not None

    def _check_given(self, given: Json) -> Evidence:
        entry = self._find_entry(given)
        now, config = datetime.datetime.now(datetime.UTC), self._fencing_config(entry.name)
        return check_evidence(given, entry.name, str(entry.host_id), self.by, now, config)

    def _check_stated_silent(self, others: Iterable[HostRef]) -> None:
        """Raise L(Unsafe) if another host answers SSH whose evidence no device can confirm: its libvirt alone may be down.

        It is asked by the control node, as Ansible does too where the source is. The survivors have queried its libvirt: evidence about a host that has
        answered there is not used.
        """
        stated: dict[t.Optional[str], Evidence] = {}
        for where in others:
            found = [one for one in self.list_proofs_of(where) if one.host_id != self.source.host_id]
            if not any(one.is_of_agent or one.is_of_watchdog for one in found):
                stated.update({one.host_id: one for one in found})
        hosts = [Source(entry) for entry in self.entries if entry.host_id in stated]
        asked = [(stated[host.host_id], endpoint) for host in hosts for endpoint in self._list_all_endpoints(host)]
        answers = probe_ssh_endpoints([endpoint for _one, endpoint in asked], self.try_connection)
        for (one, _endpoint), answer in zip(asked, answers, strict=True):
            if answer.says in SSH_ALIVE:
                what = "answers" if answer.says != SSH_REFUSED else "refuses connections from"
                raise self._stated_error(
                    one,
                    f"{what} {_CONTROL_NODE} at {answer.address} port {answer.port}",
                    "; if a firewall refuses connections in its place, let it drop them",
                )
        self._check_silent_to_ansible([stated[host.host_id] for host in hosts if self.settings.is_known(host.name)])

    def _check_silent_to_ansible(self, stated: Iterable[Evidence]) -> None:
        """Raise L(Unsafe) if one of these hosts may answer Ansible: it may be behind a jump host, so that its own address is silent here."""
        make_probe = self.make_probe
        if make_probe is None:
            return
        with contextlib.ExitStack() as stack:
            # All of them are tried at once.
            for one, probe in [(one, stack.enter_context(make_probe(one.host))) for one in stated]:
                says, why = probe.read_answer()
                if says != SSH_SILENT:
                    raise self._stated_error(one, "answers Ansible" if says == SSH_ANSWERS else f"may answer Ansible ({why})")

    def _stated_error(self, stated: Evidence, what: str, more: str = "") -> Unsafe:
        return Unsafe(
            f"{stated.host} {what}, although {stated.by} says that it is off: domains of {self.source.name} could run there.",
            f"Nothing was started. Let libvirt on {stated.host} answer, or switch the host off; if another machine has its address now, remove it there{more}.",
        )

    def _list_all_endpoints(self, host: Source) -> list[SshEndpoint]:
        return [*list_ssh_endpoints(self.settings, host), *list_second_endpoints(self.settings, host)]

    def _find_entry(self, given: Json) -> HostEntry:
        """Return the host that evidence is about: the source, or another one of the ledger that may have the domains too."""
        named = given.get("host") if isinstance(given, Mapping) else None
        return next((entry for entry in self.entries if entry.name == named and entry.host_id), self.source.entry)

    def _watch_reset(self, entry: HostEntry) -> ResetWatch | None:
        """Begin to wait for the watchdog of a host, while its devices are tried; None if it has none that is evidence."""
        config = self._fencing_config(entry.name)
        return ResetWatch(config, entry, self.open_leases(), self.show).start() if config and config.watchdog_seconds else None

    def _fence_source(self, watch: ResetWatch | None) -> Evidence:
        config = self._fencing_config(self.source.name)
        if config is None:
            raise self.missing_error()
        asked, self.asked_power = self.asked_power, None
        evidence = fence_host(config, self.source.host_id, self.by, asked, watch.wait if watch else None)
        self.has_fenced = evidence.is_of_agent and evidence.action == FenceAction.OFF
        return evidence

    def _query_agents(self, others: Iterable[HostRef]) -> list[Evidence]:
        """Return the evidence of other hosts' agents, for those that have one. All agents are asked at once; the fleet's answers prove the silence."""
        entries = [(where, next((entry for entry in self.entries if where.host_id and entry.host_id == where.host_id), None)) for where in others]
        configs = [(entry, self._fencing_config(entry.name)) for where, entry in entries if entry and not self.has_proof_of(where)]
        found = do_at_once(lambda one: self._query_agent(*one), [(entry, config) for entry, config in configs if config])
        return [one for one in found if one]

    def _query_agent(self, entry: HostEntry, config: FencingConfig) -> Evidence | None:
        """Return the evidence of agents that report their host as off, or of its watchdog. If there is none, C(unproved) says why."""
        watch = self._watch_reset(entry)
        power = query_host_patiently(config)
        evidence = find_power_evidence(config, str(entry.host_id), power, self.by)
        verdict = watch.wait() if watch and not evidence else None
        if isinstance(verdict, Proven):
            evidence = watchdog_evidence(config, str(entry.host_id), verdict, self.by)
        if not evidence:
            agents = "; ".join([*map(name_agents, config.levels), *(["its watchdog"] if watch else [])])
            why = "; ".join(filter(None, (str(power), verdict.why if isinstance(verdict, Void) else "")))
            self.unproved[entry.name] = f"{agents} does not say that it is off: {why}"
        return evidence

    def _fencing_config(self, host: str) -> t.Optional[FencingConfig]:
        return parse_fencing(self.settings.of(host, VARIABLE), host)

    def _find_uuid(self, host_id: t.Optional[str]) -> t.Optional[str]:
        return next((entry.host_uuid for entry in self.entries if host_id and entry.host_id == host_id), None)

    def _add_warning(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)


def _with_longer_ttl(evidence: Evidence, seconds: float) -> Evidence:
    """Return evidence that is valid for that much longer; that of an agent or a watchdog is renewed instead."""
    longer = min(MAX_SECONDS, evidence.ttl_seconds + math.ceil(seconds))
    return evidence if evidence.is_of_agent or evidence.is_of_watchdog else dataclasses.replace(evidence, ttl_seconds=longer)


# An older silence is proved again before anything is started on it.
SILENCE_FRESH_SECONDS = 5.0

SilenceProof = concurrent.futures.Future[None]


class SilenceRenewal:
    """:arg take: proves the silence, and raises what prevents a start. It is called in a second thread, never twice at once.

    :arg taken_at: when that was done last, by the clock.
    """

    def __init__(self, take: Callable[[], object], taken_at: float = float("-inf"), clock: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self.taken_at = taken_at
        self._clock = clock
        self._taking: SilenceProof | None = None
        self._at_once = threading.Event()
        self._dropped = False

    def start_proof(self, delay_seconds: float) -> None:
        """Prove the silence after that number of seconds, or earlier if L(require_proof) requires it."""
        self.cancel_proof()
        self._dropped = False
        self._at_once.clear()
        pool = concurrent.futures.ThreadPoolExecutor(1, "silence")
        self._taking = pool.submit(self._prove_after, delay_seconds)
        pool.shutdown(wait=False)

    def require_proof(self) -> None:
        """Return once the silence was proved, L(SILENCE_FRESH_SECONDS) ago at most. Raises the error of that proof."""
        self._wait_for_proof()
        if self._clock() - self.taken_at > SILENCE_FRESH_SECONDS:
            self.start_proof(0)
            self._wait_for_proof()

    def cancel_proof(self) -> None:
        """Start no new proof; wait for the one in progress."""
        self._dropped = True
        self._at_once.set()
        if self._taking is not None:
            concurrent.futures.wait([self._taking])
            self._taking = None

    def _wait_for_proof(self) -> None:
        taking, self._taking = self._taking, None
        self._at_once.set()
        if taking is not None:
            taking.result()

    def _prove_after(self, delay_seconds: float) -> None:
        self._at_once.wait(delay_seconds)
        if not self._dropped:
            self._take()
            self.taken_at = self._clock()
