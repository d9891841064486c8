# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task metrics: a file that Prometheus' tool and a real node exporter take, written at once and for others to read."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import socket
import subprocess
import sys
import time
import types
import typing as t
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.metrics import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import DRAIN
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_parts import ProtectTime
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import identify_process
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, night, passed
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.metrics_records import ended

Result = dict[str, t.Any]
COLLECTIONS = next(parent.parent for parent in pathlib.Path(__file__).resolve().parents if parent.name == "ansible_collections")


class Node:
    """A control node with a ledger, and the folder of its node exporter."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.textfiles = folder / "textfiles"
        self.textfiles.mkdir()
        self.path = self.textfiles / "kvmfleet.prom"
        self.variables: Result = {"kvmfleet_ledger": self.ledger.path}

    def task(self, check_mode: bool = False, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        given = {"path": str(self.path), **args}
        action._task = types.SimpleNamespace(args=given, async_val=0, check_mode=check_mode, diff=True, delegate_to=None)
        return action.run_with_options(task_vars("kvm1", self.variables))

    def values(self) -> dict[str, float]:
        """Return what is in the file: series to value."""
        lines = [line for line in self.path.read_text().splitlines() if not line.startswith("#")]
        return {series: float(value) for series, _space, value in (line.rpartition(" ") for line in lines)}

    def host(self, name: str, state: str, protected_at: str | None = None, **keys: t.Any) -> None:
        body = {"host_id": str(uuid.uuid4()), "name": name, "host_uuid": str(uuid.uuid4()), "machine_id": name, "state": state, "reason": None}
        body |= {"host_key": body["host_id"], "since": "2026-11-21T03:00:00.000Z", "by": "me", **keys}
        self.ledger.put_host(host_entry({**body, "protected": {"at": protected_at}} if protected_at else body), None)


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Node(tmp_path)


def fill_ledger(node: Node) -> None:
    """Put one of everything into the ledger."""
    ended(node.ledger, s.COMPLETED, elapsed_ms=1500, downtime_ms=95, bytes=1000, mode="pre-copy")
    ended(node.ledger, s.CANCELLED, reason="timeout")
    ended(node.ledger, s.RUNNING)
    ended(node.ledger, s.ERROR)
    ended(node.ledger, s.DONE, s.EVACUATION)
    node.host("kvm1", "enabled", "2026-11-21T03:00:00.000Z")
    node.host("kvm2", "maintenance", "2026-11-20T03:00:00.000Z")
    node.host("kvm3", "fenced")


def test_the_metrics_match_the_ledger(node: Node) -> None:
    fill_ledger(node)
    # The last protect of the first host has found nothing new.
    node.ledger.put_protect_time(ProtectTime(str(node.ledger.list_hosts()[0].host.host_key), "2026-11-22T03:00:00.000Z", "me"))
    result = node.task()
    values = node.values()
    assert (result["changed"], result["path"], result["series"]) == (True, str(node.path), len(values))
    assert values['kvmfleet_moves_total{outcome="completed"}'] == 1
    assert values['kvmfleet_moves_cancelled_total{reason="timeout"}'] == 1
    assert values['kvmfleet_move_downtime_seconds_bucket{le="0.05"}'] == 0
    assert values['kvmfleet_move_downtime_seconds_bucket{le="0.1"}'] == 1
    assert values['kvmfleet_move_downtime_seconds_bucket{le="+Inf"}'] == values["kvmfleet_move_downtime_seconds_count"] == 1
    assert values["kvmfleet_move_duration_seconds_sum"] == 1.5
    assert values['kvmfleet_moves_open{status="running"}'] == values['kvmfleet_moves_open{status="error"}'] == 1
    assert values['kvmfleet_evacuations_open{status="done"}'] == values['kvmfleet_evacuations_total{outcome="done"}'] == 1
    assert [values[f'kvmfleet_hosts{{state="{state}"}}'] for state in ("enabled", "maintenance", "fenced")] == [1, 1, 1]
    last = datetime.datetime.fromisoformat("2026-11-22T03:00:00Z").timestamp()
    assert values["kvmfleet_newest_protect_timestamp_seconds"] == values["kvmfleet_oldest_protect_timestamp_seconds"] == last
    assert 0 <= time.time() - values["kvmfleet_oldest_open_record_timestamp_seconds"] < 600
    assert 0 <= values["kvmfleet_export_timestamp_seconds"] - values["kvmfleet_oldest_open_record_timestamp_seconds"] < 600
    assert values["kvmfleet_ledger_problems"] == 0


def test_a_host_whose_document_is_damaged_is_counted_with_an_unknown_state(node: Node) -> None:
    fill_ledger(node)
    node.task()
    assert node.values()['kvmfleet_hosts{state="unknown"}'] == 0
    fenced = node.ledger.find_host("kvm3")
    assert fenced is not None
    pathlib.Path(node.ledger.path, "hosts", f"{fenced.host.host_key}.json").write_text("torn")
    # It was set aside by the first of these.
    for _time in range(2):
        node.task()
        states = ("enabled", "maintenance", "fenced", "unknown")
        assert [node.values()[f'kvmfleet_hosts{{state="{state}"}}'] for state in states] == [1, 1, 0, 1]
        assert node.values()["kvmfleet_ledger_problems"] > 0


def test_a_record_that_another_task_has_set_aside_stays_a_problem(node: Node) -> None:
    fill_ledger(node)
    for path in pathlib.Path(node.ledger.path, "migrations", "open").glob("*.json"):
        path.write_text("torn")
    assert list(FileLedger(node.ledger.path).list_records(unsettled_only=True)) == []
    assert all("was damaged and set aside" in warning for warning in node.task()["warnings"])
    assert node.values()["kvmfleet_ledger_problems"] == 3
    for path in pathlib.Path(node.ledger.path, "set_aside").iterdir():
        path.unlink()
    node.task()
    assert node.values()["kvmfleet_ledger_problems"] == 0


def test_hosts_that_accept_domains_and_were_never_protected_are_counted(node: Node) -> None:
    fill_ledger(node)
    node.task()
    assert node.values()["kvmfleet_hosts_never_protected"] == 0
    node.host("kvm4", "enabled")
    node.host("kvm5", "maintenance")
    node.task()
    assert node.values()["kvmfleet_hosts_never_protected"] == 1


def test_the_protection_of_hosts_that_are_not_in_service_has_no_age(node: Node) -> None:
    node.host("kvm1", "maintenance", "2026-01-01T03:00:00.000Z")
    node.host("kvm2", "enabled", "2026-11-20T03:00:00.000Z")
    node.host("kvm3", "enabled", "2026-11-21T03:00:00.000Z")
    node.task()
    values = node.values()
    assert values["kvmfleet_newest_protect_timestamp_seconds"] - values["kvmfleet_oldest_protect_timestamp_seconds"] == 86400


def test_a_protection_from_the_future_counts_as_none(node: Node) -> None:
    node.host("kvm1", "enabled", "2026-11-21T03:00:00.000Z")
    node.host("kvm2", "enabled", "2126-11-21T03:00:00.000Z")
    node.task()
    values = node.values()
    assert values["kvmfleet_newest_protect_timestamp_seconds"] == values["kvmfleet_oldest_protect_timestamp_seconds"]
    assert values["kvmfleet_hosts_never_protected"] == 1


def test_the_protection_of_a_host_that_will_not_return_has_no_age(node: Node) -> None:
    node.host("kvm1", "fenced", "2026-01-01T03:00:00.000Z", discarded={"at": "2026-01-02T03:00:00.000Z", "by": "ann@control", "reason": "Burnt out"})
    node.task()
    assert "kvmfleet_oldest_protect_timestamp_seconds" not in node.values()
    node.host("kvm2", "enabled", "2026-11-21T03:00:00.000Z")
    node.task()
    assert node.values()["kvmfleet_oldest_protect_timestamp_seconds"] == node.values()["kvmfleet_newest_protect_timestamp_seconds"]


def test_maintenance_runs_are_counted_and_those_that_need_a_person(node: Node) -> None:
    """As when a host of the run became unreachable, and Ansible has ended the playbook."""
    fill_ledger(node)
    node.task()
    assert (node.values()["kvmfleet_maintenance_open"], node.values()["kvmfleet_maintenance_findings"]) == (0, 0)
    alive = identify_process(os.getpid(), "ann", at().at)
    for host, holder, expected in (("kvm1", alive, (1, 0)), ("kvm2", dataclasses.replace(alive, started=0), (2, 1))):
        run = dataclasses.replace(passed(night(host), host, DRAIN), id=str(uuid.uuid4()), holder=holder)
        node.ledger.put_maintenance_run(run, None)
        node.task()
        assert (node.values()["kvmfleet_maintenance_open"], node.values()["kvmfleet_maintenance_findings"]) == expected


def test_names_of_hosts_and_domains_are_not_labels(node: Node) -> None:
    fill_ledger(node)
    node.task()
    text = node.path.read_text()
    assert "web1" not in text
    assert "kvm1" not in text
    before = len(node.values())
    for _number in range(3):
        fill_ledger(node)
    node.task()
    assert len(node.values()) == before


@pytest.mark.parametrize("fill", [lambda node: None, fill_ledger])
def test_promtool_accepts_the_metrics(node: Node, fill: t.Callable[[Node], None]) -> None:
    fill(node)
    node.task()
    done = subprocess.run(["promtool", "check", "metrics"], input=node.path.read_text(), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_second_export_without_a_move_only_updates_the_timestamp(node: Node) -> None:
    fill_ledger(node)
    node.task()
    before = node.values()
    again = node.task()
    assert not again["changed"]
    assert node.values()["kvmfleet_export_timestamp_seconds"] > before["kvmfleet_export_timestamp_seconds"]
    ended(node.ledger, s.FAILED)
    assert node.task()["changed"]


def test_check_mode_writes_neither_file_nor_state(node: Node, tmp_path: pathlib.Path) -> None:
    fill_ledger(node)
    result = node.task(check_mode=True)
    assert result["changed"]
    assert 'kvmfleet_moves_total{outcome="completed"} 1\n' in result["diff"]["after"]
    assert not node.path.exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o644), ("0640", 0o640), ("600", 0o600), (0o640, 0o640)])
def test_the_file_has_the_mode_of_the_option_whatever_the_umask(node: Node, mode: t.Any, expected: int) -> None:
    old = os.umask(0o077)
    try:
        node.task(**({} if mode is None else {"mode": mode}))
    finally:
        os.umask(old)
    assert node.path.stat().st_mode & 0o7777 == expected
    assert list(node.textfiles.iterdir()) == [node.path]


@pytest.mark.parametrize("args", [{"mode": "u=rw"}, {"mode": "0999"}, {"mode": 644}, {"path": "/tmp/kvmfleet.txt"}, {"path": "/none/kvmfleet.prom"}])
def test_invalid_options_are_refused_and_nothing_is_written(node: Node, args: Result) -> None:
    with pytest.raises(InvalidArgument):
        node.task(**args)
    assert list(node.textfiles.iterdir()) == []


def test_a_folder_in_place_of_the_file_is_refused(node: Node) -> None:
    node.path.mkdir()
    with pytest.raises(KvmfleetError, match=r"kvmfleet\.prom"):
        node.task()
    assert list(node.textfiles.iterdir()) == [node.path]


def test_a_missing_ledger_is_not_created(node: Node, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound):
        node.task(ledger=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_waiting_notices_are_counted(node: Node, tmp_path: pathlib.Path) -> None:
    node.task()
    assert "kvmfleet_notices_waiting" not in node.values()
    spool = tmp_path / "spool" / node.ledger.ledger_id
    spool.mkdir(parents=True)
    (spool / f"{7:020d}-{uuid.uuid4().hex}.json").touch()
    node.variables["kvmfleet_notices"] = {"url": "https://hooks.example/", "spool": str(tmp_path / "spool")}
    node.task()
    assert node.values()["kvmfleet_notices_waiting"] == 1


@pytest.fixture
def exporter(node: Node) -> Iterator[str]:
    """A node exporter that collects from the folder, and where its metrics are."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={node.textfiles}"]
    process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"http://{address}/metrics"
    process.terminate()
    process.wait(30)


