# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host half of C(host_lease): on which hosts it changes nothing."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _host_identity
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.watchdog_install import WatchdogChange
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._systemd import UnitChange

from .conftest import make_config

ONE, OTHER = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01", "2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"
URI = "qemu:///system"


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> t.List[str]:
    """What was changed on a host of the ledger C(ONE)."""
    done: t.List[str] = []

    def change(name: str, result: object) -> t.Callable[..., object]:
        def call(*_arguments: object, **_options: object) -> object:
            done.append(name)
            return result

        return call

    monkeypatch.setattr(phases, "require_root", lambda: None)
    monkeypatch.setattr(_host_identity, "read_ledger_id", lambda _path: ONE)
    monkeypatch.setattr(phases, "read_host_id", lambda: make_config().host_id)
    monkeypatch.setattr(phases, "unbind_watchdog", change("unbind", WatchdogChange(())))
    monkeypatch.setattr(phases, "remove_lease", change("remove", UnitChange((), True)))
    monkeypatch.setattr(phases, "install_lease", change("install", UnitChange((), True)))
    return done


@pytest.mark.parametrize("ledger_id", [OTHER, None])
@pytest.mark.parametrize("check", [True, False])
def test_the_lease_of_a_host_of_another_ledger_is_not_removed(changes: t.List[str], ledger_id: t.Optional[str], check: bool) -> None:
    """Its own ledger would take the silence of the host for a reset by its watchdog."""
    with pytest.raises(Conflict, match=f"was protected under the ledger {ONE}"):
        phases.remove(URI, {"ledger_id": ledger_id, "check": check})
    assert changes == []
    phases.remove(URI, {"ledger_id": ONE, "check": check})
    assert changes == ["unbind", "remove"]


@pytest.mark.parametrize(
    ("addresses", "is_reached_by_dns"),
    [
        (("kvm2.example.org",), True),
        (("kvm2.example.org", "10.0.1.12"), False),
        (("fd00::2",), False),
        (("KVM2",), False),
    ],
)
def test_a_watchdog_whose_peers_need_dns_is_a_warning(
    changes: t.List[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, addresses: t.Tuple[str, ...], is_reached_by_dns: bool
) -> None:
    """Without DNS the host could ask nobody: it would be reset with all others when etcd fails."""
    names = tmp_path / "hosts"
    names.write_text("# 10.0.0.2 kvm2.example.org\n10.0.0.2 front kvm2\n")
    monkeypatch.setattr(phases, "NAMES_FILE", str(names))
    monkeypatch.setattr(phases, "install_watchdog", lambda *_arguments, **_options: WatchdogChange(()))
    own, peer, third = make_config().fleet
    config = make_config(fleet=(own, dataclasses.replace(peer, addresses=addresses), third))

    def install(watchdog: object) -> t.List[str]:
        work = {"config": encode(config), "watchdog": watchdog, "tls": {}, "least_count": 0, "ledger_id": ONE, "check": False}
        return t.cast("t.List[str]", phases.install(URI, t.cast(t.Any, work))["warnings"])

    assert install(None) == []
    found = install({"device": None, "seconds": 10})
    assert [text.partition(":")[0] for text in found] == (["kvm2"] if is_reached_by_dns else [])


@pytest.mark.parametrize(("lost", "named"), [((), ""), (("kvm3",), ""), (("kvm2", "kvm3"), "kvm2 (port 1), kvm3 (port 1)")])
def test_a_watchdog_whose_host_cannot_ask_most_hosts_is_a_warning(
    changes: t.List[str], monkeypatch: pytest.MonkeyPatch, lost: t.Tuple[str, ...], named: str
) -> None:
    """As with a firewall that rejects the port of the lease: when etcd fails, all hosts would be reset."""
    monkeypatch.setattr(phases, "list_unreachable", lambda peers: [peer for peer in peers if peer.name in lost])
    monkeypatch.setattr(phases, "install_watchdog", lambda *_arguments, **_options: WatchdogChange(()))
    watchdog = {"device": None, "seconds": 10}
    work = {"config": encode(make_config()), "watchdog": watchdog, "tls": {}, "least_count": 0, "ledger_id": ONE, "check": False}
    assert [text.partition(":")[0] for text in phases.install(URI, work)["warnings"]] == ([named] if named else [])
    assert phases.install(URI, {**work, "watchdog": None})["warnings"] == []


def test_a_program_that_needs_a_virtual_environment_is_a_warning(changes: t.List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "install_lease", lambda *_arguments, **_options: UnitChange((), True, ("Keep it.",)))
    work = {"config": encode(make_config()), "watchdog": None, "tls": {}, "least_count": 0, "ledger_id": ONE, "check": False}
    assert phases.install(URI, t.cast(t.Any, work))["warnings"] == ["Keep it."]


def test_the_lease_of_a_host_of_another_ledger_is_not_replaced(changes: t.List[str]) -> None:
    def install(ledger_id: str) -> None:
        phases.install(URI, {"config": encode(make_config()), "watchdog": None, "tls": {}, "least_count": 0, "ledger_id": ledger_id, "check": False})

    with pytest.raises(Conflict, match=f"was protected under the ledger {ONE}"):
        install(OTHER)
    assert changes == []
    install(ONE)
    assert changes == ["install", "unbind"]


def test_a_watchdog_that_cannot_be_bound_leaves_the_lease_as_it_was(changes: t.List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **options: bool) -> WatchdogChange:
        raise NotSupported(f"There is no watchdog. check_mode is {options['check_mode']}.")

    monkeypatch.setattr(phases, "install_watchdog", refuse)
    watchdog = {"device": None, "seconds": 10}
    with pytest.raises(NotSupported, match="check_mode is True"):
        phases.install(URI, {"config": encode(make_config()), "watchdog": watchdog, "tls": {}, "least_count": 0, "ledger_id": ONE, "check": False})
    assert changes == []


def test_only_the_host_of_the_task_gets_or_loses_a_lease(changes: t.List[str]) -> None:
    far = "qemu+ssh://kvm2/system"
    with pytest.raises(NotSupported, match="is not the host that the task runs on"):
        phases.install(far, {"config": encode(make_config()), "watchdog": None, "tls": {}, "least_count": 0, "ledger_id": ONE, "check": False})
    with pytest.raises(NotSupported, match="is not the host that the task runs on"):
        phases.remove(far, {"ledger_id": ONE, "check": False})
    assert changes == []
