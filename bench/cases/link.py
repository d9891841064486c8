# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The moves of a host with full and busy guests over a slow cable: beside the time that its bytes need, and beside every fixed window."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Record

from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Seconds, Series, in_turn, seconds_of

# 537 Mbit/s.
CABLE_MIB, CABLE_MBIT = 64, 537
GUEST_MIB, BUSY_MIB, FULL_MIB = 512, 128, 200
BUSY, FULL = 2, 6
# 28 MiB/s, and half of the cable.
PAGES_A_SECOND, HALF_PAGES_A_SECOND = 7168, CABLE_MIB // 2 * 256
GOAL, HALF_GOAL, AHEAD = 1.35, 2.0, 1.0
# What has not ended by then is aborted, and counts with this time.
LIMIT_SECONDS = 240

AUTO = "parallel: auto"
Ways = dict[str, Callable[[], Seconds]]
_VIRSH = "virsh migrate --live --p2p --persistent --undefinesource"

NOTES = [
    f"""{BUSY} guests write {PAGES_A_SECOND // 256} MiB/s over {BUSY_MIB} MiB, {FULL} hold {FULL_MIB} MiB and rest; each has {GUEST_MIB} MiB. The cable of the
source carries {CABLE_MIB} MiB/s in each direction. The limit is what the guests hold divided by that rate, each page once.""",
    f"""Ours are the moves of one `live_migrate` task, from the first job's start to the last one's end, without Ansible. xargs runs on the source, and is
measured as a whole. What has not ended after {LIMIT_SECONDS} s is aborted, and counts with that time.""",
]


@dataclass
class _Host:
    """The source, from which all guests are moved again and again over the slow cable, and back over a fast one."""

    control: Control
    full: int
    busy: int
    rate: int
    unfinished: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lab = self.control.lab
        self.guests = [f"busy{number}" for number in range(self.busy)] + [f"full{number}" for number in range(self.full)]

    def measure(self, ways: Ways, rounds: int) -> dict[str, Series]:
        """Make the guests, time these ways in turn, and remove the guests; nothing is made where there is no way."""
        if not ways:
            return {}
        self._make_guests()
        found = in_turn(ways, rounds)
        for name in self.guests:
            self._lab("rmguest", name)
        return found

    def _make_guests(self) -> None:
        for name in self.guests:
            dirty, rate = (BUSY_MIB, self.rate) if name.startswith("busy") else (FULL_MIB, 0)
            self._lab("guest", name, "--host", self._lab.host(1), "--mib", str(GUEST_MIB), "--dirty-mib", str(dirty), "--rate", str(rate))

    @property
    def limit(self) -> Seconds:
        """The seconds that the cable needs for what the guests hold."""
        return (self.busy * BUSY_MIB + self.full * FULL_MIB) / CABLE_MIB

    def by_the_collection(self, parallel: int | str) -> Callable[[], Seconds]:
        """Return the moves of one task in that window."""
        arguments = {"parallel": parallel, "timeout_seconds": LIMIT_SECONDS, "on_timeout": "abort"}
        return self._timed(f"parallel: {parallel}", lambda: _span(self.control.moves([(name, 2) for name in self.guests], **arguments)))

    def by_xargs(self, window: int) -> Callable[[], Seconds]:
        """Return the moves by the bare tool on the source, so many at once."""
        moving = self._migrate(2, window)
        return self._timed(_xargs(window), lambda: seconds_of(lambda: self._lab.try_("exec", self._lab.host(1), "--", *moving, timeout=2 * LIMIT_SECONDS)))

    def _timed(self, way: str, act: Callable[[], Seconds]) -> Callable[[], Seconds]:
        def moved() -> Seconds:
            self._lab("slow", self._lab.host(1), "--mbit", str(CABLE_MBIT))
            try:
                seconds = act()
            finally:
                self._lab("heal", self._lab.host(1))
            if not all(2 in self._lab.places(name) for name in self.guests):
                self.unfinished[way] = self.unfinished.get(way, 0) + 1
                seconds = max(seconds, LIMIT_SECONDS)
            self._give_back()
            return seconds

        return moved

    def _migrate(self, to: int, window: int) -> tuple[str, ...]:
        uri = f"qemu+tcp://{self._lab.host(to)}/system"
        moving = f"printf '%s\\n' {' '.join(self.guests)} | xargs -P {window} -I NAME {_VIRSH} NAME {uri}"
        return ("timeout", str(LIMIT_SECONDS), "sh", "-c", moving)

    def _give_back(self) -> None:
        """Have every guest on the first host again; one that is not there fails the benchmark."""
        for name in self.guests:
            if self._lab.has_job(name):
                self._lab.try_("virsh", self._lab.host(1), "domjobabort", name)
        self._lab.try_("exec", self._lab.host(2), "--", *self._migrate(1, len(self.guests)), timeout=2 * LIMIT_SECONDS)
        lost = [name for name in self.guests if set(self._lab.places(name)) != {1}]
        if lost:
            raise RuntimeError(f"These guests did not come back to {self._lab.host(1)}: {', '.join(lost)}.")


