# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power cuts from seeds: from the moment a host dies, or its network does, to its guests on other hosts, without a person.

Real hosts with leases in a real etcd, the rulebook C(host_gone) under a real ansible-rulebook, and the lab's fence agent. It runs in the environment of the
suite C(eda), which has ansible-rulebook. Each cut leaves a line of JSON.
"""

from __future__ import annotations

import abc
import argparse
import datetime
import json
import math
import os
import pathlib
import random
import sys
import tempfile
import time
import types
import typing as t

from ansible_collections.kvmfleet.migration.bench.figures import Figure, Section
from ansible_collections.kvmfleet.migration.bench.table import rewrite
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import new_brake
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import Rulebook
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually, fresh_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.leased import LeasedSite, begin_cluster
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS

KILL, BLACK_HOLE = "kill", "black hole"
LIMIT_SECONDS = 900
GOAL_SECONDS = 90
# The same guests are on hosts that die, again and again, and are not the cause.
REPEATED: t.Mapping[str, t.Any] = types.MappingProxyType({"kvmfleet_events_restart_limit": {}})
# Of the rulebook, to connect to all hosts.
CONNECT_SECONDS = 20
UP = "up"
# By key the stages of a death, each from the cut on.
STAGES = {
    "suspect": "Host suspect",
    "gone": "Host gone, reaction begun",
    "reserved": "Last guest reserved on another host",
    "starting": "Last guest being started",
    UP: "Last guest up",
}
TITLE = "Power cuts"
_NOTE = """From the cut of the power of a host, or of its network, to its guests on other hosts, without a person: three hosts of the lab with leases
in an etcd of three members, the rulebook host_gone under ansible-rulebook with gone after 30 s, and a fence agent that answers at once. Host, kind
and time follow from a seed for each cut; between two cuts, the host is brought back by recover. Whether a guest runs twice is seen on all hosts, also
on those that were cut off. `make power-cuts`."""


class Cuts:
    """A fleet whose hosts die one after the other, each with all guests that are there. What the hosts are is said by a subclass.

    :arg site: the control node of a fleet whose hosts have leases.
    :arg etcd: the options of its ledger in etcd.
    :arg gone_after: after how many seconds of silence a host is gone.
    """

    events: t.Mapping[str, t.Any] = types.MappingProxyType({})
    """Further variables of the rulebook."""

    def __init__(self, site: Control, etcd: t.Mapping[str, t.Any], gone_after: int) -> None:
        self._site, self._etcd, self._gone_after = site, etcd, gone_after

    @abc.abstractmethod
    def list_active(self) -> dict[int, set[str]]:
        """Return the guests that are active, by host that answers."""

    @abc.abstractmethod
    def list_running(self) -> list[str]:
        """Return the names of the guests that run on all hosts, also on those that nobody reaches; one that runs twice is there twice."""

    @abc.abstractmethod
    def kill(self, number: int) -> None:
        """Cut the power of a host."""

    @abc.abstractmethod
    def isolate(self, number: int) -> None:
        """Let nothing pass between a host and all others."""

    @abc.abstractmethod
    def restore(self, number: int) -> None:
        """Bring a host back as a person does, and let the brake forget it."""

    def begin_rulebook(self) -> Rulebook:
        """Begin an armed rulebook; it is ready when it leads."""
        etcd = {"kvmfleet_events_ledger": self._site.where, "kvmfleet_events_etcd": self._etcd}
        armed = {"kvmfleet_events_evacuate": True, "kvmfleet_events_gone_after_seconds": self._gone_after}
        rulebook = Rulebook(self._site, "kvmfleet.migration.host_gone", **etcd, **armed, **self.events)
        rulebook.meanwhile(lambda: "Loading rulebook" in rulebook.text(), "the rulebook is loaded", LIMIT_SECONDS)
        time.sleep(CONNECT_SECONDS)
        return rulebook

    def cut(self, seed: int, rulebook: Rulebook) -> dict[str, t.Any]:
        """Let a host die, and return the seconds from then on to the end of each stage."""
        chance, fleet = random.Random(seed), self.list_active()
        victim = chance.choice([number for number, active in fleet.items() if active])
        kind = chance.choice((KILL, BLACK_HOLE))
        lost, before, begun = fleet[victim], len(rulebook.text()), time.time()
        (self.kill if kind == KILL else self.isolate)(victim)
        seen = self._follow(rulebook, before, begun, victim, lost)
        return {"seed": seed, "victim": victim, "kind": kind, "guests": len(lost), **seen, **self._judge(lost)}

    def _follow(self, rulebook: Rulebook, before: int, begun: float, victim: int, lost: set[str]) -> dict[str, float]:
        seen: dict[str, float] = {}
        words = {"suspect": "is suspect", "gone": "PLAY [Evacuate a host that is gone]"}

        def is_up() -> bool:
            new = rulebook.text()[before:]
            for stage, text in words.items():
                if text in new:
                    seen.setdefault(stage, round(time.time() - begun, 1))
            return lost <= self._done_since(begun, victim).keys()

        rulebook.meanwhile(is_up, f"the guests of {self._site.name(victim)} are up", LIMIT_SECONDS)
        times = self._done_since(begun, victim).values()
        for stage, status in (("reserved", "accepted"), ("starting", "pre-migrating"), ("up", "done")):
            seen[stage] = round(max(one[status] for one in times) - begun, 1)
        return seen

    def _done_since(self, begun: float, victim: int) -> dict[str, dict[str, float]]:
        """Return when the evacuations of that host reached each status, by guest."""
        found = {}
        for record in self._site.records():
            times = {line["status"]: _seconds(line["at"]) for line in record["history"]}
            if record["type"] == "evacuation" and record["source"]["host"] == self._site.name(victim) and times.get("done", 0.0) > begun:
                found[record["domain"]["name"]] = times
        return found

    def _judge(self, lost: set[str]) -> dict[str, int]:
        """Count guests that run twice or nowhere, whatever the records say: a host that was only cut off may still run its own."""
        running = self.list_running()
        return {"twice": sum(running.count(name) > 1 for name in lost), "nowhere": sum(name not in running for name in lost)}

    def _forget_incident(self) -> None:
        ledger = self._site.ledger
        ledger.put_brake(new_brake(ledger.ledger_id), ledger.read_brake())


class LabCuts(Cuts):
    """Power cuts of hosts of the lab."""

    def __init__(self, lab: Lab, folder: pathlib.Path, guests: int, gone_after: int) -> None:
        site = LeasedSite(lab, folder)
        super().__init__(site, site.etcd["kvmfleet_etcd"], gone_after)
        self._lab, self._lab_site = lab, site
        for number in HOSTS:
            for name, value in {**site.etcd, **REPEATED}.items():
                site.variable(number, name, value)
        for index in range(guests):
            lab("guest", f"g{index}", "--host", lab.host(HOSTS[index % len(HOSTS)]), "--mib", "32", "--storage", "shared")
        site.lease_hosts()

    def list_active(self) -> dict[int, set[str]]:
        return self._lab_site.fleet()

    def list_running(self) -> list[str]:
        return [guest["name"] for row in self._lab.rows().values() for guest in row["guests"] if guest["state"] != "shut off"]

    def kill(self, number: int) -> None:
        self._lab("poweroff", self._lab.host(number))

    def isolate(self, number: int) -> None:
        self._lab("cut", self._lab.host(number), "--all")

    def restore(self, number: int) -> None:
        self._lab("heal", self._lab.host(number))
        self._lab_site.bring_back(number)
        code, text = self._lab_site.playbook("recover", target=self._lab_site.name(number))
        assert code == 0, text
        self._forget_incident()
        self._lab_site.protect()
        eventually(lambda: number in self.list_active(), "the host answers")
        # The rulebook connects to it again.
        time.sleep(CONNECT_SECONDS)


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def percentile(values: t.Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def main() -> int:
    """Cut, and report the figures."""
    parser = make_parser(__doc__)
    parser.add_argument("--guests", type=int, default=6, help="on three hosts")
    wanted = parser.parse_args()
    with fresh_lab(f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'kvb')}pc", len(HOSTS)) as lab, tempfile.TemporaryDirectory() as folder:
        begin_cluster(lab)
        try:
            done = run_cuts(LabCuts(lab, pathlib.Path(folder) / "site", wanted.guests, wanted.gone_after), wanted)
        finally:
            lab("etcd", "down")
    return report(make_section(TITLE, _NOTE, done, GOAL_SECONDS), wanted.page, "power-cuts")


def make_parser(text: str | None) -> argparse.ArgumentParser:
    """Return the options that all kinds of hosts have."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first cut; the others follow")
    parser.add_argument("--gone-after", type=int, default=30, help="seconds of silence")
    parser.add_argument("--until-seconds", type=int, default=10**6, help="begin no cut after so many seconds")
    parser.add_argument("--page", type=pathlib.Path, help="the page of figures whose section is rewritten")
    return parser


