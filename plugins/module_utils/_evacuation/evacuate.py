# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of the module C(evacuate): reports what this host knows about a dead host and about the fleet, and starts domains in a sliding window."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import typing as t

from .._facts.gather import gather_facts
from .._facts.survey import compare_cpu
from .._host_identity import check_ledger_id, read_host_id
from .._libvirt.host import LibvirtHost, open_host
from .._model.clock import BootMoment, boot_moment
from .._model.codec import Json, decode, encode
from .._model.errors import Conflict, Internal, KvmfleetError, Unreachable, Unsafe
from .._model.evidence import SshEndpoint
from .._model.requests import DomainRequest
from .._model.saved_domains import DEFERRED, FAILED, UNKNOWN, DomainToProbe, PeerAnswers, RestartOrder, RestartResult
from .._module import Phase, Result, require_local, require_root
from .._run_folder import prepare_run_folder
from .._time_limits import end_process_soon, limit_questions
from . import qemu_locks
from .images import ImageLocator
from .peers import are_answers_valid, ask_fleet, ask_peers, probe_ssh_endpoints
from .restart import Restart, build_restart_result
from .start_checks import find_other_volumes, find_unproved, list_volumes, read_lock_states

_POLL_SECONDS = 1.0
# Storage that hangs blocks the start of a domain forever, and sometimes the daemon with it.
START_SECONDS = 300.0


class _SurveySurvivor(t.TypedDict):
    """The input of L(survey_survivor)."""

    ledger_id: t.Optional[str]
    ask: t.Mapping[str, str]
    dead: t.Sequence[str]
    knock: t.Sequence[Json]
    domains: t.Sequence[Json]
    paths: t.Sequence[str]


class _ProbeLocks(t.TypedDict):
    """The input of L(probe_locks)."""

    paths: t.Sequence[str]
    wait_seconds: float
    may_take: bool


class _StartDomains(t.TypedDict):
    """The input of L(start_domains)."""

    host_id: str
    orders: t.Sequence[Json]
    ask: t.Mapping[str, str]
    elsewhere: Json
    start_until: Json
    parallel: int


@limit_questions
def survey_survivor(uri: str, work: _SurveySurvivor) -> Result:
    """Return the view of this host; changes nothing.

    :arg work: C(ledger_id); C(ask), URIs of other hosts by name; C(dead), the names among them of hosts that are probably dead; C(knock), addresses and ports
      of the dead host; C(domains), see L(DomainToProbe); C(paths) of images.
    Returns C(at), when these answers were complete, C(facts) (C(kvmfleet_host)), C(warnings), C(fleet) (answers by name), C(doors) (the answers of the dead
    host's addresses and ports), C(unseen) (by UUID, why disks and files are not proved here), C(cpu) (by UUID, libvirt's verdict), C(locks) (by path, as
    L(probe_locks) has them).
    """
    require_root()
    check_ledger_id(work["ledger_id"])
    domains = [decode(DomainToProbe, domain, "domains") for domain in work["domains"]]
    endpoints = [decode(SshEndpoint, door, "knock") for door in work["knock"]]
    host = open_host(require_local(uri))
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            fleet = pool.submit(ask_fleet, work["ask"], open_host, dead=work.get("dead", ()), spread=True)
            doors = pool.submit(probe_ssh_endpoints, endpoints)
            facts, warnings = gather_facts(host)
            requests = {domain.uuid: decode(DomainRequest, domain.request, "request") for domain in domains}
            images = ImageLocator()
            seen = {
                one.uuid: {**find_unproved(one, images), **find_other_volumes(one.disks, list_volumes(requests[one.uuid]), facts.pools or ())}
                for one in domains
            }
            cpu = {uuid: encode(compare_cpu(host, request)) for uuid, request in requests.items()}
            answers = {"fleet": encode(fleet.result()), "doors": encode(doors.result()), "locks": read_lock_states(work["paths"], False, images.storage)}
        return {"changed": False, "at": encode(boot_moment()), "facts": encode(facts), "warnings": warnings, "unseen": seen, "cpu": cpu, **answers}
    finally:
        host.close()


def probe_locks(_uri: str, work: _ProbeLocks) -> Result:
    """Return C(locks): C(state) and C(why) of each image in C(paths), once none is locked, or C(wait_seconds) are over.

    :arg work: also C(may_take), as for L(read_lock_states).
    """
    require_root()
    deadline = time.monotonic() + work["wait_seconds"]
    while True:
        found = read_lock_states(work["paths"], work["may_take"])
        if all(one["state"] != qemu_locks.LOCKED for one in found.values()) or time.monotonic() >= deadline:
            return {"changed": False, "locks": found}
        time.sleep(_POLL_SECONDS)


