# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is seen of the whole fleet at one moment, and what two such looks in a row prove. Nothing here asks the product."""

from __future__ import annotations

import dataclasses
import typing as t

RUNNING = "running"


@dataclasses.dataclass(frozen=True)
class Place:
    """A guest as a host's libvirt has it: state and reason in words, e.g. C(paused) and C(post-copy)."""

    state: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Host:
    """:arg power: whether it is on.

    :arg guests: what its libvirt says; none where that does not answer.
    :arg processes: the guests of which it runs a QEMU; none where nobody could look.
    """

    power: bool
    guests: t.Mapping[str, Place] | None
    processes: t.Mapping[str, int] | None

    def executes(self, guest: str) -> bool:
        """Whether it runs this guest: libvirt says so, and the process is there."""
        return bool(self.guests and guest in self.guests and self.guests[guest].state == RUNNING and guest in (self.processes or ()))


OFF = Host(False, {}, {})
Look = t.Mapping[int, Host]


def executing(look: Look, guest: str) -> list[int]:
    """Return the hosts that run a guest."""
    return [number for number, host in look.items() if host.executes(guest)]


def with_process(look: Look, guest: str) -> list[int]:
    """Return the hosts that have a QEMU of a guest, be it on its way in."""
    return [number for number, host in look.items() if guest in (host.processes or ())]


def in_post_copy(look: Look, guest: str) -> bool:
    """Whether a guest's memory is on two hosts."""
    return any("post-copy" in host.guests[guest].reason for host in look.values() if host.guests and guest in host.guests)


def home(look: Look, guest: str) -> int | None:
    """Return the host that a guest is on, for who wants to move it; none where it is nowhere."""
    known = [number for number, host in look.items() if guest in (host.guests or ())]
    return next(iter([*executing(look, guest), *with_process(look, guest), *known]), None)


def twice(first: Look, second: Look, guest: str) -> list[int]:
    """Return the hosts that run a guest in both looks, where they are more than one.

    Between two moments at which one host runs it another one did: that cannot be a move that was seen at its two ends.
    """
    both = [number for number in executing(first, guest) if number in executing(second, guest)]
    return both if len(both) > 1 else []


def nowhere(look: Look, guest: str) -> bool:
    """Whether no host has a QEMU of a guest, and somebody could look at each of them."""
    return all(host.processes is not None and guest not in host.processes for host in look.values())


def told(look: Look) -> dict[str, t.Any]:
    """Return a look as JSON has it."""
    return {str(number): dataclasses.asdict(host) for number, host in look.items()}
