# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of a maintenance night, as moves leave them, at times of the test's own choice; always the same ones."""

from __future__ import annotations

import dataclasses
import datetime
import random
import typing as t
import uuid as uuid_module

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun, RunHolder, RunOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Act, Connection, HistoryLine, Sample
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MAX_SAMPLES, MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.interventions import end_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import (
    Now,
    PlannedHost,
    add_request,
    begin_fence,
    begin_host,
    begin_step,
    complete_host,
    fail_host,
    heed_request,
    new_run,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

Body = dict[str, t.Any]

BEGIN = datetime.datetime(2026, 11, 21, 1, 0, tzinfo=datetime.UTC)
MADE_AT = "2026-11-21T01:20:30.000Z"
OPERATOR = "root@control pid 4711"
WATCHER = "watcher pid 812"
GIB, MIB = 1024**3, 1024**2
# Of a link of 2.5 Gbit/s.
RATE = 290_000_000
# What the tasks of kvm1 were told about the link that its moves share.
LINK_MIB = 1200
MARKUP = "<img src=x onerror=\"document.title='taken'\">"
BREAKOUT = "</script><script>document.title='taken'</script>"
POLICY = {
    "timeout_seconds": {"value": 600, "source": "task"},
    "on_timeout": {"value": "abort", "source": "default"},
    "downtime_ms": {"value": 300, "source": "domain"},
    "auto_converge": {"value": True, "source": "profile"},
    "post_copy": {"value": False, "source": "default"},
}


def moment(seconds: float) -> str:
    """Return so many seconds after the night began, as records write it."""
    at = BEGIN + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def uuid_of(name: str) -> str:
    """Return the one UUID of that name."""
    return str(uuid_module.uuid5(uuid_module.NAMESPACE_DNS, name))


def place(host: str) -> HostRef:
    """Return a host as an end of a move."""
    return HostRef(host, uuid_of(f"id of {host}"), uuid_of(host))


def begun(
    name: str, source: str, destination: str, at: float, memory_mib: int = 4096, kind: str = s.LIVE_MIGRATION, forced: t.Optional[str] = None
) -> MoveRecord:
    """Return an accepted record of that second of the night."""
    request = {"memory_mib": memory_mib, "vcpus": 2}
    record = new_record(kind, DomainRef(uuid_of(name), name), place(source), place(destination), dict(POLICY), OPERATOR, request, forced)
    first = dataclasses.replace(record.history[0], at=moment(at))
    return dataclasses.replace(record, id=uuid_of(f"{name} {source} {destination} {at}"), created_at=moment(at), updated_at=moment(at), history=(first,))


def then(record: MoveRecord, status: str, at: float, detail: str = "", by: str = OPERATOR, reason: t.Optional[str] = None) -> MoveRecord:
    """Return the record with one more line of history; a status of records becomes its status."""
    lines = (*record.history, HistoryLine(moment(at), status, by, detail))
    after = dataclasses.replace(record, history=lines, updated_at=moment(at))
    return dataclasses.replace(after, status=status, reason=reason) if status in s.UNSETTLED | s.CLOSED | s.TOMBSTONE else after


def running(record: MoveRecord, at: float, booked: str = "The destination was verified and booked.") -> MoveRecord:
    """Return the record of a move whose job runs from that second on."""
    record = then(then(record, s.SCHEDULED, at - 0.4, booked), s.QUEUED, at - 0.3)
    record = then(then(record, s.PREPARING, at - 0.1, by=WATCHER), "migrate", at - 0.05, by=WATCHER)
    connection = Connection(link_mib=LINK_MIB) if record.source.host == "kvm1" else Connection()
    return dataclasses.replace(then(record, s.RUNNING, at, by=WATCHER), acts=(Act(moment(at - 0.05), "migrate"),), connection=connection)


def converging(memory: int, bandwidth: int, dirty_rate: int, took_ms: int, throttled: bool = False) -> tuple[Sample, ...]:
    """Return samples of a pre-copy: each iteration has to move what the guest wrote during the one before."""
    samples: list[Sample] = []
    left, iteration, throttle, written = memory, 1, 0, 0
    number = min(MAX_SAMPLES, max(3, took_ms // 500))
    step = took_ms // number
    for index in range(number):
        samples.append(
            Sample(
                elapsed_ms=index * step,
                remaining_bytes=left,
                bandwidth_bytes=bandwidth - bandwidth // 40 * (index % 4),
                dirty_rate_bytes=dirty_rate * (100 - throttle) // 100 + dirty_rate // 30 * (index % 3),
                allowed_downtime_ms=30 + 27 * (10 * index // number),
                throttle_percent=throttle,
                iteration=iteration,
            )
        )
        moved = bandwidth * step // 1000
        written += dirty_rate * (100 - throttle) // 100 * step // 1000
        left -= moved
        if left <= 0:
            iteration, left, written = iteration + 1, min(memory, max(written, 4 * MIB)), 0
            throttle = min(80, (throttle or 10) + 10) if throttled and iteration > 2 else throttle
    return tuple(samples)


def ended(record: MoveRecord, at: float, took_ms: int, downtime_ms: int, mode: str = "pre-copy", rung: t.Optional[str] = None, busy: int = 12) -> MoveRecord:
    """Return the record of a move that arrived.

    :arg busy: how fast the guest wrote, in hundredths of the bandwidth.
    """
    memory, bandwidth = record.memory_bytes, RATE
    samples = converging(memory, bandwidth, bandwidth * busy // 100, took_ms, busy > 60)
    after = then(record, s.COMPLETED, at + took_ms / 1000, "running (migrated) on the destination, not there on the source.", WATCHER)
    sent, predicted = bandwidth * took_ms // 1000, downtime_ms * 11 // 10 if rung else None
    progress = dataclasses.replace(record.progress, percent=100, memory_total_bytes=memory, memory_processed_bytes=sent)
    result = dataclasses.replace(record.result, elapsed_ms=took_ms, downtime_ms=downtime_ms, setup_ms=2, bytes=sent, iterations=samples[-1].iteration)
    result = dataclasses.replace(result, predicted_downtime_ms=predicted, mode=mode, rung=rung)
    return dataclasses.replace(after, samples=samples, progress=progress, result=result)


def keep(ledger: Ledger, *versions: MoveRecord) -> MoveRecord:
    """Write these versions of one record, in their order."""
    stored = ledger.open_record(versions[0])
    for version in versions[1:]:
        stored = ledger.update_record(stored, dataclasses.replace(version, generation=stored.record.generation))
    return stored.record


def arrived(
    ledger: Ledger, name: str, source: str, destination: str, at: float, took_ms: int, downtime_ms: int, memory_mib: int = 4096, **more: t.Any
) -> MoveRecord:
    """Write a live migration that completed."""
    record = begun(name, source, destination, at, memory_mib)
    return keep(ledger, record, ended(running(record, at + 1), at + 1, took_ms, downtime_ms, **more))


def refused(ledger: Ledger, name: str, source: str, destination: str, at: float, why: str) -> MoveRecord:
    """Write a live migration that no host could take."""
    record = begun(name, source, destination, at)
    return keep(ledger, record, then(record, s.CONFLICT, at + 0.1, f"{destination} cannot accept domain {name}: {why}"))


def stopped(ledger: Ledger, name: str, source: str, destination: str, at: float, took_ms: int, status: str, reason: t.Optional[str], detail: str) -> MoveRecord:
    """Write a live migration that ran and did not arrive."""
    record = begun(name, source, destination, at, 16384)
    run = running(record, at + 1)
    end = then(run, status, at + 1 + took_ms / 1000, detail, WATCHER, reason)
    samples = converging(16 * GIB, RATE, RATE * 93 // 100, took_ms, throttled=True)
    progress, result = dataclasses.replace(run.progress, percent=87), dataclasses.replace(run.result, elapsed_ms=took_ms)
    return keep(ledger, record, run, dataclasses.replace(end, samples=samples, progress=progress, result=result))


def evidence(host: str, at: float) -> Body:
    """Return what a fence agent said."""
    made = {"kind": "fence_agent", "host": host, "host_id": uuid_of(f"id of {host}"), "agent": "fence_ipmilan", "action": "off", "status": "off"}
    return {**made, "output": "Status: OFF", "at": moment(at), "by": OPERATOR, "ttl_seconds": 300, "reason": None}


def evacuated(ledger: Ledger, name: str, source: str, destination: str, at: float, cleaned: bool = False, forced: t.Optional[str] = None) -> MoveRecord:
    """Write an evacuation that is done, and where asked the cleanup after it."""
    record = dataclasses.replace(begun(name, source, destination, at, kind=s.EVACUATION, forced=forced), evidence=(evidence(source, at - 5),))
    booked = "The host was booked by force. Bypassed: It is 512 MiB of memory short." if forced else "The host was verified and booked."
    intent = then(record, s.PRE_MIGRATING, at + 0.2, booked)
    versions = [record, intent, then(intent, s.DONE, at + 3, "running (booted) on the destination.")]
    if cleaned:
        versions.append(then(versions[-1], s.COMPLETED, at + 300, "The definition on the old host was removed."))
    return keep(ledger, *versions)


def enter(ledger: Ledger, host: str, state: str = "enabled", reason: t.Optional[str] = None) -> None:
    """Write a host's entry."""
    entry = {"name": host, "host_id": uuid_of(f"id of {host}"), "host_uuid": uuid_of(host), "machine_id": None, "fencing": {}, "adopted": []}
    ledger.put_host(host_entry({**entry, "state": state, "reason": reason, "since": moment(-600), "by": OPERATOR}), None)


def night(ledger: Ledger, strange: bool = False) -> None:
    """Write a night in which kvm1 and kvm2 were drained, kvm6 died, and a few things went wrong.

    :arg strange: with domains whose names are markup.
    """
    chance = random.Random(7)
    for host in ("kvm3", "kvm4", "kvm5"):
        enter(ledger, host)
    for host in ("kvm1", "kvm2"):
        enter(ledger, host, "maintenance", "Kernel update")
    enter(ledger, "kvm6", "fenced", "It was off, and is evacuated")
    _drain(ledger, chance, "kvm1", 0, 22)
    _drain(ledger, chance, "kvm2", 420, 26)
    _trouble(ledger)
    for number, name in enumerate(("shop1", "shop2", "search1")):
        evacuated(ledger, name, "kvm6", ("kvm3", "kvm4", "kvm5")[number], 900 + number, cleaned=number == 2, forced="FORCED_REBUILD" if number == 1 else None)
    for number, name in enumerate((MARKUP, BREAKOUT) if strange else ()):
        arrived(ledger, name, "kvm3", "kvm4", 1020 + 40 * number, 28_000, 60)


def _drain(ledger: Ledger, chance: random.Random, source: str, at: float, domains: int) -> None:
    """Write the moves of a drain, four at a time."""
    free = [at, at + 0.2, at + 0.4, at + 0.6]
    for number in range(domains):
        window = free.index(min(free))
        gib = chance.choice((2, 4, 4, 8, 16, 32))
        busy = chance.choice((3, 8, 12, 20, 35))
        took = int(gib * 3700 * (1 + busy / 60) + chance.randrange(300, 2500))
        name = f"{chance.choice(('web', 'app', 'cache', 'mail', 'build'))}{source[-1]}{number:02d}"
        downtime = int(chance.lognormvariate(4.0, 0.8)) + 8
        mode = {"mode": "post-copy"} if number in (5, 11) else {}
        arrived(ledger, name, source, f"kvm{3 + number % 3}", free[window], took, downtime, gib * 1024, busy=busy, **mode)
        free[window] += took / 1000 + 2


def _trouble(ledger: Ledger) -> None:
    """Write what did not go well, and what was forced."""
    arrived(ledger, "db1", "kvm1", "kvm4", 60, 228_000, 284, 32768, busy=84)
    arrived(ledger, "db2", "kvm2", "kvm5", 440, 185_000, 1940, 24576, mode="paused", rung="suspend", busy=92)
    refused(ledger, "gpu1", "kvm2", "kvm5", 425, "Its device 0000:41:00.0 (vfio) cannot leave the host.")
    refused(ledger, "archive1", "kvm2", "kvm3", 426, "It is 6144 MiB of memory short: 2048 MiB are free, 8192 MiB are needed.")
    stopped(ledger, "ledger-db", "kvm1", "kvm3", 95, 242_000, s.CANCELLED, s.REASON_TIMEOUT, "It ran for 240 s, its timeout. The guest runs on kvm1.")
    arrived(ledger, "ledger-db", "kvm1", "kvm3", 360, 131_000, 431, 16384, busy=70)
    stopped(ledger, "queue1", "kvm2", "kvm4", 510, 61_000, s.FAILED, None, "The data channel to kvm4 was cut. The guest runs on kvm2.")
    stopped(ledger, "auth1", "kvm2", "kvm3", 540, 130_000, s.ERROR, "unreachable", "kvm3 did not answer for 45 s: nobody knows where the guest runs.")
    record = begun("erp1", "kvm2", "kvm4", 480, 8192, forced="FORCED_MIGRATE")
    run = running(record, 481, "The destination was booked by force. Bypassed: It is in maintenance (new disks).")
    keep(ledger, record, ended(run, 481, 39_100, 41))
    record = begun("report1", "kvm3", "kvm5", 1190, 8192)
    run = running(record, 1191)
    progress = dataclasses.replace(run.progress, percent=61)
    keep(ledger, record, dataclasses.replace(run, samples=converging(8 * GIB, RATE, 20_000_000, 26_000), progress=progress))


DRAINS = {
    "kvm1": {"safe_to_reboot": True, "blockers": [], "moved": [], "failed": []},
    "kvm2": {"safe_to_reboot": False, "blockers": ["gpu1 is running here.", "archive1 is running here.", "queue1 is running here."], "moved": []},
}


def many(number: int) -> list[MoveRecord]:
    """Return so many closed records with 60 samples each, spread over a month and 24 hosts; made without a ledger."""
    one = ended(running(begun("guest", "kvm01", "kvm08", 0), 1), 1, 30_000, 8)
    return [_another(one, index) for index in range(number)]


def _another(one: MoveRecord, index: int) -> MoveRecord:
    """Return the record as that of another guest, at another time, between other hosts."""
    lines = tuple(dataclasses.replace(line, at=moment(index * 259.2 + second)) for second, line in enumerate(one.history))
    return dataclasses.replace(
        one,
        source=dataclasses.replace(one.source, host=f"kvm{1 + index % 24:02d}"),
        destination=dataclasses.replace(one.destination, host=f"kvm{1 + (index + 7) % 24:02d}"),
        id=uuid_of(f"record {index}"),
        domain=DomainRef(uuid_of(f"guest {index}"), f"guest{index:05d}"),
        history=lines,
        created_at=lines[0].at,
        updated_at=lines[-1].at,
        result=dataclasses.replace(one.result, downtime_ms=8 + index % 613),
    )


def maintenance_run() -> MaintenanceRun:
    """Return the run of the night: the first host done and fenced in its reboot, the second one failed, the third one not begun; paused in between."""

    def now(minute: int, by: str = OPERATOR) -> Now:
        return Now(moment(60 * minute), BootMoment("boot", 60.0 * minute), by)

    hosts = [PlannedHost(host, predicted_seconds=90) for host in ("kvm1", "kvm2", "kvm3")]
    holder = RunHolder(OPERATOR, "control", "boot", "pid:[1]", 4711, 4711, moment(0))
    run = new_run(uuid_of("run"), hosts, RunOptions(1, 0, True, 10, moment(7200), 600), holder, now(0))
    run = begin_host(run, "kvm1", now(1))
    for minute, step in enumerate(m.STEPS, 1):
        run = begin_step(run, "kvm1", step, now(minute), "boot-1" if step == m.REBOOT else None)
        run = begin_fence(run, "kvm1", now(minute)) if step == m.REBOOT else run
    run = complete_host(run, "kvm1", now(8))
    run = heed_request(add_request(run, m.PAUSE, "alarm", now(9, "ann@control pid 4")), now(9))
    run = heed_request(add_request(run, m.RESUME, None, now(10, "ann@control pid 4")), now(10))
    run = begin_step(begin_step(begin_host(run, "kvm2", now(11)), "kvm2", m.CHECK, now(11)), "kvm2", m.BEFORE_DRAIN, now(12))
    run = fail_host(run, "kvm2", MARKUP, now(13))
    return end_run(run, now(14))