def run_cuts(cuts: Cuts, wanted: argparse.Namespace) -> list[dict[str, t.Any]]:
    """Cut as often as wanted; return, and print, what came of each cut."""
    done: list[dict[str, t.Any]] = []
    begun, rulebook = time.monotonic(), cuts.begin_rulebook()
    try:
        for seed in range(wanted.seed, wanted.seed + wanted.cuts):
            if time.monotonic() - begun >= wanted.until_seconds:
                break
            if done:
                cuts.restore(done[-1]["victim"])
            done.append(cuts.cut(seed, rulebook))
            print(json.dumps(done[-1]), flush=True)
    finally:
        rulebook.kill()
    return done


def report(section: Section, page: pathlib.Path | None, name: str) -> int:
    """Print the figures, and write them on the page; return 1 if one has not reached its goal."""
    for figure in section.figures:
        print(f"{figure.what}: {figure.measured} {figure.beside}", flush=True)
    if page:
        rewrite(page, name, section, 1)
    return int(any(figure.reached is False for figure in section.figures))


def make_section(title: str, note: str, done: t.Sequence[dict[str, t.Any]], goal: float | None) -> Section:
    """Return what the cuts have shown.

    :arg goal: the seconds within which the guests have to be up after nearly all cuts.
    """
    kinds = ", ".join(f"{sum(one['kind'] == kind for one in done)} × {kind}" for kind in (KILL, BLACK_HOLE))
    figures = []
    for stage, what in STAGES.items():
        values = [one[stage] for one in done if stage in one]
        if values:
            most = percentile(values, 0.95)
            measured = f"{percentile(values, 0.5):.1f} s, {most:.1f} s, {max(values):.1f} s"
            figures.append(Figure(f"{what} (median, 95th percentile, longest)", measured, "", *((most, goal) if stage == UP else ())))
    for key, what in (("twice", "Guests that ran on two hosts"), ("nowhere", "Guests that ran nowhere")):
        number = sum(one[key] for one in done)
        figures.append(Figure(what, str(number), f"{len(done)} cuts ({kinds}), {sum(one['guests'] for one in done)} guests lost", number, 0))
    return Section(title, figures, [note])


if __name__ == "__main__":
    sys.exit(main())
