# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The answers of all other hosts about their domains, which hosts are silent, and the addresses at which hosts are queried."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SourceSilence, SshEndpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostAnswer, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import FENCED

from .._ledger.documents import DomainEntry, HostEntry
from .._ledger.unreadable_hosts import UnreadableHost
from .._settings.variables import SECOND_ADDRESS, Settings, read_port
from .silent_hosts import SilentHosts
from .source import Source

SSH_PORT = 22
_SAVED_ADDRESS = " (at its saved address)"


def list_libvirt_uris(settings: Settings, entries: Iterable[HostEntry], querying_host: str, source: Source) -> dict[str, str]:
    """Return the URIs of all other hosts of the fleet, the source included: from the inventory, or else the saved address."""
    saved = {entry.name: str((entry.addresses or {}).get("libvirt_uri") or "") for entry in entries}
    names = [name for name in dict.fromkeys([*settings.fleet(), *saved]) if name != querying_host]
    uris = {name: settings.libvirt_uri(name, querying_host) if settings.is_known(name) else saved.get(name, "") for name in names}
    own = saved.get(source.name)
    if own and own != uris.get(source.name):
        uris[source.name + _SAVED_ADDRESS] = own
    return uris


def list_dead_names(source: Source, entries: Iterable[HostEntry], uris: Mapping[str, str]) -> list[str]:
    """Return the names in L(list_libvirt_uris) that stand for the dead host, or for a host that was fenced earlier."""
    dead = {source.name, source.name + _SAVED_ADDRESS, *(entry.name for entry in entries if entry.state == FENCED)}
    return [name for name in uris if name in dead]


def list_ssh_endpoints(settings: Settings, source: Source) -> list[SshEndpoint]:
    """Return the addresses and ports at which the source would answer SSH: those of the inventory and those that were saved."""
    saved = source.entry.addresses or {}
    endpoints = []
    if saved.get("ansible_host"):
        port = read_port(saved.get("ssh_port") or SSH_PORT, f"The SSH port of {source.name} in the ledger")
        endpoints.append(SshEndpoint(str(saved["ansible_host"]), port))
    if settings.is_known(source.name) or not endpoints:
        port = read_port(settings.of(source.name, "ansible_port", SSH_PORT), f"ansible_port of {source.name}")
        endpoints.append(SshEndpoint(str(settings.of(source.name, "ansible_host", source.name)), port))
    return [endpoint for number, endpoint in enumerate(endpoints) if endpoint not in endpoints[:number]]


def list_second_endpoints(settings: Settings, source: Source) -> list[SshEndpoint]:
    """Return where the source would answer SSH on its second network, if that is none of L(list_ssh_endpoints).

    A host that only its management network has lost answers there. Whoever confirms that a host is off may know it by its first address alone.
    """
    address = settings.of(source.name, SECOND_ADDRESS) if settings.is_known(source.name) else None
    if not address:
        return []
    port = read_port(settings.of(source.name, "ansible_port", SSH_PORT), f"ansible_port of {source.name}")
    # As for leases, an IPv6 address may be in brackets.
    endpoint = SshEndpoint(str(address).strip("[]"), port)
    return [] if endpoint in list_ssh_endpoints(settings, source) else [endpoint]


class SourceAnswers(Unsafe):
    """The host that is to be evacuated is not dead."""


