# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Requests to an etcd cluster through any member that answers: failover, timeouts, tokens, and refusals as errors of the collection."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import ssl
import threading
import time
import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import etcd_refusals
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal, InvalidArgument, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._time_limits import answer_all_within

from ..._settings.certificates import Validity
from ..document_bytes import TooLarge
from .connection import Connection, Endpoint, EtcdAddress, EtcdOptions
from .messages import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    UNAVAILABLE,
    UNKNOWN,
    DatabaseSize,
    Message,
    Overtaken,
    Page,
    Refused,
    TransactionResult,
    Unanswered,
    key_read,
    parse_lease,
    parse_page,
    parse_renewal,
    parse_result,
    parse_size,
)
from .quota import MAKE_ROOM

# Refusals of etcd itself begin so. Other texts with these codes are from the connection inside a member, which fails while the member is stopped.
_OWN_TEXTS = ("etcdserver: ", "auth: ")
_CODES_OF_TRANSPORT = (CANCELLED, UNKNOWN, INTERNAL)
# etcd has one code for several refusals; the text distinguishes them where it matters.
_COMMON_NAME = b"CommonName of client"
_WANTS_TLS = b"to an HTTPS server"
_LEARNER = "not supported for learner"
_NO_SPACE = "database space exceeded"
_TOO_MANY = "too many requests"
_TOO_LARGE = ("request is too large", "larger than max")


def classify_answer(answer: Message) -> t.Union[Refused, Unanswered]:
    """Return the meaning of an error answer: a refusal, or a retry with another member, or with the same one later."""
    code, text = t.cast("int", answer["code"]), str(answer.get("message") or answer.get("error") or "no reason given")
    is_of_transport = code in _CODES_OF_TRANSPORT and not text.startswith(_OWN_TEXTS)
    if is_of_transport or code in (DEADLINE_EXCEEDED, UNAVAILABLE) or _TOO_MANY in text or _LEARNER in text:
        return Unanswered(text)
    return Refused(code, text)


def not_etcd_error(status: int, body: bytes) -> Unanswered:
    """Return the meaning of an answer that is not from etcd's gateway."""
    if _COMMON_NAME in body:
        return Unanswered("with authentication enabled, it accepts no client certificate with a CommonName: use one with other names only", lasting=True)
    if _WANTS_TLS in body:
        return Unanswered("it requires TLS", lasting=True)
    return Unanswered(f"the service there is not etcd 3.4 or later (HTTP status {status})", lasting=True)


def is_stale_token(error: Refused) -> bool:
    """Whether the token is no longer valid: it expired, its member restarted, or users were changed."""
    return etcd_refusals.is_stale_token(error.code, str(error))


def login_error(error: Refused, address: EtcdAddress, user: t.Optional[str]) -> Forbidden:
    """Return why a user was rejected."""
    return Forbidden(f"The etcd ledger {address} rejects the user {user!r}: {error}.", "Correct user and password in 'kvmfleet_etcd'. Nothing was changed.")


def translate_refusal(error: Refused, address: EtcdAddress, user: t.Optional[str]) -> Exception:
    """Return the error of the collection for a refusal; L(Overtaken) and L(Refused) itself for refusals that the caller judges."""
    text = str(error)
    if error.code == OUT_OF_RANGE:
        return Overtaken(text)
    if error.code == NOT_FOUND:
        return error
    if error.code in (PERMISSION_DENIED, etcd_refusals.UNAUTHENTICATED) or etcd_refusals.wants_user(text):
        return _forbidden_error(address, user, text)
    if _NO_SPACE in text:
        return Internal(
            f"The database of the etcd ledger {address} is full: it accepts no further change.",
            f"{MAKE_ROOM} Moves in flight continue; run the same task again to follow them.",
        )
    if any(words in text for words in _TOO_LARGE):
        return TooLarge(f"The etcd ledger {address} rejected a document: {text}. Nothing was written.", "Raise --max-request-bytes of its members.")
    return Internal(f"The etcd ledger {address} refused a request: {text} (code {error.code}).", "Check the log of its members.")


def _forbidden_error(address: EtcdAddress, user: t.Optional[str], text: str) -> Forbidden:
    if user is None:
        return Forbidden(f"The etcd ledger {address} requires authentication: {text}.", "Give user and password with 'kvmfleet_etcd'. Nothing was changed.")
    return Forbidden(
        f"The etcd user {user!r} may not use the ledger {address}: {text}. Nothing was changed.",
        f"Grant a role of that user readwrite on the prefix {address.prefix} ('etcdctl role grant-permission --prefix=true ROLE readwrite {address.prefix}').",
    )


