# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carrying an action out: what is meant by it is found in what is seen of the fleet at that moment."""

from __future__ import annotations

import contextlib
import subprocess
import typing as t

from . import looks
from .actions import HOSTS, Action
from .stage import SERVED, Stage

# So many tasks at once, for there are few processors.
MOST_TASKS = 3
WAIT_FOR_ROOM_SECONDS = 120
WAIT_FOR_WATCHER_SECONDS = 8
# The session of a login ends with its daemon, as when a service manager kills it.
_KILL_SSHD = 'for one in /proc/[0-9]*; do [ "$(cat $one/comm 2>/dev/null)" = sshd ] && kill -9 "${one#/proc/}"; done; true'
DRAIN_OPTIONS = {"unsafe": True, "timeout_seconds": 30, "on_timeout": "force_complete"}
LOCK_WAIT_SECONDS = 20
RETURN_SECONDS = 60
FILL_TRIES = 5
# What is older than the least age can be archived.
LEAST_DAYS, ARCHIVED_DAYS = 30, 31

Given = t.Mapping[str, t.Any]


class Performer:
    """Each method does what its verb says, and returns what came of it in a few words."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._lab = stage.lab
        self._model = stage.model
        self._tasks = stage.tasks

    def do(self, action: Action) -> str:
        """Carry it out."""
        return str(getattr(self, f"_{action.verb.replace(' ', '_')}")(action.given))

    # Tasks

    def _move(self, given: Given) -> str:
        self._wait_for_room()
        home = self._home(given["guest"])
        if home is None:
            return "it is nowhere"
        return f"from {home}, {self._begin_move(home, given['guest'], given['to'], given['options'])}"

    def _moves(self, given: Given) -> str:
        """Where nobody is on that host, the one with most guests is meant."""
        self._wait_for_room()
        homes = {name: self._home(name) for name in self._model.guests}
        there = list(homes.values())
        source = given["from"] if given["from"] in there else max(HOSTS, key=there.count)
        chosen = [name for name, home in homes.items() if home == source][: given["most"]]
        to = self._destination(source, given["to"])
        moves = [{"name": name, "destination": self._lab.host(to)} for name in chosen]
        options = {"unsafe": True, "moves": moves, "parallel": given["parallel"], **given["options"]}
        return f"{', '.join(chosen)} from {source} to {to}, {self._tasks.ad_hoc(source, 'live_migrate', options).name}"

    def _rivals(self, given: Given) -> str:
        """Two control processes want the same guest at the same time."""
        self._wait_for_room(2)
        home = self._home(given["guest"])
        if home is None:
            return "it is nowhere"
        return f"from {home}, {', '.join(self._begin_move(home, given['guest'], to, given['options']) for to in given['to'])}"

    def _begin_move(self, home: int, guest: str, to: int, options: Given) -> str:
        destination = {"destination": self._lab.host(self._destination(home, to))} if to else {}
        return self._tasks.ad_hoc(home, "live_migrate", {"name": guest, "unsafe": True, **destination, **options}).name

    @staticmethod
    def _destination(home: int, to: int) -> int:
        """Nobody moves a guest to where it is: the next host is meant then."""
        return to if to != home else to % 3 + 1

    def _abort(self, given: Given) -> str:
        return self._intervene("migration_abort", given["guest"])

    def _force(self, given: Given) -> str:
        return self._intervene("migration_force_complete", given["guest"])

    def _intervene(self, module: str, guest: str) -> str:
        """Who interferes has seen something move: one that does is meant, where the one that was drawn does not."""
        self._wait_for_room()
        look = self._stage.watch.last
        moving = [name for name in self._model.guests if len(looks.with_process(look, name)) > 1]
        guest = guest if guest in moving or not moving else moving[0]
        home = looks.home(look, guest)
        if home is None:
            return f"{guest} is nowhere"
        return f"{guest} on {home}, {self._tasks.ad_hoc(home, module, {'name': guest}).name}"

    def _drain(self, given: Given) -> str:
        self._wait_for_room()
        target = self._lab.host(given["host"])
        return self._tasks.playbook("drain", target=target, drain_host_options=DRAIN_OPTIONS, drain_host_incoming_timeout_seconds=60).name

    def _enable(self, given: Given) -> str:
        self._wait_for_room()
        return self._tasks.ad_hoc(given["host"], "host", {"state": "enabled"}).name

    def _policy(self, given: Given) -> str:
        self._wait_for_room()
        home = self._home(given["guest"])
        if home is None:
            return "it is nowhere"
        return self._tasks.ad_hoc(home, "domain_policy", {"name": given["guest"], **given["fields"]}, ledger=False).name

    def _protect(self, dummy_given: Given) -> str:
        self._wait_for_room()
        return self._tasks.playbook("protect", target="kvmfleet_hosts").name

    def _archive(self, dummy_given: Given) -> str:
        """Records go while all else happens. By the clock of this process they are old."""
        self._wait_for_room()
        later = self._stage.clocks.begin_later(ARCHIVED_DAYS)
        return self._tasks.ad_hoc(1, "ledger_archive", {"to": str(self._stage.archive), "older_than_days": LEAST_DAYS}, environment=later).name

    def _evacuate(self, given: Given) -> str:
        source = self._lab.host(given["host"])
        return self._tasks.playbook("evacuate", source=source, evacuate_host_lock_wait_seconds=LOCK_WAIT_SECONDS).name

    def _recover(self, given: Given) -> str:
        target = self._lab.host(given["host"])
        return self._tasks.playbook("recover", target=target, recover_host_timeout_seconds=RETURN_SECONDS, recover_host_options={"unsafe": True}).name

    def _again(self, dummy_given: Given) -> str:
        self._wait_for_room()
        return self._tasks.again()

    # Faults

    def _kill_ansible(self, given: Given) -> str:
        return self._tasks.kill(given["which"], whole=False)

    def _kill_control_node(self, given: Given) -> str:
        return self._tasks.kill(given["which"], whole=True)

    def _kill_watcher(self, given: Given) -> str:
        found: list[tuple[int, int]] = []

        def there() -> bool:
            found[:] = [(number, pid) for number, pids in self._stage.eyes.watchers().items() for pid in pids]
            return bool(found)

        if not self._stage.watch.until(there, WAIT_FOR_WATCHER_SECONDS):
            return "nobody watches"
        number, pid = found[given["which"] % len(found)]
        self._lab.try_("exec", self._lab.host(number), "--", "kill", "-9", str(pid))
        return f"{pid} on {number}"

    def _kill_libvirtd(self, given: Given) -> str:
        return self._libvirtd(given["host"], "kill")

    def _restart_libvirtd(self, given: Given) -> str:
        return self._libvirtd(given["host"], "restart")

    def _stop_libvirtd(self, given: Given) -> str:
        self._model.disturb(f"libvirtd {given['host']}", f"libvirtd of {given['host']} was away")
        return self._libvirtd(given["host"], "stop")

    def _start_libvirtd(self, given: Given) -> str:
        said = self._libvirtd(given["host"], "start")
        self._model.calm(f"libvirtd {given['host']}")
        return said

    def _libvirtd(self, host: int, verb: str) -> str:
        """Without libvirtd nobody knows of a guest whose memory is on two hosts."""
        if not self._is_on(host):
            return "the host is off"
        self._excuse_post_copy(f"{verb} of libvirtd on {host}")
        return self._tried("libvirtd", self._lab.host(host), verb)

    def _kill_sshd(self, given: Given) -> str:
        return self._tried("exec", self._lab.host(given["host"]), "--", "sh", "-c", _KILL_SSHD) if self._is_on(given["host"]) else "the host is off"

    def _kill_qemu(self, given: Given) -> str:
        look = self._stage.watch.look_now()
        there = looks.with_process(look, given["guest"])
        if not there:
            return "it is nowhere"
        number = there[given["which"] % len(there)]
        self._model.excuse(given["guest"], f"its QEMU on {number} was killed")
        pid = (look[number].processes or {})[given["guest"]]
        return f"{pid} on {number} {self._tried('exec', self._lab.host(number), '--', 'kill', '-9', str(pid))}".rstrip()

    def _cut(self, given: Given) -> str:
        self._model.disturb(f"cable {given['host']}", f"the cable of {given['host']} was cut")
        words = [f"--{channel}" for channel in given.get("only") or ()]
        words += [f"--{given['direction']}"] if "direction" in given else []
        words += ["--peer", self._lab.host(given["peer"])] if "peer" in given else []
        return self._tried("cut", self._lab.host(given["host"]), *words)

    def _slow(self, given: Given) -> str:
        return self._tried("slow", self._lab.host(given["host"]), "--mbit", str(given["mbit"]))

    def _heal(self, given: Given) -> str:
        said = self._tried("heal", self._lab.host(given["host"]))
        self._model.calm(f"cable {given['host']}")
        return said

    def _hang_storage(self, given: Given) -> str:
        """A guest of that storage may end where its image is opened, or its lock is taken."""
        if not self._is_on(given["host"]):
            return "the host is off"
        for name in SERVED:
            self._model.excuse(name, f"the file server of {given['host']} did not answer")
        return self._stage.signal_file_server(given["host"], "STOP")

    def _let_storage_answer(self, given: Given) -> str:
        return self._stage.signal_file_server(given["host"], "CONT") if self._is_on(given["host"]) else "the host is off"

    def _fill_ledger(self, dummy_given: Given) -> str:
        """What is written at this moment can make it impossible."""
        for dummy in range(FILL_TRIES - 1):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._stage.disk.fill()
                return ""
        self._stage.disk.fill()
        return ""

    def _make_room(self, dummy_given: Given) -> str:
        self._stage.disk.make_room()
        return ""

    def _clock(self, given: Given) -> str:
        self._stage.clocks.jump(given["on"], given["seconds"])
        return ""

    def _right_clock(self, given: Given) -> str:
        self._stage.clocks.jump(given["on"], 0)
        return ""

    def _power_off(self, given: Given) -> str:
        look = self._stage.watch.look_now()
        self._model.will_kill(look, given["host"], f"host {given['host']} lost its power")
        there = ", ".join(look[given["host"]].processes or {}) or "nobody"
        return f"with {there} {self._tried('poweroff', self._lab.host(given['host']))}".rstrip()

    def _power_on(self, given: Given) -> str:
        return self._tried("poweron", self._lab.host(given["host"]))

    # What they have in common

    def _home(self, guest: str) -> int | None:
        return looks.home(self._stage.watch.last, guest)

    def _is_on(self, host: int) -> bool:
        return self._stage.watch.last[host].power

    def _excuse_post_copy(self, why: str) -> None:
        look = self._stage.watch.look_now()
        for name in self._model.guests:
            if looks.in_post_copy(look, name):
                self._model.excuse(name, f"in post-copy: {why}")

    def _wait_for_room(self, wanted: int = 1) -> None:
        def room() -> bool:
            self._tasks.collect()
            return len(self._tasks.running) + wanted <= MOST_TASKS

        self._stage.watch.until(room, WAIT_FOR_ROOM_SECONDS)

    def _tried(self, *words: str) -> str:
        """Let the lab do something that may be impossible by now; return what it says then."""
        done = self._lab.try_(*words, timeout=120)
        return done.stderr.strip() if done.returncode else ""
