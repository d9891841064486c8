# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Asking an etcd cluster through whichever of its members answers: failover, patience, tokens, and refusals as sentences."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, Unreachable

from . import failures as f
from . import refusals
from .address import Address, Endpoint
from .connection import Connection
from .messages import Done, Message, Page, done_of, lease_of, page_of
from .options import Options

_T = t.TypeVar("_T")
# A member without a leader takes up to 7 s to say so; another one is asked before.
REQUEST_SECONDS = 5.0
# A login costs a member much work (bcrypt). Many at once take their time; asked elsewhere meanwhile, they would cost the other members the same.
LOGIN_SECONDS = 30.0
# Before the first answer the address may be wrong; after it the members are expected back.
FIRST_SECONDS = 10.0
PATIENCE_SECONDS = 40.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


class Client:
    """Safe between threads: one request at a time. Everything asked may be asked twice, since an answer can get lost.

    :arg clock: monotonic, in seconds; C(sleep) waits by it.
    :arg context: what TLS is spoken with, where there is one already.
    """

    def __init__(
        self,
        address: Address,
        options: Options,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        context: t.Optional[ssl.SSLContext] = None,
    ) -> None:
        self.address = address
        self.options = options
        self.cluster_id: t.Optional[str] = None
        self.patience_seconds: t.Optional[float] = None
        """How long members that do not answer are tried; None for what fits."""
        self._was_answered = False
        self._clock = clock
        self._sleep = sleep
        self._context = context or options.context()
        self._connections = [Connection(endpoint, self._context, REQUEST_SECONDS) for endpoint in address.endpoints]
        self._token: t.Optional[str] = None
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def twin(self) -> Client:
        """Return another client of the same cluster, for another thread: neither waits for the other."""
        twin = Client(self.address, self.options, self._clock, self._sleep, self._context)
        twin.cluster_id, twin._token = self.cluster_id, self._token
        return twin

    def range(self, request: Message) -> Page:
        """Return what a read of L(messages) finds. Raises L(Overtaken) for a revision that was compacted."""
        return self.ask("kv/range", request, lambda answer: page_of(answer, request))

    def transaction(self, compares: list[Message], done: list[Message], otherwise: list[Message]) -> Done:
        """Do the one where all comparisons hold, else the other, at once."""
        return self.ask("kv/txn", {"compare": compares, "success": done, "failure": otherwise}, lambda answer: done_of(answer, compares, done, otherwise))

    def grant(self, seconds: int) -> int:
        """Return a new lease."""
        return self.ask("lease/grant", {"TTL": str(seconds)}, lease_of)

    def keep_alive(self, lease: int) -> None:
        """Let a lease last as long as it was granted for, from now on."""
        self.ask("lease/keepalive", {"ID": str(lease)}, _unread)

    def revoke(self, lease: int) -> None:
        """End a lease. Raises L(Refused) where it has ended."""
        self.ask("lease/revoke", {"ID": str(lease)}, _unread)

    def ask(self, call: str, payload: Message, read: Callable[[Message], _T]) -> _T:
        """Return the cluster's answer as it is read. Raises the errors of the collection, L(Refused) for what only the caller can judge, L(Overtaken)."""
        with self._lock:
            self._begin_anew_after_fork()
            try:
                answer = self._ask_until_answered(call, payload, read)
            except f.Refused as error:
                raise refusals.sentence(error, self.address, self.options.user) from error
            self._was_answered = True
            return answer

    def _ask_until_answered(self, call: str, payload: Message, read: Callable[[Message], _T]) -> _T:
        patience_seconds = self.patience_seconds or (PATIENCE_SECONDS if self._was_answered else FIRST_SECONDS)
        deadline, pause = self._clock() + patience_seconds, _FIRST_PAUSE_SECONDS
        while True:
            silent: dict[Endpoint, f.Unanswered] = {}
            for _turn in range(len(self._connections)):
                try:
                    return read(self._ask_once(self._connections[0], call, payload))
                except f.Unanswered as error:
                    silent[self._connections[0].endpoint] = error
                    self._connections.append(self._connections.pop(0))
            if all(error.lasting for error in silent.values()) or self._clock() >= deadline:
                raise self._unreachable(silent)
            self._sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _ask_once(self, connection: Connection, call: str, payload: Message) -> Message:
        """Ask one member; once more with a new token where the old one is not valid any more."""
        for is_last in (False, True):
            try:
                return self._post(connection, call, payload, self._login(connection))
            except f.Refused as error:
                if is_last or not self._token or not refusals.is_stale_token(error):
                    raise
                self._token = None
        raise AssertionError("unreachable")

    def _login(self, connection: Connection) -> t.Optional[str]:
        if self._token is None and self.options.user:
            patient = Connection(connection.endpoint, self._context, LOGIN_SECONDS)
            try:
                answer = self._post(patient, "auth/authenticate", {"name": self.options.user, "password": self.options.password}, None)
            except f.Refused as error:
                if error.code != f.FAILED_PRECONDITION:
                    raise refusals.no_login(error, self.address, self.options.user) from error
                # This cluster asks nobody who he is.
                return None
            self._token = str(answer.get("token", ""))
        return self._token

    def _post(self, connection: Connection, call: str, payload: Message, token: t.Optional[str]) -> Message:
        status, body = connection.post(f"/v3/{call}", json.dumps(payload).encode("ascii"), token)
        answer = _object(body)
        if answer is None or (status != 200 and not isinstance(answer.get("code"), int)):
            raise refusals.no_etcd(status, body)
        if status != 200:
            raise refusals.refused(answer)
        self._check_cluster(connection.endpoint, answer)
        return answer

    def _check_cluster(self, endpoint: Endpoint, answer: Message) -> None:
        header = answer.get("header")
        cluster = str(header.get("cluster_id")) if isinstance(header, dict) else None
        if cluster is None or cluster == self.cluster_id:
            return
        if self.cluster_id is not None:
            raise InvalidArgument(
                f"The members in {self.address} belong to several clusters: {endpoint} is of cluster {cluster}, the one before it of {self.cluster_id}.",
                "Name members of one cluster only.",
            )
        self.cluster_id = cluster

    def _unreachable(self, silent: dict[Endpoint, f.Unanswered]) -> Unreachable:
        reasons = "; ".join(f"{endpoint}: {error}" for endpoint, error in sorted(silent.items()))
        return Unreachable(
            f"The etcd ledger {self.address} could not be reached: {reasons}.",
            "See that its members run, and that 'ledger' and 'kvmfleet_etcd' are right; then run the task again.",
        )

    def _begin_anew_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for connection in self._connections:
                connection.forget()


def _unread(_answer: Message) -> None:
    return None


def _object(body: bytes) -> t.Optional[Message]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
