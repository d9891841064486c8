# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The service of the lease on a host: it renews the lease, and answers the peers."""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
import time
import typing as t

from .._model.clock import BootMoment, boot_moment, utc_now
from .._model.codec import ABSENT, Absent, encode
from .._model.errors import Internal
from .._model.leases import HELD, NONE, HostLease, LeaseAnswer, LeaseWatchdog
from .._run_folder import prepare_run_folder
from .._time_limits import answer_within
from .answering import Answerer, log_line
from .asking import ask_peers
from .config import LeaseConfig, describe_fleet, read_config
from .etcd import NotAcknowledged
from .renewal import DIRECT, Acknowledgement, Renewer
from .state import BLOCK, LeaseState, all_hosts, read_lease_state, read_reserved_count, reserve_counts, write_lease_state
from .view import ENDED, OwnView, judge_promises, needs_peers
from .watchdog import has_been_tested, read_watchdog

_DISK_SECONDS = 1.0
_ASK_EVERY_SECONDS = 1.0


def serve() -> t.NoReturn:
    """Renew the lease for ever. Raises L(Internal) if the host cannot begin."""
    prepare_run_folder()
    config = read_config()
    service = LeaseService(config, Renewer(config))
    Answerer(config, service.answer_peer).start()
    threading.Thread(target=service.keep_asking, name="asking", daemon=True).start()
    while True:
        begin = boot_moment().seconds
        service.renew()
        time.sleep(max(begin + config.renew_seconds - boot_moment().seconds, 0.1))


class LeaseService:
    """The lease in one run of the service; another run in the same boot goes on where this one was.

    :arg renewer: has the method C(renew) of L(Renewer).
    """

    def __init__(self, config: LeaseConfig, renewer: Renewer) -> None:
        self._config = config
        self._fleet = describe_fleet(config)
        self._renewer = renewer
        # Two threads change the state.
        self._lock = threading.RLock()
        self._state = begin_state(config)
        # Of this run; the view may only be used together with the clock, under the lock.
        self._view = self._state.view

    @property
    def state(self) -> LeaseState:
        """The state as it was written last."""
        return self._state

    def answer_peer(self, store: str = "") -> LeaseAnswer:
        """Return the answer to a peer.

        :arg store: the etcd of the peer: a lease in another one is none for it; empty for any.
        """
        with self._lock:
            now = boot_moment()
            is_held = self._view.is_held(now.seconds) and store in ("", self._config.store)
            return LeaseAnswer(self._config.host_id, now.boot_id, HELD if is_held else NONE)

    def keep_asking(self) -> t.NoReturn:
        """Ask the peers again and again while the host has no lease. A renewal that waits for etcd does not delay that."""
        while True:
            try:
                self.extend_run()
            except RuntimeError as error:  # no more threads
                log_line(f"The peers cannot be asked: {error}.")
            time.sleep(_ASK_EVERY_SECONDS)

    def extend_run(self) -> None:
        """Let a host without a lease run on for the time of a lease, from the question on, if most hosts of its fleet have none either.

        A controller that counts on a reset of this host has seen that most hosts had their leases all the time since it saw the last renewal of this host. So
        the question was asked before that renewal was seen, and the host runs on no longer than a lease that began there.
        """
        with self._lock:
            now, view, promises = boot_moment().seconds, self._view, self._state.promises or (all_hosts(self._config),)
        if not needs_peers(view, now):
            return
        answers = ask_peers(self._config.peers, [one.store for one in promises])
        if judge_promises(view, now, self._config.host_id, [(one.fleets, answers[one.store]) for one in promises]).keeps_running:
            self._write(boot_moment(), runs_until=now + self._config.lease_seconds)

    def renew(self) -> None:
        """Send one renewal. What goes wrong is noted in the state and in the log; the next renewal may succeed."""
        try:
            self._reserve_early()
            sent = self._begin_renewal()
            done = self._renewer.renew(functools.partial(self._describe_lease, sent))
        except NotAcknowledged as error:
            self._note_problem(f"The lease was not renewed: {error}.")
        except OSError as error:
            self._note_problem(f"The lease was not renewed, because a file of this host cannot be written: {error}.")
        except RuntimeError as error:  # no more threads
            self._note_problem(f"The lease was not renewed: {error}.")
        else:
            self._note_acknowledged(sent, done)

    def _reserve_early(self) -> None:
        """Reserve the next block when half of this one is used: a disk that cannot be written now has days to be repaired."""
        state = self._state
        if state.reserved - state.count > BLOCK // 2:
            return
        reserved = answer_within(_DISK_SECONDS, lambda: reserve_counts(state.reserved))
        if reserved is not None:
            with self._lock:
                self._state = dataclasses.replace(self._state, reserved=reserved)
        elif state.count >= state.reserved:
            raise OSError("no number for a renewal can be reserved on disk")

    def _begin_renewal(self) -> LeaseState:
        """Note the renewal before it is sent: its number is never used again, and a host that may have promised something knows it."""
        with self._lock:
            state = self._state
            # Before the first lease, a renewal names no bound watchdog, and promises nothing.
            fleets = tuple(dict.fromkeys((*state.fleets, self._config.host_ids))) if state.view.held_since else state.fleets
            sent = dataclasses.replace(state, at=boot_moment(), count=state.count + 1, fleets=fleets)
            write_lease_state(sent)
            self._state = sent
        return sent

    def _describe_lease(self, sent: LeaseState, path: str) -> bytes:
        config = self._config
        lease = HostLease(
            config.host_id,
            config.name,
            sent.at.boot_id,
            sent.count,
            sent.view.since(sent.at.seconds),
            config.lease_seconds,
            config.renew_seconds,
            self._fleet,
            path,
            utc_now(),
            sent.acknowledged_revision,
            _describe_watchdog(sent.view, config.grace_seconds),
            config.cluster_id,
        )
        return json.dumps(encode(lease)).encode("utf-8")

    def _note_acknowledged(self, sent: LeaseState, done: Acknowledgement) -> None:
        with self._lock:
            now = boot_moment()
            self._view = view = self._view.acknowledge(sent.count, sent.at.seconds, now.seconds, self._config.lease_seconds)
        # A lease that would have ended before its acknowledgement gives none, and what was promised before still holds.
        former = tuple(one for one in self._state.former or () if now.seconds < (one.until or 0.0))
        promised = {"fleets": (self._config.host_ids,), "former": former or ABSENT} if view.held_since else {}
        if sent.problem or done.path != sent.path:
            log_line("The lease is renewed." if done.path == DIRECT else f"The lease is renewed through {done.path}.")
        runs_until = view.held_until + self._config.grace_seconds if view.was_held else 0.0
        self._write(now, runs_until=runs_until, path=done.path, problem="", acknowledged_revision=done.revision, **promised)

    def _note_problem(self, problem: str) -> None:
        # Which ways were tried differs from one renewal to the next.
        if not self._state.problem:
            log_line(problem)
        self._write(boot_moment(), problem=problem)

    def _write(self, now: BootMoment, runs_until: float = 0.0, **changes: t.Any) -> None:
        """Note the state for the watchdog's test. If that fails, the test knows less than this service, and no next renewal is sent."""
        with self._lock:
            view, until = self._view, max(self._state.runs_until, runs_until)
            self._state = dataclasses.replace(self._state, at=now, held_until=view.held_until, held_since=view.held_since, runs_until=until, **changes)
            try:
                write_lease_state(self._state)
            except OSError as error:
                log_line(f"The state of the lease cannot be written: {error}.")


