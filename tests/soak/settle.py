# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settling run: every fault has its end, every host its power, every open record one more run; then everything must be as if nothing had happened."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.tasks import NEVER_ENDED, Run

from . import looks
from .actions import HOSTS
from .aftermath import Aftermath
from .model import Violation
from .perform import LOCK_WAIT_SECONDS, RETURN_SECONDS
from .stage import Stage

ENDING_SECONDS = 300
# Guests of an open record may move once more, and a broken one takes its time to be given up.
PASSES = 3
UP_SECONDS = 60

Record = t.Mapping[str, t.Any]


class Settling:
    """:arg say: for a line on what a person has to do."""

    def __init__(self, stage: Stage, say: t.Callable[[str], None]) -> None:
        self._stage = stage
        self._lab = stage.lab
        self._say = say

    def run(self) -> int:
        """Settle everything and look at it. Raises L(Violation). Returns how many memories were read."""
        self.heal()
        self._wait_for_tasks()
        self._power_on()
        self._settle_records()
        aftermath = Aftermath(self._stage)
        self._start_the_dead(aftermath)
        memories = aftermath.check()
        self._stage.model.settled()
        return memories

    def heal(self) -> None:
        """End every fault but the power's."""
        self._stage.clocks.right()
        self._stage.disk.make_room()
        for number in HOSTS:
            self._lab("heal", self._lab.host(number))
        for number in self._stage.on(self._stage.watch.look_now()):
            self._stage.signal_file_server(number, "CONT")
            self._lab.try_("libvirtd", self._lab.host(number), "start", timeout=120)

    def _wait_for_tasks(self) -> None:
        """What runs comes to its end, now that nothing is in its way."""
        if not self._stage.watch.until(lambda: not self._running(), ENDING_SECONDS):
            names = ", ".join(run.name for run in self._stage.tasks.running)
            raise Violation(f"without any fault these tasks do not end within {ENDING_SECONDS} s: {names}")

    def _running(self) -> bool:
        self._stage.tasks.collect()
        return bool(self._stage.tasks.running)

    def _power_on(self) -> None:
        """Give every host its power, and wait for libvirt."""
        self._lab.try_("up", "--hosts", str(len(HOSTS)), timeout=180)

        def all_answer() -> bool:
            return all(host.power and host.guests is not None for host in self._stage.watch.last.values())

        if not self._stage.watch.until(all_answer, UP_SECONDS):
            silent = [number for number, host in self._stage.watch.last.items() if host.guests is None or not host.power]
            raise Violation(f"libvirt of {silent} does not come back", hosts=silent)

    # Records

    def _settle_records(self) -> None:
        for number in range(PASSES):
            for record in self._open():
                self._settle(record)
            self._recover()
            if not self._open():
                return
            if number:
                self._judge_as_a_person()
        left = [f"{record['type']} of {record['domain']['name']} is '{record['status']}' ({record['reason']})" for record in self._open()]
        if left:
            raise Violation(f"after {PASSES} settling runs: {'; '.join(left)}", self._open()[0]["domain"]["name"])

    def _open(self) -> list[Record]:
        return [record for record in self._stage.site.records() if record["status"] in s.UNSETTLED or record["status"] == s.DONE]

    def _settle(self, record: Record) -> None:
        """Run once more what a record is about, as an operator does."""
        source, destination = self._number(record["source"]["host"]), self._number(record["destination"]["host"])
        if record["status"] == s.DONE:
            return
        if record["type"] == s.EVACUATION:
            given = {"source": self._lab.host(source), "domains": [record["domain"]["uuid"]], "lock_wait_seconds": LOCK_WAIT_SECONDS}
            self._end(self._stage.tasks.ad_hoc(destination, "evacuate", given))
        else:
            given = {"name": record["domain"]["name"], "destination": self._lab.host(destination), "unsafe": True, "timeout_seconds": 60}
            self._end(self._stage.tasks.ad_hoc(source, "live_migrate", given))

    def _recover(self) -> None:
        options = {"recover_host_timeout_seconds": RETURN_SECONDS, "recover_host_options": {"unsafe": True}}
        self._end(self._stage.tasks.playbook("recover", target="kvmfleet_hosts", **options))

    def _end(self, run: Run) -> int:
        """Wait for a task's end; return its exit code."""
        if not self._stage.watch.until(lambda: run.code != NEVER_ENDED, ENDING_SECONDS):
            raise Violation(f"the settling task {run.name} does not end within {ENDING_SECONDS} s")
        self._stage.tasks.collect()
        return run.code

    def _number(self, host: str) -> int:
        return next(number for number in HOSTS if self._lab.host(number) == host)

    # What only a person can do, for a guest that died by a fault

    def _judge_as_a_person(self) -> None:
        """Give up what is left of guests that are accounted for, and say so in their records."""
        dead = self._stage.model.accounted()
        for record in self._open():
            name = record["domain"]["name"]
            if name in dead and record["status"] == s.ERROR:
                self._say(f"a person gives up {name} ({dead[name]})")
                self._give_up(name, record)

    def _give_up(self, name: str, record: Record) -> None:
        look = self._stage.watch.look_now()
        running = looks.executing(look, name)
        destination = self._number(record["destination"]["host"])
        if len(running) != 1 or looks.in_post_copy(look, name):
            for number in looks.with_process(look, name):
                self._lab.try_("virsh", self._lab.host(number), "destroy", name)
            running = []
        here = running or [number for number, host in look.items() if name in (host.guests or ())]
        status = s.COMPLETED if here == [destination] else s.FAILED
        for number in here:
            if (number == destination) != (status == s.COMPLETED):
                self._lab.try_("virsh", self._lab.host(number), "undefine", name)
        said = {"settle": {"id": record["id"], "status": status}, "reason": "The soak has looked at all hosts."}
        self._end(self._stage.tasks.ad_hoc(destination, "host", said))

    def _start_the_dead(self, aftermath: Aftermath) -> None:
        """Start the guests that died by a fault and that nobody has started since, where they are defined."""
        dead = self._stage.model.accounted()
        look = self._stage.watch.look_now()
        for name in [name for name in dead if looks.nowhere(look, name)]:
            number = aftermath.defined_on(name)
            self._say(f"a person starts {name} on {number} ({dead[name]})")
            self._lab.virsh(number, "start", name)
