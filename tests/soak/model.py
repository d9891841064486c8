# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a soak knows by itself: which guests there are, which of them may have died by a fault, and what each look at the fleet must show."""

from __future__ import annotations

import dataclasses
import threading
import typing as t

from . import looks
from .looks import Look

# So many pairs of looks in a row must show the same before it counts: libvirt's own picture is a moment late.
CONFIRMED_BY = {"twice": 2, "nowhere": 4}


class Violation(Exception):
    """What must never be."""

    def __init__(self, what: str, guest: str | None = None, hosts: t.Iterable[int] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.guest = guest
        self.hosts = sorted(hosts)


@dataclasses.dataclass
class Guest:
    """:arg has_counters: its program counts in its memory.

    :arg judges_pages: each page of it is judged, not only how much it has counted in all.
    :arg excuse: the fault by which it may have died since the last settling run; its end is accounted for.

    :arg increments: how much its program had done at the last settling run; none where it may have begun anew since.
    """

    name: str
    has_counters: bool
    judges_pages: bool
    excuse: str | None = None
    increments: int | None = None


class Model:
    """Shared by who acts and who looks."""

    def __init__(self, guests: t.Iterable[Guest]) -> None:
        self.guests = {guest.name: guest for guest in guests}
        self.looked = 0
        self._suspected: dict[tuple[str, str], int] = {}
        self._disturbed: dict[str, str] = {}
        self._lock = threading.Lock()

    # What is done to the fleet, told before it is done

    def will_kill(self, look: Look, host: int, why: str) -> None:
        """Excuse every guest that has a process on a host."""
        for name in self.guests:
            if looks.with_process({host: look[host]}, name):
                self.excuse(name, why)

    def excuse(self, guest: str, why: str) -> None:
        """A guest may die by this."""
        with self._lock:
            found = self.guests[guest]
            found.excuse = found.excuse or why
            found.increments = None

    def disturb(self, key: str, why: str) -> None:
        """From now on a guest whose memory is on two hosts may be lost by this: QEMU has no way back from there."""
        with self._lock:
            self._disturbed[key] = why

    def calm(self, key: str | None = None) -> None:
        """That disturbance is over; without a key, all are."""
        with self._lock:
            self._disturbed = {} if key is None else {one: why for one, why in self._disturbed.items() if one != key}

    def accounted(self) -> dict[str, str]:
        """Return the guests that may have died, and by what."""
        with self._lock:
            return {name: guest.excuse for name, guest in self.guests.items() if guest.excuse}

    def settled(self) -> None:
        """Every guest was seen to run: nothing is excused any more."""
        with self._lock:
            self._disturbed = {}
            for guest in self.guests.values():
                guest.excuse = None

    # What is seen

    def judge(self, first: Look, second: Look) -> None:
        """Judge two looks in a row. Raises L(Violation) for what so many pairs in a row have shown."""
        self.looked += 1
        for name in self.guests:
            self._excuse_post_copy(second, name)
        found = {**self._twice(first, second), **self._nowhere(first, second)}
        self._suspected = {key: self._suspected.get(key, 0) + 1 for key in found}
        for key, times in self._suspected.items():
            if times >= CONFIRMED_BY[key[0]]:
                raise found[key]

    def _excuse_post_copy(self, look: Look, name: str) -> None:
        if self._disturbed and looks.in_post_copy(look, name):
            self.excuse(name, f"in post-copy: {', '.join(self._disturbed.values())}")

    def _twice(self, first: Look, second: Look) -> dict[tuple[str, str], Violation]:
        found = {name: looks.twice(first, second, name) for name in self.guests}
        return {("twice", name): Violation(f"{name} runs on {len(hosts)} hosts at once", name, hosts) for name, hosts in found.items() if hosts}

    def _nowhere(self, first: Look, second: Look) -> dict[tuple[str, str], Violation]:
        excused = self.accounted()
        lost = [name for name in self.guests if name not in excused and looks.nowhere(first, name) and looks.nowhere(second, name)]
        return {("nowhere", name): Violation(f"{name} runs nowhere, and no fault accounts for it", name) for name in lost}

    def judge_memory(self, name: str, verdict: t.Mapping[str, t.Any]) -> None:
        """Judge what a guest's counters say. Raises L(Violation) where memory was lost, or is older than it was."""
        guest = self.guests[name]
        if guest.judges_pages and not verdict["intact"]:
            raise Violation(f"memory of {name} was lost: {verdict['problem']}", name)
        done = int(verdict["increments"])
        # What one that is not judged by its pages may lose of its latest ones is little beside all that it has done.
        if guest.increments is not None and done < guest.increments:
            raise Violation(f"{name} counts {done}, and had counted to {guest.increments}: it was begun anew, or its memory is an old one", name)
        guest.increments = done