def read_exporter(url: str) -> str:
    """Return what the exporter shows, as soon as it answers."""
    deadline = time.monotonic() + 60
    while (text := shown_by(url)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return text


def shown_by(url: str) -> str | None:
    """Return what is there; None where nobody answers yet."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError:
        return None


def test_a_real_node_exporter_shows_each_series(node: Node, exporter: str) -> None:
    fill_ledger(node)
    node.task()
    text = read_exporter(exporter)
    assert "node_textfile_scrape_error 0" in text
    shown = {line.rpartition(" ")[0] for line in text.splitlines() if line.startswith("kvmfleet_")}
    assert shown == set(node.values())


@pytest.mark.parametrize("group", ["kvmfleet_hosts", "hypervisors"])
def test_the_playbook_writes_the_metrics_once_and_asks_no_host(node: Node, tmp_path: pathlib.Path, group: str) -> None:
    fill_ledger(node)
    unreachable = "".join(f"{name} ansible_host=192.0.2.{number}\n" for number, name in enumerate(("kvm1", "kvm2"), 1))
    (tmp_path / "hosts.ini").write_text(f"[{group}]\n{unreachable}[all:vars]\nkvmfleet_ledger={node.ledger.path}\n")
    command = ["playbook", "-i", str(tmp_path / "hosts.ini"), "kvmfleet.migration.metrics", "-e", f"metrics_path={node.path}"]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_NOCOLOR": "1", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "ansible", *command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("changed: [") == 1
    assert node.values()['kvmfleet_moves_total{outcome="completed"}'] == 1