def begin_state(config: LeaseConfig) -> LeaseState:
    """Return the state with which a run of the service begins: that of the run before in this boot, else a new one with numbers that were never used.

    Raises L(Internal) or C(OSError) if no numbers can be reserved.
    """
    now, before = boot_moment(), _read_state_before()
    if before is None:
        return _make_state(now, config, has_been_tested())
    before = before.change_store(config.store, now.seconds)
    until = min(before.runs_until, now.seconds + config.lease_seconds + config.grace_seconds)
    if before.host_id != config.host_id:
        new = _make_state(now, config, before.view.was_held)
        return dataclasses.replace(new, runs_until=until, fleets=before.fleets, former=before.former)
    return dataclasses.replace(before, held_until=before.view.shorten(now.seconds, config.lease_seconds).held_until, runs_until=until)


def _make_state(now: BootMoment, config: LeaseConfig, was_held: bool) -> LeaseState:
    """Return a state with numbers that were never used.

    :arg was_held: whether the host has had a lease in this boot. It may have lost it long ago, so it counts as one that has ended.
    """
    least, view = read_reserved_count() or 0, ENDED if was_held else OwnView()
    return LeaseState(now, config.host_id, least, reserve_counts(least), view.held_until, 0.0, 0, (), 0, "", "", config.store)


def _read_state_before() -> t.Optional[LeaseState]:
    """Return the state of the run before in this boot; null if there was none, or its file is damaged."""
    try:
        return read_lease_state()
    except Internal as error:
        log_line(str(error))
        return None


def _describe_watchdog(view: OwnView, grace: int) -> t.Union[LeaseWatchdog, Absent]:
    """Return the watchdog. Before the first lease in an etcd it is not bound: nobody there may rely on a test that does not end a host that never had one."""
    found = read_watchdog(grace=grace)
    if found is None:
        return ABSENT
    return found if view.held_since else dataclasses.replace(found, bound=False)