@dataclass(frozen=True)
class LockState:
    """What a survivor knows about the lock on an image.

    :arg state: see C(qemu_locks).
    :arg why: why the lock cannot be proved.
    """

    state: str
    why: t.Union[str, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class SurvivorView:
    """What a survivor sees: the answer of the phase C(look).

    :arg at: when the answer was complete, on the clock of the survivor.
    :arg facts: C(kvmfleet_host) of the survivor.
    :arg fleet: the answers of the other hosts, by name.
    :arg doors: the answers of the addresses and ports of the source.
    :arg locks: by path of the image.
    :arg unseen: by UUID, why the survivor does not see a disk or file of the domain now.
    :arg cpu: libvirt's verdicts on the CPUs of the domains, by UUID.
    """

    at: BootMoment
    facts: JsonObject
    fleet: Mapping[str, HostAnswer]
    doors: tuple[SshEndpoint, ...]
    locks: Mapping[str, LockState]
    unseen: Mapping[str, Mapping[str, str]]
    cpu: Mapping[str, t.Optional[JsonObject]]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class FirstRound:
    """What was asked side by side before anything was judged. It was asked while the facts of the survivors were gathered.

    :arg host: the survivor that was asked.
    :arg question: the digest of what it was asked, see L(digest_question).
    :arg moment: when everything had been answered.
    :arg seen: what it sees.
    :arg silence: the silence of the source, also to Ansible.
    :arg silent_moment: when the source was found silent; the survivor may have taken much longer.
    :arg facts_warnings: those of the facts of the survivor.
    :arg power: the power state of the source, null if its agent was not asked.
    :arg lease_revision: of the lease of the source when the round began; null if none was read.
    """

    host: str
    question: str
    moment: BootMoment
    seen: SurvivorView
    silence: SourceSilence
    silent_moment: BootMoment
    facts_warnings: tuple[str, ...]
    power: t.Optional[JsonObject] = None
    lease_revision: t.Optional[int] = None
    extra: JsonObject = field(default_factory=dict)

    def is_answer_to(self, host: str, question: str, now: BootMoment, max_seconds: float) -> bool:
        """Whether this host was asked exactly this, not longer ago than that."""
        age = now.seconds_since(self.moment)
        return self.host == host and self.question == question and age is not None and 0 <= age <= max_seconds


def digest_question(source: Source, question: JsonObject) -> str:
    """Return a digest of the source and the question: another answer is needed if the ledger or the inventory have changed meanwhile."""
    text = json.dumps([source.name, source.host_id, encode(question)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class UnaccountedDomain:
    """A domain that should be on hosts that answer, and is on none of them."""

    uuid: str
    name: t.Optional[str]
    hosts: tuple[t.Optional[str], ...]


@dataclass(frozen=True)
class FoundLocks:
    """The answer of the phase C(locks)."""

    locks: Mapping[str, LockState]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class FleetAnswers:
    """The answers of one query. An answer counts for the identity that answered, whatever address was used.

    :arg destination: the host that made the query.
    :arg own_domains: the domains there, by UUID.
    :arg answers: of the others, by the name under which they were queried.
    :arg entries: the ledger's, for their host IDs.
    :arg host_ids: by name, the host ID in a host's facts, if they have the UUID that answered. Most answers contain the ID.
    :arg listed: names of the inventory.
    :arg unreadable: the other hosts whose document cannot be read: the ledger alone may have had their names and addresses.
    """

    source: Source
    destination: HostRef
    own_domains: Mapping[str, DomainFacts]
    answers: Mapping[str, HostAnswer]
    entries: Sequence[HostEntry]
    host_ids: Mapping[str, str] = field(default_factory=dict)
    listed: t.Collection[str] = ()
    unreadable: Sequence[UnreadableHost] = ()

    def check_source_is_silent(self) -> None:
        """Raise L(Unsafe) if any answering host is the source, or if the source's address leads to another host."""
        for name in self.answering_hosts:
            if self._is_source_itself(name):
                raise SourceAnswers(
                    f"{self.source.name} answers: libvirt there was queried from {self.destination.host} as {name}. A host that answers is never evacuated.",
                    "Nothing was started. Drain it (kvmfleet.migration.drain_host), or switch it off.",
                )
            if self._is_source(name):
                raise SourceAnswers(
                    f"The address of {self.source.name} leads to {self._describe_answer(name)}, queried from {self.destination.host}:"
                    f" whether {self.source.name} is silent cannot be determined there.",
                    "Nothing was started. Correct its address (ansible_host, kvmfleet_libvirt_uri), or take that address from the other host, and run the task"
                    " again.",
                )

    def list_silent_hosts(self, places: Iterable[HostRef]) -> list[HostRef]:
        """Return the hosts among these that did not answer, except for the source: they need evidence of their own."""
        found: list[HostRef] = []
        for where in places:
            if not self.has_answered(where) and not any(where.is_same(other) for other in [self.source.host_ref, *found]):
                found.append(where)
        return found

    def find_silent_hosts(self, accepted: Sequence[str]) -> SilentHosts:
        """Return the hosts that did not answer, except for the source. Raises L(InvalidArgument) for an unknown name.

        :arg accepted: names of hosts whose silence a person accepts; of one whose document cannot be read, its key.
        """
        unknown = {one.host_key: one.why_not_asked for one in self.unreadable if not self._has_heard(one)}
        strange = [name for name in accepted if name not in self.answers and name not in unknown]
        if strange:
            raise InvalidArgument(f"accept_silent names {', '.join(strange)}, which are neither in the inventory nor in the ledger.", "Nothing was started.")
        why = {name: why for name in self.answers if not self._is_source(name) and (why := self._why_silent(name))}
        return SilentHosts(self.source.name, {**why, **unknown}, accepted, self.entries)

    def _has_heard(self, unreadable: UnreadableHost) -> bool:
        """Whether a host whose document cannot be read has answered, by its own ID or the UUID of its libvirt."""
        answers = ((name, self.answers[name]) for name in self.answering_hosts)
        return any(unreadable.is_host(HostRef(name, answer.host_id or self.host_ids.get(name), answer.host_uuid or None)) for name, answer in answers)

    @property
    def answering_hosts(self) -> list[str]:
        """Names of the other hosts that answered."""
        return [name for name, answer in self.answers.items() if answer.answered]

    def active_on(self, uuid: str) -> list[str]:
        """Return the names of the other hosts where the domain is active."""
        return [name for name in self.answering_hosts if (found := self.answers[name].find_domain(uuid)) and found.active]

    def off_on(self, uuid: str) -> list[str]:
        """Return the names of the other hosts where the domain is defined and off."""
        return [name for name in self.answering_hosts if (found := self.answers[name].find_domain(uuid)) and not found.active]

    def has_domain(self, uuid: str) -> bool:
        """Whether any host that answered has the domain."""
        return uuid in self.own_domains or any(self.answers[name].find_domain(uuid) for name in self.answering_hosts)

    def has_answered(self, where: HostRef) -> bool:
        """Whether that host is among those that answered."""
        return any(where.is_same(there) for there in self._answering_refs)

    def is_active_at(self, uuid: str, where: HostRef) -> bool:
        """Whether the domain is active on that host, as it answered."""
        if self.destination.is_same(where):
            own = self.own_domains.get(uuid)
            return own is not None and own.active
        return any(self._ref_of_answer(name).is_same(where) for name in self.active_on(uuid))

    def has_domain_at(self, uuid: str, where: HostRef) -> bool:
        """Whether that host has the domain, active or not, as it answered."""
        if self.destination.is_same(where):
            return uuid in self.own_domains
        return any(self._ref_of_answer(name).is_same(where) for name in self.answering_hosts if self.answers[name].find_domain(uuid))

    @property
    def _answering_refs(self) -> list[HostRef]:
        return [self.destination, *map(self._ref_of_answer, self.answering_hosts)]

    def _ref_of_answer(self, name: str) -> HostRef:
        """Return the host that answered under this name."""
        entry, answer = self._find_entry(name), self.answers[name]
        return HostRef(entry.name if entry else name, entry.host_id if entry else answer.host_id or None, answer.host_uuid or None)

    def _find_entry(self, name: str) -> t.Optional[HostEntry]:
        """Return the ledger's entry of the host that answered under this name."""
        answer = self.answers[name]
        host_id, uuid = answer.host_id or self.host_ids.get(name), answer.host_uuid or None
        if host_id:
            return next((entry for entry in self.entries if entry.host_id == host_id), None)
        same = [entry for entry in self.entries if entry.host_uuid == uuid]
        # Some boards share one UUID: then the name distinguishes the hosts.
        return next((entry for entry in same if entry.name == name), same[0] if same else None)

    def _why_silent(self, name: str) -> str:
        """Return why the host has not answered; empty if it has, under this name or another."""
        if not self.answers[name].answered:
            return self.answers[name].msg or f"{name} did not answer."
        who, own = self._find_entry(name), [entry for entry in self.entries if entry.name == name]
        if own and not any(self.has_answered(entry.host_ref) for entry in own):
            hint = "" if who else f" If it is {name} nevertheless, gather its facts or protect it; host_uuid in the daemon's settings keeps its UUID."
            return f"The address of {name} leads to {self._describe_answer(name)}; the UUID of {name} is {own[0].host_uuid}.{hint}"
        if not own and who and (who.name in self.listed or who.host_ref.is_same(self.destination)):
            return f"The address of {name} leads to {self._describe_answer(name)}, and the ledger does not know {name}."
        return ""

    def _describe_answer(self, name: str) -> str:
        who = self._find_entry(name)
        return f"{who.name if who else 'a host'} with the UUID {self.answers[name].host_uuid or None}"

    def _is_source_itself(self, name: str) -> bool:
        """Whether the source answered, or a host that is only known to have the source's UUID."""
        if self._find_entry(name) is None and self.answers[name].host_uuid == self.source.entry.host_uuid:
            return True
        return self._ref_of_answer(name).is_same(self.source.host_ref)

    def _is_source(self, name: str) -> bool:
        return name in (self.source.name, self.source.name + _SAVED_ADDRESS)

    def list_unaccounted(self, domains: Iterable[DomainEntry], held: t.Collection[str]) -> list[UnaccountedDomain]:
        """Return the domains that records place on hosts that answered, and that none of these has."""
        found = []
        for domain in domains:
            hosts = domain.possible_hosts
            if domain.uuid in held or domain.is_missing or not hosts or self.has_domain(domain.uuid) or not all(self.has_answered(host) for host in hosts):
                continue
            found.append(UnaccountedDomain(domain.uuid, domain.name, tuple(host.host for host in hosts)))
        return found
