# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read by every Python that a fault scenario starts, on the control node and on hosts: it lets the product stop at the moments that the scenario has
armed, and go by a clock that the scenario sets.

A moment is armed by a file C(<moment>@<guest>.hold). Who comes to it adds a line to C(….reached) and waits until that file is gone or has another content.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import time
import typing as t

import kvmfleet_clock
from kvmfleet_moments import BEFORE, ON_A_HOST, ON_THE_CONTROL_NODE, Moment, slug

FOLDER = os.environ.get("KVMFLEET_MOMENTS", "")
CLOCK = os.environ.get("KVMFLEET_CLOCK", "")
# Nobody waits for ever: a scenario that has forgotten a moment fails by its own limits before this.
LIMIT_SECONDS = 240
STEP_SECONDS = 0.05


class Probe:
    """Wraps the functions of the moments as soon as their modules have been imported."""

    def __init__(self, folder: str, moments: t.Sequence[Moment]) -> None:
        self._folder = folder
        self._passed: t.Set[t.Tuple[str, str]] = set()
        self._import = builtins.__import__
        self._pending: t.Dict[t.Tuple[str, str], t.List[Moment]] = {}
        for moment in moments:
            self._pending.setdefault((moment.full_module, moment.function), []).append(moment)

    def install(self) -> None:
        """Look after each import whether a module of ours is there."""
        builtins.__import__ = self._importing

    def _importing(self, *arguments: t.Any, **options: t.Any) -> t.Any:
        imported = self._import(*arguments, **options)
        for module, function in [key for key in tuple(self._pending) if key[0] in sys.modules]:
            owner_name, dummy, name = function.rpartition(".")
            owner = getattr(sys.modules[module], owner_name, None) if owner_name else sys.modules[module]
            if hasattr(owner, name):
                moments = self._pending.pop((module, function), None)
                if moments:
                    self._wrap(owner, name, moments)
        return imported

    def _wrap(self, owner: t.Any, name: str, moments: t.Sequence[Moment]) -> None:
        original = getattr(owner, name)
        before = [moment for moment in moments if moment.when == BEFORE]
        after = [moment for moment in moments if moment.when != BEFORE]

        @functools.wraps(original)
        def hooked(*arguments: t.Any, **options: t.Any) -> t.Any:
            for moment in before:
                self._come_to(moment, arguments)
            result = original(*arguments, **options)
            for moment in after:
                self._come_to(moment, arguments)
            return result

        setattr(owner, name, hooked)

    def _come_to(self, moment: Moment, arguments: t.Sequence[t.Any]) -> None:
        if not moment.happens(arguments):
            return
        mark = os.path.join(self._folder, slug(moment.name, moment.guest(arguments)))
        token = self._token(mark)
        if not token or (mark, token) in self._passed:
            return
        self._passed.add((mark, token))
        with open(f"{mark}.reached", "a", encoding="utf-8") as stream:
            stream.write(f"{token} {os.getpid()} {os.uname().nodename}\n")
        limit = time.monotonic() + LIMIT_SECONDS
        while self._token(mark) == token and time.monotonic() < limit:
            time.sleep(STEP_SECONDS)

    @staticmethod
    def _token(mark: str) -> str:
        try:
            with open(f"{mark}.hold", encoding="utf-8") as stream:
                return stream.read().strip()
        except FileNotFoundError:
            return ""


if CLOCK:
    kvmfleet_clock.install(CLOCK)
if FOLDER:
    Probe(FOLDER, (*ON_THE_CONTROL_NODE, *ON_A_HOST)).install()
