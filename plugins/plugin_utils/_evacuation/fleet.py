# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What all other hosts answered when they were asked for their domains, and which of them are silent."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

from .._ledger.places import same_host
from .._ledger.store import Body
from .._settings import Settings, port_of
from .shape import has_places
from .source import Source

SSH_PORT = 22
_SAVED = " (at its saved address)"


def uris_of(settings: Settings, entries: Iterable[Body], here: str, source: Source) -> dict[str, str]:
    """Return how every other host of the fleet is asked, the source included; by the inventory, else by the address that was saved."""
    saved = {entry["name"]: str((entry.get("addresses") or {}).get("libvirt_uri") or "") for entry in entries}
    names = [name for name in dict.fromkeys([*settings.fleet(), *saved]) if name != here]
    uris = {name: settings.libvirt_uri(name, here) if settings.is_known(name) else saved.get(name, "") for name in names}
    own = saved.get(source.name)
    if own and own != uris.get(source.name):
        uris[source.name + _SAVED] = own
    return uris


def doors_of(settings: Settings, source: Source) -> list[Body]:
    """Return the addresses and ports at which the source would answer SSH: those of the inventory and those that were saved."""
    saved = source.entry.get("addresses") or {}
    doors = []
    if saved.get("ansible_host"):
        port = port_of(saved.get("ssh_port") or SSH_PORT, f"The SSH port of {source.name} in the ledger")
        doors.append({"address": str(saved["ansible_host"]), "port": port})
    if settings.is_known(source.name) or not doors:
        port = port_of(settings.of(source.name, "ansible_port", SSH_PORT), f"ansible_port of {source.name}")
        doors.append({"address": str(settings.of(source.name, "ansible_host", source.name)), "port": port})
    return [door for number, door in enumerate(doors) if door not in doors[:number]]


class SourceAnswers(Unsafe):
    """The host that is to be evacuated is not dead."""