def run(effort: Effort) -> Section:
    """Move the guests in turn by every way, or only by those whose name contains what was asked for; then guests that are busier."""
    section = Section("Moves over a slow link", notes=list(NOTES))
    busy, full = effort.size(BUSY, 1), effort.size(FULL, 1)
    with fleet("l", 2) as control:
        _mixed(section, _Host(control, full, busy, PAGES_A_SECOND), effort)
        _half(section, _Host(control, full, busy, HALF_PAGES_A_SECOND), effort)
    return section


def _mixed(section: Section, host: _Host, effort: Effort) -> None:
    ways = {AUTO: host.by_the_collection("auto"), **{f"parallel: {window}": host.by_the_collection(window) for window in (4, 1)}}
    ways |= {_xargs(window): host.by_xargs(window) for window in (4, 2, 1)}
    found = host.measure(effort.chosen(ways), effort.rounds)
    section.figures += [_to_limit(host, "mixed host", way, series, GOAL if way == AUTO else None) for way, series in found.items()]
    others = {way: series for way, series in found.items() if way != AUTO}
    if AUTO in found and others:
        best = min(others, key=lambda way: others[way].median)
        ratio = found[AUTO].median / others[best].median
        section.figures.append(Figure(f"mixed host: {AUTO} beside the fastest fixed window, {best}", found[AUTO].told(), others[best].told(), ratio, AHEAD))


def _half(section: Section, host: _Host, effort: Effort) -> None:
    """Guests that write half of what the cable carries, each: two at once leave nothing for the rest. xargs is tried once, for it does not end."""
    what = f"busy guests that write {CABLE_MIB // 2} MiB/s each"
    found = host.measure(effort.chosen({f"{AUTO}, half": host.by_the_collection("auto")}), effort.rounds)
    found |= host.measure(effort.chosen({f"{_xargs(4)}, half": host.by_xargs(4)}), 1)
    section.figures += [_to_limit(host, what, way, series, HALF_GOAL if way.startswith(AUTO) else None) for way, series in found.items()]


def _to_limit(host: _Host, what: str, way: str, series: Series, goal: float | None) -> Figure:
    way = way.removesuffix(", half")
    lost = host.unfinished.get(way)
    unfinished = f", not ended after {LIMIT_SECONDS} s in {lost} of {len(series.values)}" if lost else ""
    return Figure(f"{what}: {way} to the limit", f"{series.told()}{unfinished}", f"{host.limit:.2f} s", series.median / host.limit, goal)


def _xargs(window: int) -> str:
    return f"xargs -P {window} virsh migrate"


def _span(moved: Outcome) -> Seconds:
    """Return the seconds from the first job's start to the last end of a move."""
    begun = [at for record in moved.records for at in [_at(record, "migrate")] if at]
    ended = [_at(record, str(record["status"])) for record in moved.records]
    return (max(at for at in ended if at) - min(begun)).total_seconds()


def _at(record: Record, status: str) -> datetime.datetime | None:
    return next((datetime.datetime.fromisoformat(line["at"]) for line in record["history"] if line["status"] == status), None)
