# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Evidence for an evacuation, as records keep it. The origin states whether a fence agent, a watchdog, a tasks file or a person provided it."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject

# A fence agent of the inventory; the watchdog of the host itself; a tasks file of the operator's own; a person.
AGENT, WATCHDOG, TASKS, PERSON = "fence_agent", "watchdog", "tasks", "person"
ORIGINS = (AGENT, WATCHDOG, TASKS, PERSON)
# What a watchdog does. The host may have started again since, but nothing that ran on it before.
RESET = "reset"
ACCEPTED_SILENCE = "accepted_silence"
SILENCE = "silence"


# No device could switch the host off, and a person has to choose what is done.
FENCING_IMPOSSIBLE = "fencing_impossible"


@dataclass(frozen=True)
class FenceAttempt:
    """What one device of a host did when the host was to be switched off.

    :arg level: the number of its level, from 1.
    :arg device: the number of the device in its level, from 1.
    :arg agent: the program that was called.
    :arg action: C(off), or C(status) if the device reported the host as off before.
    :arg power: what the device reported last: C(on), C(off) or C(unknown).
    :arg output: what the agent printed last, without secrets.
    :arg at: when the attempt ended.
    """

    level: int
    device: int
    agent: str
    action: str
    power: str
    output: str
    at: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """A host is off, or was reset by its watchdog.

    :arg origin: AGENT, WATCHDOG, TASKS or PERSON.
    :arg agent: the program that was called.
    :arg action: C(off), or C(status) if the host was already off; C(reset) for a watchdog.
    :arg output: what the agent printed, without secrets; for a watchdog, what its leases have shown.
    :arg ttl_seconds: how long the evidence is valid from C(at) on.
    :arg reason: how the person knows this.
    :arg level: the number of the level whose devices report it, for a host with several levels of devices.
    :arg attempts: of all devices that were called, in order.
    :arg lease_revision: of the last lease of a host that its watchdog has reset. A later one shows that the host is on again.
    """

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"origin": "kind"}
    origin: str
    host: str
    host_id: t.Optional[str]
    agent: t.Optional[str]
    action: str
    status: str
    output: str
    at: str
    by: str
    ttl_seconds: int
    reason: t.Optional[str]
    level: t.Union[int, Absent] = ABSENT
    attempts: t.Union[t.Tuple[FenceAttempt, ...], Absent] = ABSENT
    lease_revision: t.Union[int, Absent] = ABSENT

    @property
    def is_of_agent(self) -> bool:
        """Whether the evidence is from an agent, which can be called again."""
        return self.origin == AGENT

    @property
    def is_of_watchdog(self) -> bool:
        """Whether the evidence is from leases, which can be read again."""
        return self.origin == WATCHDOG

    @property
    def is_of_person(self) -> bool:
        """Whether it is from a person."""
        return self.origin == PERSON


@dataclass(frozen=True)
class AcceptedSilence:
    """A person accepts that these hosts do not answer.

    :arg origin: ACCEPTED_SILENCE.
    """

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"origin": "kind"}
    origin: str
    hosts: t.Tuple[str, ...]
    by: str
    at: str


@dataclass(frozen=True)
class SshEndpoint:
    """An address and a port at which a host would answer.

    :arg says: the answer, see L(probe_ssh).
    """

    address: str
    port: int
    says: t.Union[str, Absent] = ABSENT


@dataclass(frozen=True)
class SourceSilence:
    """A dead host does not answer.

    :arg origin: SILENCE.
    :arg asked_from: the host that tried to connect.
    """

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"origin": "kind", "asked_from": "from"}
    origin: str
    host: str
    asked_from: str
    doors: t.Tuple[SshEndpoint, ...]
    at: str


def accept_silence(hosts: t.Sequence[str], by: str, at: str) -> AcceptedSilence:
    """Return the evidence that a person accepts that these hosts do not answer."""
    return AcceptedSilence(ACCEPTED_SILENCE, tuple(hosts), by, at)
