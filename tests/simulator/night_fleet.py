# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of simulated nights, their guests and their fence agents. They know nothing of the run, and judge what is done to them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState

HOST_CAPACITY = 16
# How the agent of a host behaves: it does what it is told; it reports success and does nothing; it reports an error; it answers nothing until its limit;
# it switches the host off and cannot switch it on.
AGENTS = (IS_HONEST, LIES, FAILS, HANGS, CANNOT_SWITCH_ON) = ("honest", "lies", "fails", "hangs", "cannot switch on")
# How long an agent that hangs is waited for.
AGENT_LIMIT_SECONDS = 120


@dataclass
class Fleet:
    """Hosts and their guests, and what was seen of them.

    :arg load: the guests of each host; a host that is out of service has none.
    :arg down: hosts that are out of service.
    :arg boots: the number of the boot of each host that was rebooted.
    :arg gone: hosts that do not come back: they do not answer, although they have power.
    :arg off: hosts without power.
    :arg strangers: hosts on which a guest was, or may be, started after they were drained.
    :arg reboots: how often each host that answered was rebooted.
    :arg cuts: how often each host was told to switch off since a person has looked at it last.
    :arg violations: what must never be; C(wrong_fences) is the same of fences.
    """

    load: dict[str, int]
    max_unavailable: int
    down: set[str] = field(default_factory=set)
    boots: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    off: set[str] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)
    reboots: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    most_down: int = 0
    violations: list[str] = field(default_factory=list)
    wrong_fences: list[str] = field(default_factory=list)

    def free(self, without: t.Collection[str]) -> int:
        """Return the room on all hosts in service but these."""
        return sum(HOST_CAPACITY - guests for host, guests in self.load.items() if host not in self.down and host not in without)

    def can_lose_one_more(self, host: str) -> bool:
        """Whether the guests of the host have room, and those of any one other host as well after that."""
        others = [one for one in self.load if one != host and one not in self.down]
        own = self.load[host]
        return own <= self.free({host}) and all(own + self.load[one] <= self.free({host, one}) for one in others)

    def drain(self, host: str) -> None:
        """Move the guests of the host to others, as evenly as it goes, and take it out of service."""
        self.strangers.discard(host)
        if host in self.down:
            return
        if not self.can_lose_one_more(host):
            self.violations.append(f"{host} was drained, and the fleet could not lose one more")
        guests, self.load[host] = self.load[host], 0
        self.down.add(host)
        for _guest in range(guests):
            emptiest = min((one for one in self.load if one not in self.down), key=lambda one: self.load[one])
            self.load[emptiest] += 1
        self.most_down = max(self.most_down, len(self.down))
        if len(self.down) > self.max_unavailable:
            self.violations.append(f"{', '.join(sorted(self.down))} were out of service together")

    def recover(self, host: str) -> None:
        """Return the host to service."""
        if not self.answers(host):
            self.violations.append(f"{host} was returned to service, and does not answer")
        self.down.discard(host)

    # -- power -------------------------------------------------------------------------------------------------------

    def answers(self, host: str) -> bool:
        """Whether the host can be reached."""
        return host not in self.gone and host not in self.off

    def boot(self, host: str) -> str:
        """Return the boot of the host."""
        return str(self.boots.get(host, 0))

    def reboot(self, host: str) -> None:
        """Let the host reboot itself."""
        self.reboots[host] = self.reboots.get(host, 0) + 1
        self._judge_end_of_boot(host, self.violations)
        self.boots[host] = self.boots.get(host, 0) + 1

    def vanish(self, host: str, hangs_in_shutdown: bool) -> None:
        """Let the host be told to reboot, and not come back: it hangs before the end of its boot, or in the next one."""
        if not hangs_in_shutdown:
            self.reboot(host)
        self.gone.add(host)

    def power(self, host: str, agent: str) -> PowerState:
        """Return what the agent of the host reports."""
        if agent in (FAILS, HANGS):
            return PowerState.UNKNOWN
        return PowerState.OFF if host in self.off else PowerState.ON

    def switch_off(self, host: str, agent: str) -> PowerState:
        """Have the agent switch the host off, and return the power that it reports then."""
        self.cuts[host] = self.cuts.get(host, 0) + 1
        if self.load[host] or host in self.strangers or host not in self.down:
            self.wrong_fences.append(f"{host} was fenced, and a guest ran there or could be placed there")
        runs_old_boot = self.answers(host) and not self.boots.get(host)
        if self.cuts[host] > 1 and not runs_old_boot:
            self.wrong_fences.append(f"{host} was fenced again, and nobody had looked at it")
        if agent == LIES:
            return PowerState.OFF
        if agent in (IS_HONEST, CANNOT_SWITCH_ON):
            if self.answers(host):
                self._judge_end_of_boot(host, self.wrong_fences)
            self.off.add(host)
        return self.power(host, agent)

    def switch_on(self, host: str, agent: str) -> PowerState:
        """Have the agent switch the host on, and return the power that it reports then."""
        if agent == LIES:
            return PowerState.ON
        if agent == IS_HONEST and host in self.off:
            self.repair(host)
        return self.power(host, agent)

    def repair(self, host: str) -> None:
        """Start a host that is off or hangs, as its agent or a person does it."""
        self.off.discard(host)
        self.gone.discard(host)
        self.boots[host] = self.boots.get(host, 0) + 1

    def _judge_end_of_boot(self, host: str, violations: list[str]) -> None:
        """A host that came back in another boot has been rebooted, and is not rebooted again."""
        if self.boots.get(host, 0):
            violations.append(f"{host} was rebooted again, and had come back")
