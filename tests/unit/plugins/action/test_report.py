# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module report in real plays, and its role and playbook."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.lookup.test_ledger import play, run_playbook
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights

OURS = "kvmfleet.migration.report"


@pytest.fixture
def night(tmp_path: Path) -> str:
    """A ledger with a night in it."""
    nights.night(open_ledger(str(tmp_path / "ledger")), strange=True)
    return str(tmp_path / "ledger")


def told_in(tmp_path: Path, expression: str) -> dict[str, t.Any]:
    """Return the task that keeps what an expression comes to."""
    return {"ansible.builtin.copy": {"content": "{{ " + expression + " | to_json }}", "dest": str(tmp_path / "told.json"), "mode": "0600"}}


def run_report(tmp_path: Path, **options: t.Any) -> tuple[dict[str, t.Any], str]:
    """Run the module as one task, and return what it returned and what the play has printed."""
    done = play(tmp_path, [{OURS: options, "register": "told"}, told_in(tmp_path, "told")], {})
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((tmp_path / "told.json").read_text()), done.stdout + done.stderr


def test_report_writes_every_format(tmp_path: Path, night: str) -> None:
    formats = ["html", "json", "csv", "markdown", "junit"]
    told, output = run_report(tmp_path, ledger=night, dest="reports", name="night", formats=formats, drain_host_result=nights.DRAINS)
    assert told["changed"]
    assert set(told["files"]) == {"html", "json", "csv", "hosts_csv", "markdown", "junit"}
    assert told["files"]["html"] == str(tmp_path / "reports" / "night.html")
    written = json.loads(Path(told["files"]["json"]).read_text())
    assert written["counts"] == told["counts"]
    assert told["counts"]["records"] == len(list(open_ledger(night).list_records()))
    assert told["safe_to_reboot"]["kvm1"] is True
    assert "[WARNING]" not in output


def test_check_mode_returns_the_summary_and_writes_nothing(tmp_path: Path, night: str) -> None:
    tasks = [
        {OURS: {"ledger": night, "dest": str(tmp_path / "reports")}, "check_mode": True, "register": "told"},
        {"ansible.builtin.debug": {"var": "told.summary"}},
    ]
    done = play(tmp_path, tasks, {})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "moves: " in done.stdout
    assert not (tmp_path / "reports").exists()


WRONG = (
    ({"since": "yesterday"}, "which is not a time", "invalid_argument"),
    ({"ids": ["x"], "host": "kvm1"}, "ids is given together with host", "invalid_argument"),
    ({"ids": ["55555555-0000-4000-8000-000000000009"]}, "has no record", "not_found"),
    ({"mode": "rw"}, "The mode 'rw' is invalid.", "invalid_argument"),
    ({"name": "../x"}, "cannot be the name of a file", "invalid_argument"),
    ({"formats": ["pdf"]}, "pdf", "invalid_argument"),
    ({"dest": "/dev/null/x"}, "cannot be written to /dev/null/x", "internal"),
)


def test_errors_of_the_report_are_clear_messages(tmp_path: Path, night: str) -> None:
    common = {"ledger": night, "dest": str(tmp_path / "reports")}
    tasks = [{OURS: {**common, **options}, "ignore_errors": True, "register": f"told{number}"} for number, (options, _said, _code) in enumerate(WRONG)]
    tasks.append(told_in(tmp_path, "[" + ", ".join(f"told{number}" for number in range(len(WRONG))) + "]"))
    done = play(tmp_path, tasks, {})
    assert done.returncode == 0, done.stdout + done.stderr
    for told, (_options, said, code) in zip(json.loads((tmp_path / "told.json").read_text()), WRONG, strict=True):
        assert (told["failed"], told["changed"], told["error_code"]) == (True, False, code)
        assert said in told["msg"]
    assert not (tmp_path / "reports").exists()


def test_a_missing_ledger_gives_an_empty_report_that_says_so(tmp_path: Path) -> None:
    told, output = run_report(tmp_path, dest=str(tmp_path / "reports"), formats=["html", "json"])
    (finding,) = json.loads(Path(told["files"]["json"]).read_text())["attention"]
    assert (told["attention"], finding.endswith(" It is read as an empty one.")) == ([finding], True)
    assert told["summary"] == "No move is recorded here."
    assert "It is read as an empty one." in " ".join(output.split())
    assert "No move is recorded here." in (tmp_path / "reports/report.html").read_text()


def test_a_run_that_stopped_on_a_failed_host_is_returned_for_a_person(tmp_path: Path, night: str) -> None:
    ledger = open_ledger(night)
    run = nights.maintenance_run()
    ledger.put_maintenance_run(run, None)
    told, _output = run_report(tmp_path, ledger=night, dest="reports", formats=["json"])
    (finding,) = told["attention"]
    assert finding.startswith(f"The maintenance run {run.id} is stopped: ")
    assert json.loads(Path(told["files"]["json"]).read_text())["attention"] == [finding]
    told, _output = run_report(tmp_path, ledger=night, dest="reports", host="kvm6")
    assert told["attention"] == []


def test_the_playbook_writes_the_report_and_publishes_the_counts(tmp_path: Path, night: str) -> None:
    inventory = tmp_path / "hosts.yml"
    hosts = {"dead1": {"ansible_host": "192.0.2.1"}, "dead2": {"ansible_host": "192.0.2.2"}}
    inventory.write_text(yaml.safe_dump({"kvmfleet_hosts": {"hosts": hosts, "vars": {"kvmfleet_ledger": night}}}))
    wanted = {"report_dest": str(tmp_path / "out"), "report_host": "kvm1", "report_formats": ["html", "json"], "drain_host_result": nights.DRAINS}
    done = run_playbook(tmp_path, "-i", str(inventory), OURS, "-e", json.dumps(wanted), ANSIBLE_SHOW_CUSTOM_STATS="true")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out/report.json").read_text())
    assert {move["source"] for move in document["moves"]} == {"kvm1"}
    assert [host["safe_to_reboot"] for host in document["hosts"] if host["name"] == "kvm1"] == [True]
    assert '"cancelled": 1' in done.stdout.split("CUSTOM STATS")[1]
    assert (tmp_path / "out/report.html").is_file()


@pytest.mark.parametrize(("own", "is_safe"), [({"__drain_host_result": nights.DRAINS}, True), pytest.param({"unrelated": True}, False, marks=pytest.mark.long)])
def test_the_drain_of_the_play_counts_and_not_the_one_that_a_workflow_passes_on(tmp_path: Path, night: str, own: dict[str, t.Any], is_safe: bool) -> None:
    """The fact is set by the role drain_host."""
    (tmp_path / "site.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": [{"role": OURS}], "pre_tasks": [{"set_fact": own}]}]))
    wanted = {"report_dest": str(tmp_path / "out"), "report_host": "kvm1", "report_formats": ["json"], "kvmfleet_ledger": night}
    earlier = {"drain_host_result": {"kvm1": {"safe_to_reboot": False, "blockers": ["web1 is running here."], "moved": [], "failed": []}}}
    done = run_playbook(tmp_path, "-i", "kvm9,", str(tmp_path / "site.yml"), "-e", json.dumps({**wanted, **earlier}))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out/report.json").read_text())
    assert [host["safe_to_reboot"] for host in document["hosts"] if host["name"] == "kvm1"] == [is_safe]
