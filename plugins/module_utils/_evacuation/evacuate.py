# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of the module C(evacuate): what this host sees of a dead one and of the fleet, and starting domains in a sliding window."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import typing as t

from .._errors import Conflict, KvmfleetError, Unreachable, Unsafe
from .._facts.gather import gather
from .._facts.identity import read_host_id
from .._hypervisor.facts_host import LibvirtFactsHost, open_facts_host
from .._hypervisor.host import open_host
from .._hypervisor.starting import LibvirtStartingHost, open_starting_host
from .._module import require_local, require_root
from .._patience import patient
from .._watcher.files import run_folder
from . import locks
from .ask import ask_fleet
from .belonging import check_belongs
from .elsewhere import ask_elsewhere, moment, still_holds
from .knock import knock_at_all
from .restart import DEFERRED, UNKNOWN, Order, Restart
from .sight import lock_states, why_unseen

Json = t.Dict[str, t.Any]
Work = t.Mapping[str, t.Any]

_POLL_SECONDS = 1.0
_COMPARED_MODES = ("custom", "host-model")


@patient
def look(uri: str, work: Work) -> Json:
    """Return what this host sees; changes nothing.

    :arg work: C(ledger_id); C(ask), URIs of other hosts by name; C(knock), addresses and ports of the dead host; C(domains), each with C(uuid), C(disks),
      C(tokens) and C(request), and C(files) and C(fresh) as L(Restart) has them; C(paths) of images.
    Returns C(facts) (C(kvmfleet_host)), C(warnings), C(fleet) (answers by name), C(doors) (what answers where), C(unseen) (by UUID, why disks and
    files are not proved here), C(cpu) (by UUID, libvirt's verdict), C(locks) (by path, as L(probe_locks) has them).
    """
    require_root()
    check_belongs(work["ledger_id"])
    host = open_facts_host(require_local(uri))
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            fleet = pool.submit(ask_fleet, work["ask"], open_host)
            doors = pool.submit(knock_at_all, work["knock"])
            facts, warnings = gather(host)
            seen = {domain["uuid"]: why_unseen(domain) for domain in work["domains"]}
            cpu = {domain["uuid"]: _cpu(host, domain["request"]) for domain in work["domains"]}
            answers = {"fleet": fleet.result(), "doors": doors.result(), "locks": lock_states(work["paths"], may_take=False)}
        return {"changed": False, "facts": facts, "warnings": warnings, "unseen": seen, "cpu": cpu, **answers}
    finally:
        host.close()


def _cpu(host: LibvirtFactsHost, request: t.Mapping[str, t.Any]) -> t.Optional[Json]:
    cpu = request.get("cpu") or {}
    if cpu.get("mode") not in _COMPARED_MODES or not (cpu.get("xml") and request.get("arch") and request.get("virt_type")):
        return None
    try:
        return host.compare_cpu(request, cpu["xml"])
    except KvmfleetError:
        return None


def probe_locks(_uri: str, work: Work) -> Json:
    """Return C(locks): C(state) and C(why) of each image in C(paths), once none is locked, or C(wait_seconds) are over.

    :arg work: also C(may_take), as for L(lock_states).
    """
    require_root()
    deadline = time.monotonic() + work["wait_seconds"]
    while True:
        found = lock_states(work["paths"], work["may_take"])
        if all(one["state"] != locks.LOCKED for one in found.values()) or time.monotonic() >= deadline:
            return {"changed": False, "locks": found}
        time.sleep(_POLL_SECONDS)


def start(uri: str, work: Work) -> Json:
    """Carry out C(orders) in their turn, C(parallel) at a time; begin none after C(good_for_seconds). Returns C(results), one an order.

    :arg work: C(host_id) that this host has to have; C(ask), the hosts that answered before, of which none may have a domain active now. While one of them
      does not answer, as a libvirt daemon in the middle of a start, nothing is begun; C(waits_for) says so. C(elsewhere): what the last call for some of
      these domains returned under that name, or null; while it holds nobody is asked.
    """
    require_root()
    require_local(uri)
    run_folder()
    began = time.monotonic()
    _check_identity(work["host_id"])
    elsewhere = _elsewhere(work)

    def carry_out(order: Order) -> Json:
        if order["uuid"] in elsewhere["active"]:
            problem = Unsafe(f"Domain {order['name']} is active on {elsewhere['active'][order['uuid']]}. It was not started.")
            return {"uuid": order["uuid"], "outcome": UNKNOWN if order["rejoin"] else "failed", "changed": False, **_told(order, problem)}
        if elsewhere["silent"] or time.monotonic() - began >= work["good_for_seconds"]:
            return {"uuid": order["uuid"], "outcome": DEFERRED, "changed": False, **_told(order, None)}
        return connections.restarted(order)

    connections = _Connections(uri)
    try:
        with concurrent.futures.ThreadPoolExecutor(max_workers=work["parallel"]) as pool:
            results = list(pool.map(carry_out, work["orders"]))
    finally:
        connections.close()
    return {"changed": any(result["changed"] for result in results), "results": results, "waits_for": elsewhere["silent"], "elsewhere": elsewhere}


class _Connections:
    """One for each thread that starts domains: a start blocks all else on its own."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._own = threading.local()
        self._all: t.List[LibvirtStartingHost] = []

    def restarted(self, order: Order) -> Json:
        """Carry out an order; after one that broke the connection, the next has a new one."""
        try:
            if getattr(self._own, "host", None) is None:
                self._own.host = open_starting_host(self._uri)
                self._all.append(self._own.host)
        except KvmfleetError as error:
            return {"uuid": order["uuid"], "outcome": UNKNOWN, "changed": False, **_told(order, error)}
        result = Restart(self._own.host, order).run()
        if result["error_code"] == Unreachable.error_code:
            self._own.host = None
        return result

    def close(self) -> None:
        """Close all."""
        for host in self._all:
            host.close()


def _elsewhere(work: Work) -> Json:
    uuids = {order["uuid"] for order in work["orders"]}
    earlier = work.get("elsewhere")
    return t.cast(Json, earlier) if still_holds(earlier, uuids, moment()) else ask_elsewhere(work["ask"], uuids, open_host)


def _check_identity(host_id: str) -> None:
    now = read_host_id()
    if now != host_id:
        raise Conflict(f"The ledger has {host_id} for this host, which says it is {now}. Nothing was started.", "Protect the host again.")


def _told(order: Order, error: t.Optional[KvmfleetError]) -> Json:
    return {"generation": order["generation"], "msg": str(error) if error else "", "error_code": error.error_code if error else None}


PHASES: t.Dict[str, t.Callable[[str, Work], Json]] = {"look": look, "locks": probe_locks, "start": start}
