# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The soak itself: actions one after the other until the time is up, everything settled now and then and at the end."""

from __future__ import annotations

import itertools
import subprocess
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode

from .actions import SETTLE, Action
from .figures import Figures
from .journal import Journal
from .model import Violation
from .perform import Performer
from .settle import Settling
from .stage import Stage


class Soak:
    """:arg journal: what is done is written there before anything else happens."""

    def __init__(self, stage: Stage, journal: Journal) -> None:
        self._stage = stage
        self._journal = journal
        self._performer = Performer(stage)
        self.figures = Figures()
        self._began = time.monotonic()

    def run(self, actions: t.Iterable[Action], seconds: float) -> None:
        """Let things happen for so long, or until there are no more of them, and settle everything. Raises L(Violation)."""
        limit = self._began + seconds
        is_settled = False
        try:
            for action in itertools.takewhile(lambda dummy_action: time.monotonic() < limit, actions):
                self._do(action)
                is_settled = action.verb == SETTLE
            if not is_settled:
                self._do(Action(SETTLE))
        finally:
            self._count()

    def _do(self, action: Action) -> None:
        self._stage.watch.check()
        self.figures.act(action)
        if action.verb == SETTLE:
            self._settle(action)
            return
        try:
            did = self._performer.do(action)
        except (AssertionError, subprocess.SubprocessError) as error:
            # The machinery of the lab, not the fleet: it is no finding, and nothing can be proved any more either.
            raise Violation(f"{action} could not be carried out: {error}") from error
        print(self._journal.write(action, did), flush=True)
        self._stage.watch.pause(action.gap)
        self._stage.tasks.collect()

    def _settle(self, action: Action) -> None:
        began = time.monotonic()
        dead = self._stage.model.accounted()
        print(self._journal.write(action, "begins"), flush=True)
        self.figures.memories += Settling(self._stage, self._say).run()
        self.figures.settlings += 1
        self.figures.accounted.update(dead.values())
        self._say(f"everything is settled after {time.monotonic() - began:.0f} s")
        self._stage.watch.check()

    def _say(self, text: str) -> None:
        self._journal.note(text)
        print(f"{'':16}  {text}", flush=True)

    def _count(self) -> None:
        self.figures.seconds = time.monotonic() - self._began
        self.figures.looks = self._stage.model.looked
        self.figures.read([*self._stage.site.records(), *encode(self._stage.read_archive())])
