# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Members that die, hang, and come back: what is asked is answered, and what is written is written once."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import Message, range_read
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]
MOVED = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three members."""
    three = Cluster(tmp_path / "cluster")
    try:
        three.up()
        yield three
    finally:
        three.down()


class Moves(threading.Thread):
    """One move after the other, from the first status to the last, until it is stopped."""

    def __init__(self, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
        super().__init__(daemon=True)
        self.done: list[Stored] = []
        self.failure: t.Optional[BaseException] = None
        self._ledger, self._new_move, self._advance_record = ledger, new_move, advance_record
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.is_set():
                opened = self._ledger.open_record(self._new_move(f"web{len(self.done)}"))
                self.done.append(self._advance_record(self._ledger, opened, *MOVED))
        except BaseException as error:
            self.failure = error
            raise

    def wait_for_more(self, count: int) -> None:
        """Wait until that many further moves have ended."""
        wanted, deadline = len(self.done) + count, time.monotonic() + 90
        while len(self.done) < wanted:
            assert self.failure is None
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> None:
        self._over.set()
        self.join(90)
        assert not self.is_alive()
        assert self.failure is None


def all_there(ledger: Ledger, moves: Moves) -> None:
    """Every move that ended is there as its writer has it, and nothing else is."""
    assert {stored.record.id: stored.record for stored in moves.done} == {record.id: record for record in ledger.list_records()}
    assert {stored.version for stored in moves.done} == {6}
    assert ledger.verify_audit() == []


@pytest.mark.parametrize("fault", ["kill", "stop", "freeze"])
def test_changes_continue_without_the_etcd_leader(cluster: Cluster, new_move: NewMove, advance_record: AdvanceRecord, fault: str) -> None:
    ledger = open_ledger(cluster.location())
    moves = Moves(ledger, new_move, advance_record)
    moves.start()
    moves.wait_for_more(3)
    leader = cluster.leader()
    cluster.signal(leader, fault)
    moves.wait_for_more(5)
    if fault == "freeze":
        cluster.signal(leader, "thaw")
    else:
        cluster.start(leader)
    moves.wait_for_more(3)
    moves.end()
    all_there(open_ledger(cluster.location()), moves)


def test_changes_continue_after_all_members_were_down(cluster: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    moves = Moves(open_ledger(cluster.location()), new_move, advance_record)
    moves.start()
    moves.wait_for_more(3)
    for number in cluster.members:
        cluster.signal(number, "kill")
    time.sleep(5)
    for number in cluster.members:
        cluster.start(number)
    moves.wait_for_more(3)
    moves.end()
    all_there(open_ledger(cluster.location()), moves)


def test_a_ledger_works_without_one_member(cluster: Cluster, new_move: NewMove) -> None:
    cluster.signal(1, "kill")
    stored = open_ledger(cluster.location()).open_record(new_move())
    assert open_ledger(cluster.location()).read_record(stored.record.record_id) == stored


def test_a_ledger_without_a_majority_is_unreachable(cluster: Cluster, new_move: NewMove, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = open_ledger(cluster.location())
    ledger.open_record(new_move())
    for number in (1, 2):
        cluster.signal(number, "kill")
    t.cast(EtcdLedger, ledger)._client.patience_seconds = 1
    with pytest.raises(Unreachable, match="could not be reached"):
        ledger.open_record(new_move("web2"))
    monkeypatch.setattr(client, "FIRST_SECONDS", 1.0)
    with pytest.raises(Unreachable, match="could not be reached"):
        open_ledger(cluster.location())


def test_a_wrong_address_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_SECONDS", 0.5)
    with pytest.raises(Unreachable, match=r"etcd://127\.0\.0\.1:1/fleet could not be reached: 127\.0\.0\.1:1: Connection refused"):
        open_ledger("etcd://127.0.0.1:1/fleet")


def test_members_that_have_not_come_back_once_are_waited_for_as_long_as_a_wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evacuation writes the end of each start, and goes on where it cannot."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    asking = client.Client(parse_address("etcd://127.0.0.1:1/fleet"), EtcdOptions(), clock=lambda: now, sleep=sleep)
    with monkeypatch.context() as patch:
        patch.setattr(client.Client, "_ask_once", lambda *_arguments: {})
        asking.read_size()
    ends = []
    for _request in range(3):
        with pytest.raises(Unreachable):
            asking.read_size()
        ends.append(now)
    first, second, third = (round(end - begun) for begun, end in zip([0.0, *ends], ends, strict=False))
    assert first >= client.PATIENCE_SECONDS
    assert client.FIRST_SECONDS <= second == third < client.PATIENCE_SECONDS


def test_members_of_two_clusters_are_refused(cluster: Cluster, store: EtcdStore, new_move: NewMove) -> None:
    ledger = open_ledger(cluster.location("/fleet"))
    ledger.open_record(new_move())
    foreign = str(store.address.endpoints[0])
    mixed = open_ledger(f"etcd://{cluster.endpoints[0]},{foreign}/fleet")
    cluster.signal(1, "kill")
    with pytest.raises(InvalidArgument, match=f"{foreign} is of cluster"):
        mixed.open_record(new_move("web2"))
    assert store.client.read_range(range_read("/fleet/", "/fleet0")).found == ()


def test_a_server_that_is_not_etcd_is_unreachable(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(Unreachable, match=r"not etcd 3\.4 or later \(HTTP status 501\)"):
                open_ledger(f"etcd://127.0.0.1:{server.server_address[1]}/fleet")
        finally:
            server.shutdown()


class RefusingMember(http.server.BaseHTTPRequestHandler):
    """Answers every request with C(status) and C(body)."""

    status = 503
    body = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_args: t.Any) -> None:
        return


@contextlib.contextmanager
def refusing_member(status: int, error: dict[str, t.Any]) -> Iterator[str]:
    """A member that answers in the form of streamed calls; its address."""
    answer = type("Answer", (RefusingMember,), {"status": status, "body": json.dumps({"error": error}).encode()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("key", ["grpc_code", "code"])
@pytest.mark.parametrize("status", [503, 200])
def test_a_streamed_error_of_an_unavailable_member_is_left_to_the_next_one(store: EtcdStore, ledger: Ledger, key: str, status: int) -> None:
    with refusing_member(status, {key: 14, "http_code": 503, "message": "etcdserver: no leader"}) as refusing:
        address = parse_address(f"etcd://{refusing},{store.address.endpoints[0]}{store.address.prefix}")
        assert client.Client(address, EtcdOptions()).grant_lease(60)
        alone = client.Client(parse_address(f"etcd://{refusing}/fleet"), EtcdOptions())
        alone.patience_seconds = 0.1
        with pytest.raises(Unreachable, match=r"could not be reached: 127\.0\.0\.1:\d+: etcdserver: no leader"):
            alone.keep_alive(1)


@pytest.mark.parametrize(
    "refusal",
    [
        # What a member answers while it is stopped, without and with TLS; and one that joins the cluster, and that has no vote yet.
        {"code": 1, "message": "grpc: the client connection is closing"},
        {"code": 2, "message": "OK: HTTP status code 200; transport: missing content-type field"},
        {"code": 13, "message": "server closed the stream without sending trailers"},
        {"code": 9, "message": "etcdserver: rpc not supported for learner"},
    ],
)
@pytest.mark.parametrize("options", [EtcdOptions(), EtcdOptions(user="fleet", password="secret")])
def test_a_member_that_serves_nobody_now_is_left_for_the_next_one(
    store: EtcdStore, ledger: Ledger, proxy: Proxy, refusal: dict[str, t.Any], options: EtcdOptions
) -> None:
    proxy.refuses = lambda _call, _request: refusal
    address = parse_address(f"etcd://{proxy.endpoint},{store.address.endpoints[0]}{store.address.prefix}")
    assert client.Client(address, options).grant_lease(60)
    assert proxy.asked


def test_a_streamed_refusal_says_what_etcd_said() -> None:
    with refusing_member(500, {"grpc_code": 13, "http_code": 500, "message": "etcdserver: corrupt cluster"}) as refusing:
        member = client.Client(parse_address(f"etcd://{refusing}/fleet"), EtcdOptions())
        with pytest.raises(Internal, match=r"refused a request: etcdserver: corrupt cluster \(code 13\)"):
            member.keep_alive(1)


def test_an_error_of_another_service_is_not_one_of_etcd() -> None:
    with refusing_member(404, {"code": 404, "message": "Not found"}) as refusing:
        member = client.Client(parse_address(f"etcd://{refusing}/fleet"), EtcdOptions())
        with pytest.raises(Unreachable, match=r"the service there is not etcd 3\.4 or later \(HTTP status 404\)"):
            member.keep_alive(1)


def test_a_slow_member_is_asked_once(store: EtcdStore, proxy: Proxy) -> None:
    now = 0.0

    def answer_late(_call: str, _request: Message) -> None:
        nonlocal now
        now += 4

    proxy.before = answer_late
    address = parse_address(f"etcd://{proxy.endpoint},{store.address.endpoints[0]}{store.address.prefix}")
    asking = client.Client(address, EtcdOptions(), clock=lambda: now)
    for _request in range(2):
        assert asking.grant_lease(60)
    assert asking.make_twin().grant_lease(60)
    assert len(proxy.asked) == 1