class MemberState(t.NamedTuple):
    """How one member answers.

    :arg problem: why it does not serve, without a period; null if it does.
    :arg certificate: the validity of its certificate; null without TLS, or if it does not answer.
    """

    problem: t.Optional[str]
    certificate: t.Optional[Validity] = None


_T = t.TypeVar("_T")
# A member without a leader takes up to 7 s to report this; another member is tried earlier.
REQUEST_SECONDS = 5.0
# After an answer that has taken longer, the next request goes to another member.
SLOW_SECONDS = 1.0
# A login is expensive for a member (bcrypt), and many at once take long. Retries would cost the other members the same.
LOGIN_SECONDS = 30.0
# Before the first answer the address may be wrong; after it the members are expected back, until they have not come back once.
FIRST_SECONDS = 10.0
PATIENCE_SECONDS = 40.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


class Client:
    """Safe between threads: one request at a time. Every request may be sent twice, because an answer can be lost.

    :arg clock: monotonic, in seconds; C(sleep) waits by it.
    :arg context: an existing TLS context, if any.
    """

    def __init__(
        self,
        address: EtcdAddress,
        options: EtcdOptions,
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
        self._took_seconds = 0.0
        self._clock = clock
        self._sleep = sleep
        self._context = context or options.make_ssl_context()
        self._connections = [Connection(endpoint, self._context, REQUEST_SECONDS) for endpoint in address.endpoints]
        self._token: t.Optional[str] = None
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def make_twin(self) -> Client:
        """Return another client of the same cluster, for another thread, so that neither waits for the other. It asks the same member first."""
        twin = Client(self.address, self.options, self._clock, self._sleep, self._context)
        twin._connections = [Connection(one.endpoint, self._context, REQUEST_SECONDS) for one in self._connections]
        twin.cluster_id, twin._token = self.cluster_id, self._token
        return twin

    def read_range(self, request: Message) -> Page:
        """Return the result of a read of L(messages). Raises L(Overtaken) for a revision that was compacted."""
        return self.send_request("kv/range", request, lambda answer: parse_page(answer, request))

    def run_transaction(self, compares: Sequence[Message], done: Sequence[Message], otherwise: Sequence[Message]) -> TransactionResult:
        """Do the first branch if all comparisons hold, else the other, atomically."""
        return self.send_request(
            "kv/txn", {"compare": compares, "success": done, "failure": otherwise}, lambda answer: parse_result(answer, compares, done, otherwise)
        )

    def grant_lease(self, seconds: int) -> int:
        """Return a new lease."""
        return self.send_request("lease/grant", {"TTL": str(seconds)}, parse_lease)

    def keep_alive(self, lease: int) -> None:
        """Renew a lease for its full time."""
        self.send_request("lease/keepalive", {"ID": str(lease)}, _ignore_answer)

    def renew_lease(self, lease: int) -> bool:
        """Renew a lease for its full time; return false if it has ended."""
        return self.send_request("lease/keepalive", {"ID": str(lease)}, parse_renewal) > 0

    def revoke_lease(self, lease: int) -> None:
        """End a lease. Raises L(Refused) if it has ended."""
        self.send_request("lease/revoke", {"ID": str(lease)}, _ignore_answer)

    def read_size(self) -> DatabaseSize:
        """Return the size of the database of the member that answers."""
        return self.send_request("maintenance/status", {}, parse_size)

    def survey_members(self) -> dict[Endpoint, MemberState]:
        """Ask each member of the address, side by side, how it is. Raises nothing of its answers."""
        endpoints = self.address.endpoints
        states = answer_all_within(REQUEST_SECONDS, {str(endpoint): functools.partial(self.make_twin()._survey_member, endpoint) for endpoint in endpoints})
        return {endpoint: states[str(endpoint)] or MemberState(f"no answer within {REQUEST_SECONDS:g} s") for endpoint in endpoints}

    def _survey_member(self, endpoint: Endpoint) -> MemberState:
        connection = Connection(endpoint, self._context, REQUEST_SECONDS)
        try:
            problem = self._find_problem(connection)
        except (Unanswered, KvmfleetError) as error:
            return MemberState(str(error).rstrip("."))
        return MemberState(problem, connection.read_certificate())

    def _find_problem(self, connection: Connection) -> t.Optional[str]:
        try:
            answer = self._post_request(connection, "maintenance/status", {}, self._token)
        except Refused:
            # A user with few rights: the member itself serves.
            return None
        except Unanswered as error:
            if not error.lasting:
                raise
            # A proxy may pass on the calls of a ledger only.
            with contextlib.suppress(Refused):
                self._post_request(connection, "kv/range", key_read(self.address.prefix), self._token)
            return None
        has_leader = str(answer.get("leader", "0")) != "0"
        return None if has_leader else "it is cut off from the other members, or most of them are down"

    def send_request(self, call: str, payload: Message, read: Callable[[Message], _T]) -> _T:
        """Return the cluster's answer as it is read.

        Raises the errors of the collection, L(Refused) for refusals that only the caller can judge, L(Overtaken).
        """
        with self._lock:
            self._begin_anew_after_fork()
            try:
                answer = self._ask_until_answered(call, payload, read)
            except Refused as error:
                raise translate_refusal(error, self.address, self.options.user) from error
            self._was_answered = True
            return answer

    def _ask_until_answered(self, call: str, payload: Message, read: Callable[[Message], _T]) -> _T:
        patience_seconds = self.patience_seconds or (PATIENCE_SECONDS if self._was_answered else FIRST_SECONDS)
        deadline, pause = self._clock() + patience_seconds, _FIRST_PAUSE_SECONDS
        while True:
            silent: dict[Endpoint, Unanswered] = {}
            for _turn in range(len(self._connections)):
                try:
                    answer = read(self._ask_once(self._connections[0], call, payload))
                except Unanswered as error:
                    silent[self._connections[0].endpoint] = error
                    self._prefer_next_member()
                else:
                    if self._took_seconds > SLOW_SECONDS:
                        self._prefer_next_member()
                    return answer
            if all(error.lasting for error in silent.values()) or self._clock() >= deadline:
                # Whoever goes on without etcd has further requests, and must not wait as long for each of them.
                self._was_answered = False
                raise self._unreachable_error(silent)
            self._sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _prefer_next_member(self) -> None:
        first, *others = self._connections
        self._connections = [*others, first]

    def _ask_once(self, connection: Connection, call: str, payload: Message) -> Message:
        """Ask one member; and ask again with a new token if the old one is no longer valid."""
        for is_last in (False, True):
            try:
                return self._post_request(connection, call, payload, self._get_token(connection))
            except Refused as error:
                if is_last or not self._token or not is_stale_token(error):
                    raise
                self._token = None
        raise AssertionError("unreachable")

    def _get_token(self, connection: Connection) -> t.Optional[str]:
        if self._token is None and self.options.user:
            patient = Connection(connection.endpoint, self._context, LOGIN_SECONDS)
            try:
                answer = self._post_request(patient, "auth/authenticate", {"name": self.options.user, "password": self.options.password}, None)
            except Refused as error:
                if not etcd_refusals.says_no_users(str(error)):
                    raise login_error(error, self.address, self.options.user) from error
                # This cluster has no authentication.
                return None
            self._token = str(answer.get("token", ""))
        return self._token

    def _post_request(self, connection: Connection, call: str, payload: Message, token: t.Optional[str]) -> Message:
        begun = self._clock()
        status, body = connection.post_request(f"/v3/{call}", json.dumps(payload).encode("ascii"), token)
        self._took_seconds = self._clock() - begun
        answer = _parse_error_of_stream(_parse_object(body))
        if answer is None or (status != 200 and not isinstance(answer.get("code"), int)):
            raise not_etcd_error(status, body)
        if status != 200 or "code" in answer:
            raise classify_answer(answer)
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

    def _unreachable_error(self, silent: dict[Endpoint, Unanswered]) -> Unreachable:
        reasons = "; ".join(f"{endpoint}: {error}" for endpoint, error in sorted(silent.items()))
        return Unreachable(
            f"The etcd ledger {self.address} could not be reached: {reasons}.",
            "Check that its members run, and that 'ledger' and 'kvmfleet_etcd' are correct; then run the task again.",
        )

    def _begin_anew_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for connection in self._connections:
                connection.forget_stream()


def _ignore_answer(_answer: Message) -> None:
    return None


def _parse_object(body: bytes) -> t.Optional[Message]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _parse_error_of_stream(answer: t.Optional[Message]) -> t.Optional[Message]:
    """Return the error of a call whose answers are a stream in the form of other calls; any other answer as it is.

    Other services answer in that form, too, but with codes that gRPC does not have.
    """
    error = answer.get("error") if answer else None
    if not isinstance(error, dict):
        return answer
    code = error.get("grpc_code", error.get("code"))
    return {"code": code, "message": error.get("message")} if isinstance(code, int) and 0 < code <= etcd_refusals.UNAUTHENTICATED else answer
