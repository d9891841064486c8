# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arming moments, waiting until somebody comes to one, and letting him go on."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ...support.fleet import eventually
from ...support.hooks import Hooks
from ..probe.kvmfleet_moments import OF_LIBVIRT, OF_THE_GUEST, slug

PROBE = pathlib.Path(__file__).resolve().parents[1] / "probe"


@dataclasses.dataclass(frozen=True)
class Arrival:
    """A process that has come to a moment: its number where it runs, and the name of that machine; 0 for libvirt's hook and where nobody is held."""

    pid: int
    node: str


class Moments:
    """:arg folder: where the probe looks for what is armed.

    :arg hooks: libvirt's hooks by host number.
    :arg state: gives a guest's state on its source, with its reason.
    """

    def __init__(self, folder: pathlib.Path, hooks: t.Mapping[int, Hooks], state: t.Callable[[str], str]) -> None:
        self._folder = folder
        self._hooks = hooks
        self._state = state
        self._tokens = 0
        folder.mkdir()

    def arm(self, moment: str, guest: str) -> None:
        """Let whoever comes there wait from now on; who waits there already goes on."""
        operation = OF_LIBVIRT.get(moment)
        for hook in self._hooks.values() if operation else ():
            hook.forget(str(operation), guest)
            hook.hold(str(operation), guest)
        if not operation:
            self._tokens += 1
            mark = self._mark(moment, guest)
            new = mark.with_name(f"{mark.name}.new")
            new.write_text(str(self._tokens))
            new.replace(mark.with_name(f"{mark.name}.hold"))

    def release(self, moment: str, guest: str) -> None:
        """Let those go on who wait there."""
        operation = OF_LIBVIRT.get(moment)
        for hook in self._hooks.values() if operation else ():
            hook.let_go(str(operation), guest)
        mark = self._mark(moment, guest)
        mark.with_name(f"{mark.name}.hold").unlink(missing_ok=True)

    def release_all(self) -> None:
        """Let everybody go on."""
        for hold in self._folder.glob("*.hold"):
            hold.unlink()
        for hook in self._hooks.values():
            hook.clear()

    def wait(self, moment: str, guest: str, times: int, limit_seconds: float) -> list[Arrival]:
        """Return who is there, once so many are. Fails the test after the limit."""
        return eventually(lambda: self._there(moment, guest, times), f"{times} come to '{moment}' of {guest}", limit_seconds)

    def _there(self, moment: str, guest: str, times: int) -> list[Arrival]:
        if moment in OF_THE_GUEST:
            return [Arrival(0, "")] if self._state(guest) == OF_THE_GUEST[moment] else []
        operation = OF_LIBVIRT.get(moment)
        found = [Arrival(0, str(number)) for number, hook in self._hooks.items() if operation and hook.seen(operation, guest)]
        reached = self._mark(moment, guest)
        reached = reached.with_name(f"{reached.name}.reached")
        lines = reached.read_text().splitlines() if reached.exists() else []
        words = [line.split() for line in lines]
        found += [Arrival(int(pid), node) for token, pid, node in words if token == str(self._token(moment, guest))]
        return found if len(found) >= times else []

    def _token(self, moment: str, guest: str) -> str:
        hold = self._mark(moment, guest)
        hold = hold.with_name(f"{hold.name}.hold")
        return hold.read_text() if hold.exists() else ""

    def _mark(self, moment: str, guest: str) -> pathlib.Path:
        return self._folder / slug(moment, guest)