@dataclass(frozen=True)
class Fleet:
    """The answers of one moment. A host has answered under its own identity only, wherever its address leads.

    :arg here: the host that asked, as a place, with C(domains) by UUID.
    :arg answers: of the others, by the name under which they were asked.
    :arg entries: the ledger's, for their host IDs.
    :arg host_ids: by name, what a host's facts say of its host ID, where they have the UUID that answered. An answer mostly has the ID itself.
    :arg listed: names of the inventory.
    """

    source: Source
    here: Body
    own_domains: Mapping[str, Body]
    answers: Mapping[str, Body]
    entries: Sequence[Body]
    host_ids: Mapping[str, str] = field(default_factory=dict)
    listed: t.Collection[str] = ()

    def check_source_is_silent(self) -> None:
        """Raise L(Unsafe) where any answering host is the source, or where the source's address leads to another one."""
        for name in self.answering:
            if self._is_source_itself(name):
                raise SourceAnswers(
                    f"{self.source.name} answers: libvirt there was asked from {self.here['host']} as {name}. A host that answers is never evacuated.",
                    "Nothing was started. Drain it (kvmfleet.migration.drain_host), or switch it off.",
                )
            if self._is_source(name):
                raise SourceAnswers(
                    f"The address of {self.source.name} leads to {self._described(name)}, asked from {self.here['host']}: that {self.source.name} is silent"
                    " cannot be told there.",
                    "Nothing was started. Correct its address (ansible_host, kvmfleet_libvirt_uri), or take that address from the other host, and run the task"
                    " again.",
                )

    def silent_places(self, places: Iterable[Body]) -> list[Body]:
        """Return the hosts among these that did not answer, the source aside: they need evidence of their own."""
        found: list[Body] = []
        for where in places:
            if not self.answered(where) and not any(same_host(where, other) for other in [self.source.place, *found]):
                found.append(where)
        return found

    def check_silent(self, accepted: Sequence[str], places: Sequence[Body]) -> list[str]:
        """Return the silent hosts that are accepted.

        Raises L(Unsafe) for another, L(InvalidArgument) for a name that nobody knows.

        :arg places: silent hosts for which evidence is asked instead.
        """
        strange = [name for name in accepted if name not in self.answers]
        if strange:
            raise InvalidArgument(f"accept_silent names {', '.join(strange)}, of which neither inventory nor ledger knows.", "Nothing was started.")
        silent = {name: why for name in self.answers if not self._is_source(name) and (why := self._why_silent(name))}
        asked = {where.get("host") for where in places} | {entry["name"] for entry in self.entries if any(same_host(_place(entry), where) for where in places)}
        refused = {name: why for name, why in silent.items() if name not in accepted and name not in asked}
        if refused:
            raise Unsafe(
                f"{', '.join(refused)} did not answer, and a domain of {self.source.name} could run there: {' '.join(refused.values())}",
                f"Nothing was started. When it is certain that none does, accept their silence by name: accept_silent: [{', '.join(refused)}].",
            )
        return sorted(name for name in silent if name in accepted)

    @property
    def answering(self) -> list[str]:
        """Names of the other hosts that answered."""
        return [name for name, answer in self.answers.items() if answer["answered"]]

    def active_on(self, uuid: str) -> list[str]:
        """Return the names of the other hosts where the domain is active."""
        return [name for name in self.answering if self.answers[name]["domains"].get(uuid, {}).get("active")]

    def has(self, uuid: str) -> bool:
        """Whether any host that answered knows the domain."""
        return uuid in self.own_domains or any(uuid in self.answers[name]["domains"] for name in self.answering)

    def answered(self, where: Body) -> bool:
        """Whether that host is among those that answered."""
        return any(same_host(where, there) for there in self._places)

    def is_active_at(self, uuid: str, where: Body) -> bool:
        """Whether the domain is active on that host, as it answered."""
        if same_host(self.here, where):
            return bool(self.own_domains.get(uuid, {}).get("active"))
        return any(same_host(self._place(name), where) for name in self.active_on(uuid))

    @property
    def _places(self) -> list[Body]:
        return [self.here, *map(self._place, self.answering)]

    def _place(self, name: str) -> Body:
        """Return the host that answered when this one was asked."""
        entry, answer = self._entry_of(name), self.answers[name]
        return place(entry["name"] if entry else name, entry.get("host_id") if entry else answer.get("host_id"), answer["host_uuid"])

    def _entry_of(self, name: str) -> t.Optional[Body]:
        """Return the ledger's entry of the host that answered when this one was asked."""
        host_id, uuid = self.answers[name].get("host_id") or self.host_ids.get(name), self.answers[name]["host_uuid"]
        if host_id:
            return next((entry for entry in self.entries if entry.get("host_id") == host_id), None)
        same = [entry for entry in self.entries if entry.get("host_uuid") == uuid]
        # Boards with one UUID for all exist: then the name has to tell them apart.
        return next((entry for entry in same if entry["name"] == name), same[0] if same else None)

    def _why_silent(self, name: str) -> str:
        """Return why the host has not answered; empty where it has, under this name or another."""
        if not self.answers[name]["answered"]:
            return str(self.answers[name]["msg"])
        who, own = self._entry_of(name), [entry for entry in self.entries if entry["name"] == name]
        if own and not any(self.answered(_place(entry)) for entry in own):
            hint = "" if who else f" If it is {name} all the same, gather its facts or protect it; host_uuid in the daemon's settings keeps its UUID."
            return f"The address of {name} leads to {self._described(name)}; the UUID of {name} is {own[0].get('host_uuid')}.{hint}"
        if not own and who and (who["name"] in self.listed or same_host(_place(who), self.here)):
            return f"The address of {name} leads to {self._described(name)}, and the ledger does not know {name}."
        return ""

    def _described(self, name: str) -> str:
        who = self._entry_of(name)
        return f"{who['name'] if who else 'a host'} with the UUID {self.answers[name]['host_uuid']}"

    def _is_source_itself(self, name: str) -> bool:
        """Whether the source answered, or a host of which no more is known than that it has the source's UUID."""
        if self._entry_of(name) is None and self.answers[name]["host_uuid"] == self.source.entry.get("host_uuid"):
            return True
        return same_host(self._place(name), self.source.place)

    def _is_source(self, name: str) -> bool:
        return name in (self.source.name, self.source.name + _SAVED)

    def unaccounted(self, documents: Iterable[Body], held: t.Collection[str]) -> list[Body]:
        """Return the domains that records place on hosts that answered, and that none of these has."""
        found = []
        for document in documents:
            places = document["possible_hosts"] if has_places(document) else []
            if document["uuid"] in held or not places or self.has(document["uuid"]) or not all(self.answered(where) for where in places):
                continue
            found.append({"uuid": document["uuid"], "name": document["name"], "hosts": [where.get("host") for where in places]})
        return found


def _place(entry: Body) -> Body:
    return place(entry["name"], entry.get("host_id"), entry.get("host_uuid"))
