# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Doing what a scenario says that happens. Each verb is a method of its name."""

from __future__ import annotations

import json
import os
import signal
import time
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document

from ...support.hooks import AFTER, BEFORE
from . import disks
from .moments import Arrival
from .phrases import ETCD_ALL, ETCD_LEADER, ETCD_MEMBER, Action

if t.TYPE_CHECKING:
    from .stage import Stage

# The session of a login ends with its daemon, as when sshd is killed by its service manager.
_KILL_SSHD = 'for one in /proc/[0-9]*; do [ "$(cat $one/comm)" = sshd ] && kill -9 "${one#/proc/}"; done; true'
_PID_FILES = {"libvirtd": "/run/libvirtd.pid", "qemu": "/run/libvirt/qemu/{guest}.pid"}
_LOSS = "FAULT-LOSS"
# What the lab calls them; a member by its number.
ETCD_WHICH = {ETCD_LEADER: "leader", ETCD_ALL: "all", ETCD_MEMBER: ""}


def method_of(verb: str) -> str:
    """Return the name of the method that does it."""
    return verb.replace(" ", "_").replace("-", "_")


class Actions:
    """:arg guest: the one that the moment is about; the one that is meant where the action names none.

    :arg there: who waits at the moment.
    """

    def __init__(self, stage: Stage, guest: str, there: t.Sequence[Arrival]) -> None:
        self._stage = stage
        self._lab = stage.lab
        self._guest = guest
        self._there = there

    def do(self, action: Action) -> None:
        """Do it."""
        if action.what in ETCD_WHICH:
            self._stage.etcd.do(action.verb, ETCD_WHICH[action.what] or str(int(action.number)))
        else:
            getattr(self, method_of(action.verb))(action)

    # Processes

    def kill(self, action: Action) -> None:
        if action.what == "whoever is there":
            self._kill_those_there()
        elif action.what == "ansible":
            self._stage.run(action.of).kill()
        elif action.what == "control node":
            self._stage.run(action.of).kill_all()
        elif action.what == "sshd":
            self._lab.on(t.cast(int, action.on), "sh", "-c", _KILL_SSHD)
        elif action.what == "libvirtd":
            self._lab("libvirtd", self._host(action), "kill")
        else:
            self._signal(action, "KILL")

    def freeze(self, action: Action) -> None:
        self._hold(action, "STOP")

    def thaw(self, action: Action) -> None:
        self._hold(action, "CONT")

    def restart(self, action: Action) -> None:
        self._lab("libvirtd", self._host(action), "restart")

    def stop(self, action: Action) -> None:
        self._lab("libvirtd", self._host(action), "stop")

    def start(self, action: Action) -> None:
        self._lab("libvirtd", self._host(action), "start")

    def crowd(self, action: Action) -> None:
        """Begin a login that never authenticates: every other one is dropped meanwhile."""
        self._stage.crowd(t.cast(int, action.on))

    def clear(self, action: Action) -> None:
        """End that login."""
        self._stage.clear(t.cast(int, action.on))

    def _hold(self, action: Action, name: str) -> None:
        if action.what == "control node":
            self._stage.run(action.of).signal_all(signal.Signals[f"SIG{name}"])
        else:
            self._signal(action, name)

    def _kill_those_there(self) -> None:
        assert self._there
        for one in self._there:
            number = self._stage.number_of(one.node)
            if number is None:
                os.kill(one.pid, signal.SIGKILL)
            else:
                self._lab.on(number, "kill", "-9", str(one.pid))

    def _signal(self, action: Action, name: str) -> None:
        if action.what == "watcher":
            number, state = self._stage.watched(action.of or self._guest)
            self._lab.on(number, "kill", f"-{name}", str(state["watcher"]["pid"]))
        elif action.what == "spare watcher":
            [pid] = self._stage.spare_watchers_on(t.cast(int, action.on))
            self._lab.on(t.cast(int, action.on), "kill", f"-{name}", pid)
        else:
            file = _PID_FILES[action.what].format(guest=action.of)
            self._lab.on(t.cast(int, action.on), "sh", "-c", f"kill -{name} $(cat {file})")

    # Hosts and cables

    def power_off(self, action: Action) -> None:
        self._stage.site.lose(int(action.number))

    def power_on(self, action: Action) -> None:
        self._stage.site.bring_back(int(action.number))

    def cut(self, action: Action) -> None:
        options = action.options
        words = [f"--{channel}" for channel in options.get("only") or ()]
        words += [f"--{options['direction']}"] if "direction" in options else []
        words += ["--peer", self._lab.host(options["peer"])] if "peer" in options else []
        self._lab("cut", self._lab.host(options["host"]), *words)

    def slow(self, action: Action) -> None:
        self._lab("slow", self._lab.host(action.options["host"]), "--mbit", str(action.options["mbit"]))

    def lose_packets(self, action: Action) -> None:
        """Let so many of the packets that come to a host be lost."""
        number = action.options["host"]
        self._lab.on(number, "iptables", "-w", "-N", _LOSS)
        self._lab.on(number, "iptables", "-w", "-I", "INPUT", "-j", _LOSS)
        share = f"{action.options['percent'] / 100:.3f}"
        self._lab.on(number, "iptables", "-w", "-A", _LOSS, "-m", "statistic", "--mode", "random", "--probability", share, "-j", "DROP")

    def heal(self, action: Action) -> None:
        number = int(action.number)
        self._lab("heal", self._lab.host(number))
        if self._lab.try_("exec", self._lab.host(number), "--", "iptables", "-w", "-n", "-L", _LOSS).returncode == 0:
            for words in (("-D", "INPUT", "-j", _LOSS), ("-F", _LOSS), ("-X", _LOSS)):
                self._lab.on(number, "iptables", "-w", *words)

    # Disks and clocks

    def fill(self, action: Action) -> None:
        if action.what == "ledger":
            self._stage.store.fill()
        else:
            disks.fill(self._lab, t.cast(int, action.on), action.what)

    def make_room_in(self, action: Action) -> None:
        if action.what == "ledger":
            self._stage.store.make_room()
        else:
            disks.make_room(self._lab, t.cast(int, action.on), action.what)

    def write_protect(self, action: Action) -> None:
        if action.what == "ledger":
            self._stage.ledger_disk.write_protect()
        else:
            disks.write_protect_run(self._lab, t.cast(int, action.on))

    def allow_writing(self, action: Action) -> None:
        if action.what == "ledger":
            self._stage.ledger_disk.allow_writing()
        else:
            disks.allow_writing_run(self._lab, t.cast(int, action.on))

    def back_up(self, dummy: Action) -> None:
        self._stage.store.back_up()

    def restore(self, action: Action) -> None:
        self._stage.set_back(as_new=action.what != "ledger")

    def accept(self, dummy: Action) -> None:
        """Say that the cluster which answers takes the place of the one that the ledger was made in."""
        self._stage.etcd.accept()

    def compact(self, dummy: Action) -> None:
        self._stage.etcd.compact()

    def clock(self, action: Action) -> None:
        self._stage.clocks[action.options["on"]].jump(action.options["seconds"])

    # Libvirt and files

    def virsh(self, action: Action) -> None:
        self._lab.virsh(action.options["on"], *map(str, action.options["do"]))

    def refuse(self, action: Action) -> None:
        when = {"start": BEFORE, "end of start": AFTER}[action.what]
        self._stage.site.hooks[t.cast(int, action.on)].refuse(when, str(action.of))

    def allow(self, action: Action) -> None:
        """Take back what was refused."""
        for when in (BEFORE, AFTER):
            self._stage.site.hooks[t.cast(int, action.on)].admit(when, str(action.of))

    def finish_quickly(self, action: Action) -> None:
        """Lift the cap of a move that has been looked at for long enough."""
        self._lab.hurry(str(action.of), number=self._stage.home(str(action.of)))

    def forget(self, action: Action) -> None:
        self._lab.on(t.cast(int, action.on), "rm", f"/run/kvmfleet/{self._stage.uuids[str(action.of)]}.json")

    def damage(self, action: Action) -> None:
        """Do to the file of a guest's open record what a torn write, a careless copy or a newer version does."""
        (file,) = [path for path in self._stage.site.path.glob("migrations/open/*.json") if self._stage.uuids[action.options["record"]] in path.read_text()]
        text = file.read_text()
        document = json.loads(text)
        if action.options["how"] == "torn":
            file.write_text(text[: len(text) // 2])
        elif action.options["how"] == "empty":
            file.write_text("")
        elif action.options["how"] == "of the future":
            file.write_bytes(encode_document({**document["body"], "schema": 99}, document["version"]))
        else:
            file.with_name(f"{uuid.uuid4()}.json").write_text(text)

    def fence_with(self, action: Action) -> None:
        """Say from now on that a host is fenced by that agent; C(none) is none."""
        agent, number = action.options["agent"], action.options["host"]
        site = self._stage.site
        site.fencing(number, None if agent == "none" else site.agent(number, site.lab_agent))

    # What has no fault in it

    def let_pass(self, action: Action) -> None:
        time.sleep(action.number)

    def _host(self, action: Action) -> str:
        return self._lab.host(t.cast(int, action.on))
