# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Evidence that a dead host, and every other silent one that a domain may be on, is off: taken, and asked for again before each start."""

from __future__ import annotations

import datetime
import math
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.knock import HEARD, REFUSED, UNKNOWN, knock, knock_at_all
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import may_be_host

from .._fencing.agent import Power
from .._fencing.config import MAX_SECONDS, VARIABLE, Fencing, parse_fencing
from .._fencing.evidence import FENCE_AGENT, Evidence, agent_evidence, check_evidence, person_evidence
from .._fencing.fence import ask_power, confirm, fence
from .._ledger.store import Body
from .._settings import Settings
from .fleet import SourceAnswers, doors_of
from .source import Source

Knock = Callable[[str, int], str]


@dataclass
class Proofs:
    """What is known of hosts that are off.

    :arg entries: the ledger's hosts, which evidence may be about.
    """

    settings: Settings
    source: Source
    entries: Sequence[Body]
    by: str
    knock: Knock = knock
    warnings: list[str] = field(default_factory=list)
    documents: list[Evidence] = field(default_factory=list)

    def check_silence(self) -> Body:
        """Return what the source's doors say to the control node. Raises L(Unsafe) where one answers."""
        doors = knock_at_all(doors_of(self.settings, self.source), self.knock)
        self.check_doors(doors, "the control node")
        return {"kind": "silence", "host": self.source.name, "from": "control node", "doors": doors, "at": utc_now()}

    def check_doors(self, doors: Iterable[Body], asked_from: str) -> None:
        """Raise L(Unsafe) where the source's SSH port accepts or refuses a connection; an address that leads nowhere is a warning."""
        for door in doors:
            if door["says"] in HEARD:
                raise self._heard(door, asked_from)
            if door["says"] == UNKNOWN:
                self._warn(f"The address {door['address']} of {self.source.name} leads nowhere, asked from {asked_from}: that it is silent there says little.")

    def _heard(self, door: Body, asked_from: str) -> SourceAnswers:
        """Return the refusal for a door that answered. Who answered cannot be told from outside; the address has to fall silent first."""
        at = f"{door['address']} port {door['port']}"
        if door["says"] == REFUSED:
            what = f"{at}, the address of {self.source.name}, refuses connections from {asked_from}: something there is on."
        else:
            what = f"{self.source.name} answers {asked_from} at {at}."
        return SourceAnswers(
            f"{what} A host that answers is never evacuated.",
            f"Nothing was started. If {self.source.name} is on, drain it (kvmfleet.migration.drain_host), or switch it off. If another machine has its address"
            " now, take it from that machine until this is done; if a firewall refuses connections in its place, let it drop them.",
        )

    def take(self, given: t.Optional[Sequence[t.Any]], force_down: t.Optional[Mapping[str, t.Any]], others: Iterable[Body], may_fence: bool) -> None:
        """Take the evidence that was given, else fence the source.

        :arg others: further silent hosts that the domains may be on. Their agents are asked whether they are off; they are never switched off.

        Raises L(Unsafe) for evidence that does not count, or where there is none; what L(fence) raises; L(InvalidArgument) for two kinds at once.
        """
        if given and force_down:
            raise InvalidArgument("Both fencing and force_down are given.", "Give one of them. Nothing was started.")
        self.documents = [self._checked(one) for one in given or ()]
        if force_down:
            word = {key: value for key, value in force_down.items() if value is not None}
            self.documents.append(person_evidence(word, self.source.name, self.source.host_id, self.by))
        self.documents += [evidence for evidence in map(self._told_of, others) if evidence]
        if self.of_source is None and may_fence:
            self.documents.append(self._fenced())

    def confirm(self) -> list[Evidence]:
        """Ask every agent again. Raises L(Unsafe) or L(Unreachable) where a host is not certainly off any more."""
        now = datetime.datetime.now(datetime.UTC)
        self.documents = [confirm(one, self._config(one["host"]), now) for one in self.documents]
        return self.documents

    def outlast(self, seconds: float) -> None:
        """Let the evidence outlast a wait that this task has chosen: agents are asked again, and what nobody can be asked about counts for so much longer.

        Raises what L(confirm) does.
        """
        for one in self.documents:
            if one["kind"] != FENCE_AGENT:
                one["ttl_seconds"] = min(MAX_SECONDS, one["ttl_seconds"] + math.ceil(seconds))
        self.confirm()

    def covers(self, where: Body) -> bool:
        """Whether that host is off by evidence."""
        # A record of before its host had an ID has the libvirt UUID of then, which may be another one now.
        return any(may_be_host(where, {"host": one["host"], "host_id": one["host_id"], "host_uuid": self._uuid_of(one["host_id"])}) for one in self.documents)

    @property
    def of_source(self) -> t.Optional[Evidence]:
        """The evidence about the source."""
        return next((one for one in self.documents if one["host_id"] == self.source.host_id), None)

    @property
    def would_fence(self) -> bool:
        """Whether there is an agent that could switch the source off."""
        return self._config(self.source.name) is not None

    def _checked(self, given: t.Any) -> Evidence:
        entry = self._entry_of(given)
        config = self._config(entry["name"])
        return check_evidence(given, entry["name"], entry["host_id"], self.by, datetime.datetime.now(datetime.UTC), config.secrets() if config else ())

    def _entry_of(self, given: t.Any) -> Body:
        """Return the host that evidence is about: the source, or another one of the ledger that may have the domains too."""
        named = given.get("host") if isinstance(given, Mapping) else None
        return next((entry for entry in self.entries if entry["name"] == named and entry.get("host_id")), self.source.entry)

    def _fenced(self) -> Evidence:
        config = self._config(self.source.name)
        if config is None:
            raise Unsafe(
                f"There is no evidence that {self.source.name} is off: it has no {VARIABLE}, and neither fencing nor force_down was given.",
                f"Nothing was started. Name its fence agent in {VARIABLE}; or give fencing, from a tasks file of your own; or, when a person has seen that"
                " it is off, force_down with a reason.",
            )
        return fence(config, self.source.host_id, self.by)

    def _told_of(self, where: Body) -> t.Optional[Evidence]:
        """Return what the agent of another host says, if it has one and says that it is off; its silence is proved beside it by the fleet's answers."""
        entry = next((entry for entry in self.entries if where.get("host_id") and entry.get("host_id") == where["host_id"]), None)
        config = self._config(entry["name"]) if entry and not self.covers(where) else None
        if entry is None or config is None:
            return None
        reply = ask_power(config)
        if reply.power is Power.OFF:
            return agent_evidence(config, entry["host_id"], reply, self.by)
        raise Unsafe(
            f"A domain of {self.source.name} may be on {entry['name']} as well, which is silent, and {config.agent} does not say that it is off: {reply}.",
            f"Nothing was started. Evacuate {entry['name']} first, or give evidence about it in fencing.",
        )

    def _config(self, host: str) -> t.Optional[Fencing]:
        return parse_fencing(self.settings.of(host, VARIABLE), host)

    def _uuid_of(self, host_id: t.Optional[str]) -> t.Optional[str]:
        return next((entry.get("host_uuid") for entry in self.entries if host_id and entry.get("host_id") == host_id), None)

    def _warn(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)
