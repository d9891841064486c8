# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import peers
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import ask_dead_host, ask_fleet
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainPresence, HostAnswer

WEB = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
DB = "6f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
OWN_ID = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"


class Host:
    """A host with these domains, which may break off while it is asked."""

    def __init__(self, presence: dict[str, bool], breaks: bool = False) -> None:
        self.closed = False
        self._presence = presence
        self._breaks = breaks

    def host_id(self) -> t.Optional[str]:
        return OWN_ID

    def host_uuid(self) -> str:
        return "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01"

    def list_presence(self) -> dict[str, bool]:
        if self._breaks:
            raise Unreachable("The connection is gone.")
        return self._presence

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        active = self.list_presence().get(uuid)
        return domain_states.NOT_THERE if active is None else domain_states.DomainView(present=True, active=active, persistent=True)

    def close(self) -> None:
        self.closed = True


def test_every_host_answers_with_its_domains() -> None:
    hosts = {"a": Host({WEB: True, DB: False}), "b": Host({})}
    answers = ask_fleet({"kvm1": "a", "kvm2": "b"}, hosts.__getitem__)
    assert answers["kvm1"].answered
    assert answers["kvm1"].domains == {WEB: DomainPresence(True), DB: DomainPresence(False)}
    assert answers["kvm2"].domains == {}
    assert all(host.closed for host in hosts.values())


def test_every_host_answers_with_its_host_id_unless_identify_is_off() -> None:
    assert ask_fleet({"kvm1": "a"}, lambda uri: Host({}))["kvm1"].host_id == OWN_ID
    assert ask_fleet({"kvm1": "a"}, lambda uri: Host({}), identify=False)["kvm1"].host_id is None


def test_only_wanted_domains_are_queried() -> None:
    """Those that the host is just starting would keep it from answering."""

    class Starting(Host):
        def view_domain(self, uuid: str) -> domain_states.DomainView:
            assert uuid != WEB
            return super().view_domain(uuid)

    gone = "7f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a13"
    answers = ask_fleet({"kvm1": "a"}, lambda _uri: Starting({WEB: True, DB: False}), {DB, gone})
    assert answers["kvm1"].domains == {DB: DomainPresence(False)}


def test_a_slow_host_is_queried_about_several_domains_at_once() -> None:
    """One after another, sixty domains of a dead host and a libvirt that takes 2 s for each would make it count as silent."""
    together = threading.Barrier(4)

    class Slow(Host):
        def view_domain(self, uuid: str) -> domain_states.DomainView:
            together.wait(30)
            return super().view_domain(uuid)

    uuids = {f"{number:08x}-5b0c-4c7a-9f0f-0d8f6f1f2a11" for number in range(40)}
    running, stopped = sorted(uuids)[:2]
    answers = ask_fleet({"kvm1": "a"}, lambda _uri: Slow({running: True, stopped: False}), uuids)
    assert answers["kvm1"].domains == {running: DomainPresence(True), stopped: DomainPresence(False)}


def test_a_host_of_which_one_query_fails_is_silent() -> None:
    """What it has answered about other domains says nothing about this one. Its connection is closed when no query uses it any more."""

    used_closed: list[bool] = []
    ended = threading.Event()

    class Failing(Host):
        def view_domain(self, uuid: str) -> domain_states.DomainView:
            if uuid == WEB:
                raise Unreachable("The connection is gone.")
            time.sleep(0.2)
            used_closed.append(self.closed)
            ended.set()
            return super().view_domain(uuid)

    host = Failing({DB: True})
    answers = ask_fleet({"kvm1": "a"}, lambda _uri: host, {WEB, DB})
    assert not answers["kvm1"].answered
    assert answers["kvm1"].msg == "The connection is gone."
    assert ended.wait(30)
    assert (host.closed, used_closed) == (True, [False])