def start_domains(uri: str, work: _StartDomains) -> Result:
    """Carry out C(orders) in their order, C(parallel) at a time. Returns C(at), the end, C(results), one an order, and C(elsewhere).

    After C(START_SECONDS), starts that have not ended are left to libvirt, and what waits behind them is deferred. Raises L(Unreachable) if all have begun
    and none has ended.

    :arg work: C(start_until), the moment of this host after which nothing is started, however long the orders were under way; null for orders that start
      nothing. C(host_id) that this host has to have; C(ask), the hosts that answered before; none of them may have an active copy of a domain now. While one of
      them does not answer, for example while its libvirt daemon starts, nothing is started. C(elsewhere): what the last call for some of these domains returned
      under that name, see L(PeerAnswers), or null; while it is valid, no host is queried.
    """
    require_root()
    require_local(uri)
    prepare_run_folder()
    _check_identity(work["host_id"])
    orders = [decode(RestartOrder, order, "orders") for order in work["orders"]]
    until = decode(BootMoment, work["start_until"], "start_until") if work["start_until"] else None
    peers = _ask_peers(work, {order.uuid for order in orders})

    def is_late() -> bool:
        return until is not None and until.has_passed(boot_moment())

    connections = _Connections(uri, is_late, lambda order: _refuse_order(order, peers, is_late()))
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=work["parallel"])
    starts = [pool.submit(connections.restart_domain, order) for order in orders]
    pool.shutdown(wait=False)
    if concurrent.futures.wait(starts, START_SECONDS).not_done:
        results = _leave_hung(orders, starts)
    else:
        # That of a start that hangs cannot be closed.
        connections.close()
        results = [start.result() for start in starts]
    changed = any(result.changed for result in results)
    return {"changed": changed, "at": encode(boot_moment()), "results": encode(results), "elsewhere": encode(peers)}


def _refuse_order(order: RestartOrder, peers: PeerAnswers, is_late: bool) -> t.Optional[RestartResult]:
    """Return why a domain is not started now; null if it may be started."""
    if order.uuid in peers.active:
        problem = Unsafe(f"Domain {order.name} is active on {peers.active[order.uuid]}. It was not started.")
        return build_restart_result(order, UNKNOWN if order.rejoin else FAILED, problem)
    return build_restart_result(order, DEFERRED) if peers.silent or is_late else None


def _leave_hung(orders: t.Sequence[RestartOrder], starts: t.Sequence[concurrent.futures.Future[RestartResult]]) -> t.List[RestartResult]:
    """Return the results of the starts that have ended; of the others, that they are deferred if they have not begun, and else unknown.

    The next round has the deferred ones alone. Raises L(Unreachable) if all starts have begun and none has ended.
    """
    deferred = {start: build_restart_result(order, DEFERRED) for order, start in zip(orders, starts) if start.cancel()}
    hung = {start: build_restart_result(order, UNKNOWN, _hung_error(order), changed=True) for order, start in zip(orders, starts) if not start.done()}
    end_process_soon(0)
    if len(hung) == len(starts):
        raise _hung_error(orders[0])
    left = {**hung, **deferred}
    return [left.get(start) or start.result() for start in starts]


def _hung_error(order: RestartOrder) -> Unreachable:
    return Unreachable(
        f"libvirt has not ended the start of domain {order.name} within {START_SECONDS:.0f} s, although its connection is alive.",
        "Its daemon, or the storage of the domain, may hang: check its log. Then run the task again, which asks what became of the start.",
    )


class _Connections:
    """One connection for each thread that starts domains: a start blocks all other calls on its connection."""

    def __init__(self, uri: str, is_late: t.Callable[[], bool], refuse: t.Callable[[RestartOrder], t.Optional[RestartResult]]) -> None:
        self._uri = uri
        self._is_late = is_late
        self._refuse = refuse
        self._own = threading.local()
        self._all: t.List[LibvirtHost] = []

    def restart_domain(self, order: RestartOrder) -> RestartResult:
        """Carry out an order; after one that broke the connection, the next has a new one. No error of one domain hides the results of the others."""
        try:
            return self._carry_out_order(order)
        except (OSError, RuntimeError) as error:  # no more files, or threads
            early = Internal(f"The start of domain {order.name} ended early: {error}.", "Run the task again: it verifies what was done.")
            return build_restart_result(order, UNKNOWN, early, changed=True)

    def _carry_out_order(self, order: RestartOrder) -> RestartResult:
        try:
            if getattr(self._own, "host", None) is None:
                self._own.host = open_host(self._uri)
                self._all.append(self._own.host)
        except KvmfleetError as error:
            return build_restart_result(order, UNKNOWN, error)
        result = Restart(self._own.host, order, refuse=lambda: self._refuse(order), is_late=self._is_late).carry_out_order()
        if result.error_code == Unreachable.error_code:
            self._own.host = None
        return result

    def close(self) -> None:
        """Close all connections."""
        for host in self._all:
            host.close()


def _ask_peers(work: _StartDomains, uuids: t.AbstractSet[str]) -> PeerAnswers:
    earlier = decode(PeerAnswers, work["elsewhere"], "elsewhere") if work["elsewhere"] else None
    return earlier if earlier and are_answers_valid(earlier, uuids, boot_moment()) else ask_peers(work["ask"], uuids, open_host)


def _check_identity(host_id: str) -> None:
    now = read_host_id()
    if now != host_id:
        raise Conflict(f"The ledger has {host_id} for this host, but the host reports {now}. Nothing was started.", "Protect the host again.")


PHASES: t.Dict[str, Phase] = {"look": survey_survivor, "locks": probe_locks, "start": start_domains}
