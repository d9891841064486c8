# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The evacuation of a host that hangs: the whole C(ansible-playbook) process, and its starts alone, beside C(virsh start) of the same guests.

And the time from the death of a host behind a network that drops packets until its fence agent is told to switch it off.
"""

from __future__ import annotations

import datetime
import pathlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Seconds, Series, in_turn, seconds_of

WINDOW = 8
GUEST_MIB = 32
GOAL_WHOLE, GOAL_STARTS, GOAL_JUDGED_SECONDS = 1.6, 1.3, 8.0
SOURCE, SURVIVORS = 1, (2, 3)
LIMIT_SECONDS = 300

_JUDGED = "from the death of a host behind a dead network to its fencing"
_EVACUATE, _XARGS = "kvmfleet.migration.evacuate", f"xargs -P {WINDOW} virsh start on both hosts at once"
_ALL = "virsh list --all --name | grep ."
_DEFINED = "virsh list --all --uuid | grep . | xargs -r -P 8 -n 1 virsh"
_CLEAN = f"virsh list --uuid | grep . | xargs -r -P 8 -n 1 virsh destroy; {_DEFINED} undefine; rm -rf /run/kvmfleet/*.lock /var/lib/kvmfleet/evacuations"

_HOW = (
    f"Guests of {GUEST_MIB} MiB with a disk on shared storage ran on a host when it was protected. Then its cable is pulled, and the fence agent of the "
    "lab switches it off within the measured time. (Its guests are off, because they would use the processors that all hosts of the lab share with the "
    "control node.) The time from the first record to the last one includes: reserved, started, verified on the host, and written as done."
)
_BESIDE = (
    "`virsh start` runs on the hosts themselves and finds the guests defined: no fencing, no query whether they run elsewhere, no proof of disks, no "
    "record. Restoring hosts, guests and ledger between two rounds is not measured. The three hosts share the cores of the machine with the control "
    "node."
)
_WHERE = (
    "The {seconds:.1f} s between the two rows are the start and the tasks of Ansible, the fence agent, and waiting for the dead host, twice: Ansible, the "
    "control node and a survivor try to connect to it before it is fenced, and the control node and each survivor again afterwards. On one network, a "
    "connection attempt to an address fails after 3 s, once the network has found out that nobody is at that address any more."
)
_DEAD_NETWORK = (
    "In the last row, all packets to the host are dropped from one moment on. The time ends when the fence agent is told to switch the host off: by then the "
    "host was tried, and all other hosts were asked."
)
# How often the host is tried until the control node has noticed that nobody is at its address any more. This takes up to a minute.
_TRIES = 12
_NO_NEIGHBOUR = "No route to host"


def run(effort: Effort) -> Section:
    """Lose a host of forty guests again and again, and start them on two others in turn by the playbook and by the bare tool."""
    guests = effort.size(40, 2)
    with fleet("e", 3) as control:
        lost = _Lost(control, guests)
        taken = in_turn({_EVACUATE: lost.by_the_collection, _XARGS: lost.by_xargs, _JUDGED: lost.until_judged}, effort.rounds)
    whole, starts, bare, judged = taken[_EVACUATE], Series(tuple(lost.starts)), taken[_XARGS], taken[_JUDGED]
    what = f"{guests} guests, two hosts, window {WINDOW}"
    figures = [
        Figure(f"{what}: `{_EVACUATE}`, the whole process, beside {_XARGS}", whole.told(), bare.told(), whole.median / bare.median, GOAL_WHOLE),
        Figure(f"{what}: from its first record to its last, beside the same", starts.told(), bare.told(), starts.median / bare.median, GOAL_STARTS),
        Figure(f"seconds {_JUDGED}", judged.told(), "", judged.median, GOAL_JUDGED_SECONDS),
    ]
    return Section("Evacuation of a host", figures, [_HOW, _BESIDE, _WHERE.format(seconds=whole.median - starts.median), _DEAD_NETWORK])


class _Lost:
    """Three hosts, of which the first dies in each round with all guests; C(starts) are the seconds from the first record to the last."""

    def __init__(self, control: Control, guests: int) -> None:
        self._lab = control.lab
        self._site = Site(control.lab, control.folder / "site")
        self._names = [f"g{number:02}" for number in range(guests)]
        self._definitions = control.folder / "definitions"
        self._saved = control.folder / "saved"
        self.starts: list[Seconds] = []
        self._prepare()

    def by_the_collection(self) -> Seconds:
        """Switch the first host on, pull its cable, and evacuate it by the playbook."""
        self._revive()
        ended: list[tuple[int, str]] = []
        variables = {"source": self._site.name(SOURCE), "evacuate_host_parallel": WINDOW}
        seconds = seconds_of(lambda: ended.append(self._site.playbook("evacuate", **variables)))
        (code, text) = ended[0]
        if code:
            raise RuntimeError(f"The evacuation failed: {text}")
        self._check()
        self.starts.append(self._between_records())
        self._put_back()
        return seconds

    def until_judged(self) -> Seconds:
        """Let the network drop all packets to the first host, and evacuate one of its guests at once."""
        self._switch_on()
        note = self._site.folder / "fenced-at"
        note.unlink(missing_ok=True)
        script = f'input=$(cat)\necho "$input" | grep -q action=off && date +%s.%N > {note}\necho "$input" | \'{COMMAND.with_name("fence_lab")}\''
        before = self._site.agent(SOURCE, self._site.lab_agent)
        self._site.fencing(SOURCE, self._site.agent(SOURCE, agents.write(self._site.folder, "fence_noted", script)))
        self._lab("cut", self._lab.host(SOURCE), "--in")
        begun = time.time()
        code, text = self._site.playbook("evacuate", source=self._site.name(SOURCE), evacuate_host_domains=self._names[:1])
        if code:
            raise RuntimeError(f"The evacuation failed: {text}")
        self._site.fencing(SOURCE, before)
        self._put_back()
        return float(note.read_text()) - begun

    def by_xargs(self) -> Seconds:
        """Define half of the guests on each survivor, and start them by the bare tool while their host is off."""
        self._site.lose(SOURCE)
        half = {number: self._names[place :: len(SURVIVORS)] for place, number in enumerate(SURVIVORS)}
        for number, names in half.items():
            self._on(number, "; ".join(f"virsh define {self._definitions / name}" for name in names))
        with ThreadPoolExecutor(len(SURVIVORS)) as pool:
            start = f"{_ALL} | xargs -P {WINDOW} -n 1 virsh start"
            seconds = seconds_of(lambda: list(pool.map(lambda number: self._on(number, start), SURVIVORS)))
        self._check()
        self._put_back()
        return seconds

    def _prepare(self) -> None:
        """Have the guests on the first host, protected, and a copy of the ledger that knows of no evacuation yet."""
        with ThreadPoolExecutor(WINDOW) as pool:
            where = ("--host", self._lab.host(SOURCE), "--mib", str(GUEST_MIB), "--storage", "shared")
            list(pool.map(lambda name: self._lab("guest", name, *where), self._names))
        self._site.protect()
        self._definitions.mkdir()
        for name in self._names:
            (self._definitions / name).write_text(self._lab.virsh(SOURCE, "dumpxml", "--inactive", name), encoding="utf-8")
        shutil.copytree(self._site.path, self._saved)

    def _switch_on(self) -> None:
        self._site.lose(SOURCE)
        self._lab("heal", self._lab.host(SOURCE))
        self._site.bring_back(SOURCE)

    def _revive(self) -> None:
        self._switch_on()
        self._lab("cut", self._lab.host(SOURCE))
        self._be_missed()

    def _be_missed(self) -> None:
        """Give the network the seconds in which it finds out that nobody is at that address any more; a person needs longer."""
        virsh = f"virsh -c qemu+tcp://{self._lab.host(SOURCE)}/system uri"
        # The first one ends before the neighbours have given up, the second one ends because they have.
        twice = ("sh", "-c", f"{virsh} || {virsh}")
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(self._lab.try_, "exec", self._lab.host(number), "--", *twice) for number in SURVIVORS]
            tried = [self._lab.try_("ssh", self._lab.host(SOURCE), "true")]
            while _NO_NEIGHBOUR not in tried[-1].stderr and len(tried) < _TRIES:
                tried.append(self._lab.try_("ssh", self._lab.host(SOURCE), "true"))
            if 0 in [one.returncode for one in [*tried, *(one.result() for one in asked)]]:
                raise RuntimeError(f"{self._lab.host(SOURCE)} answers although its cable is pulled.")

    def _check(self) -> None:
        """Every guest runs on one of the survivors, and nowhere twice."""
        there = self._site.fleet()
        running = sorted(name for number in SURVIVORS for name in there[number])
        if running != self._names:
            raise RuntimeError(f"These guests run: {there}")

    def _between_records(self) -> Seconds:
        times = [datetime.datetime.fromisoformat(record[key]) for record in self._site.records() for key in ("created_at", "updated_at")]
        return (max(times) - min(times)).total_seconds()

    def _put_back(self) -> None:
        for number in SURVIVORS:
            self._on(number, _CLEAN)
        path = pathlib.Path(self._site.path)
        shutil.rmtree(path)
        shutil.copytree(self._saved, path)

    def _on(self, number: int, script: str) -> None:
        done = self._lab.try_("exec", self._lab.host(number), "--", "sh", "-ec", script, timeout=LIMIT_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{script}: {done.stdout}{done.stderr}")