def test_a_silent_host_differs_from_a_host_without_domains() -> None:
    broken = Host({}, breaks=True)

    def open_host(uri: str) -> Host:
        if uri == "silent":
            raise Unreachable("No route to host.", "Look at the cable.")
        return broken

    answers = ask_fleet({"kvm1": "silent", "kvm2": "broken"}, open_host)
    assert encode(answers["kvm1"]) == {"answered": False, "msg": "No route to host. Look at the cable.", "error_code": "unreachable"}
    assert not answers["kvm2"].answered
    assert "domains" not in encode(answers["kvm2"])
    assert broken.closed


def test_an_empty_fleet_has_no_answers() -> None:
    assert ask_fleet({}, lambda _uri: Host({})) == {}


def test_a_host_is_asked_in_its_slot_and_has_all_of_its_time_then(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(peers, "draw_slots", lambda uris: {"a": 1.2, "b": 0.2, "c": 0.1})

    def open_host(uri: str) -> Host:
        opened.append(uri)
        return Host({WEB: True})

    uris = {"kvm1": "a", "kvm2": "b", "kvm3": "c", "kvm4": "d"}
    answers = ask_fleet(uris, open_host, patience_seconds=1, dead=("kvm4",), spread=True)
    assert opened == ["d", "c", "b", "a"]
    assert all(answers[name].answered for name in ("kvm1", "kvm2", "kvm3"))
    opened.clear()
    ask_fleet({"kvm1": "a", "kvm2": "b"}, open_host)
    assert sorted(opened) == ["a", "b"]


def test_a_host_that_never_answers_counts_as_silent() -> None:
    enough = threading.Event()

    class Busy(Host):
        def list_presence(self) -> dict[str, bool]:
            enough.wait(60)
            return {}

    hosts = {"busy": Busy({}), "quick": Host({WEB: True})}
    answers = ask_fleet({"kvm1": "busy", "kvm2": "quick"}, hosts.__getitem__, patience_seconds=1)
    enough.set()
    assert not answers["kvm1"].answered
    assert answers["kvm1"].error_code == "unreachable"
    assert answers["kvm2"].answered


def answer(seconds: float = 0.0) -> t.Callable[[], HostAnswer]:
    def ask() -> HostAnswer:
        time.sleep(seconds)
        return HostAnswer(True)

    return ask


def test_a_dead_host_with_a_silent_port_has_the_time_of_one_attempt() -> None:
    begun = time.monotonic()
    found = ask_dead_host("qemu+tcp://192.0.2.1/system", answer(30.0), 90.0, lambda uri: True, least_seconds=0.2)
    assert (found.answered, found.msg) == (False, "libvirt at qemu+tcp://192.0.2.1/system did not answer within 0 s.")
    assert time.monotonic() - begun < 10


def test_a_host_that_answers_meanwhile_has_answered_whatever_its_port_said() -> None:
    """As behind a jump host that the SSH configuration does not show."""
    assert ask_dead_host("qemu+ssh://kvm1/system", answer(), 90.0, lambda uri: True, least_seconds=5.0).answered


def test_a_host_whose_port_answers_has_the_time_of_any_other() -> None:
    assert ask_dead_host("qemu+tcp://kvm1/system", answer(0.3), 90.0, lambda uri: False, least_seconds=0.0).answered


def test_a_dead_host_that_could_not_be_asked_for_want_of_a_thread_is_not_silent() -> None:
    """It may be alive and run the domains, and its answer would contradict whoever confirms that it is off."""

    def open_host(uri: str) -> Host:
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start new thread"):
        ask_fleet({"kvm1": "qemu+tcp://127.0.0.1:1/system"}, open_host, dead=["kvm1"])


def test_only_the_dead_host_is_asked_in_this_way() -> None:
    """The port of the other host is closed, and it answers nevertheless."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    uris = {name: f"qemu+tcp://127.0.0.1:{port}/{name}" for name in ("kvm1", "kvm2")}
    answers = ask_fleet(uris, lambda uri: Host({WEB: True}), dead=["kvm1"])
    assert [name for name in answers if answers[name].answered] == ["kvm1", "kvm2"]
