# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dashboard and alerts ask for metrics that are written; Prometheus' own tool and Grafana's own model take them."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import CheckedFleet, attention_line, check_line, keep_check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.metrics import MaintenanceState, build_export_metrics, build_metrics, read_present
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.metrics_totals import Totals
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import balances, measured_run

EXTENSIONS = next(parent for parent in Path(__file__).resolve().parents if parent.name == "tests").parent / "extensions"
DASHBOARD = EXTENSIONS / "grafana" / "kvmfleet.json"
ALERTS = EXTENSIONS / "prometheus" / "alerts.yml"
IDLE = MaintenanceState(0, 0)
NAME = re.compile(r"\bkvmfleet_[a-z_]+")
SELECTOR = re.compile(r"(kvmfleet_[a-z_]+)\{([^}]*)\}")
VARIABLES = {"$__rate_interval": "5m", "$__range": "1d", "$instance": ".*"}


def promtool(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CheckedFleet:
    """A fleet check on this control node."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ledger_id = FileLedger(str(tmp_path / "ledger")).ledger_id
    sets, hosts = {"can": 2, "unknown": 0, "cannot": 1}, {"kvm1": "cannot", "kvm2": "can", "kvm3": "can"}
    check = CheckedFleet(1, ledger_id, "2026-11-21T03:00:00.000Z", False, 1, sets, hosts, {"capacity": 1}, ("1 of 3 hosts cannot be lost.",), ())
    assert keep_check(check) is None
    return check


@pytest.fixture
def written(tmp_path: Path, checked: CheckedFleet) -> dict[str, set[str]]:
    """Return what is written: each name of a series, and its labels."""
    ledger = FileLedger(str(tmp_path / "ledger"))
    ledger.put_balance_run(measured_run(), None)
    families = [*build_metrics(Totals(), read_present(ledger, []), 0, ledger, IDLE), *build_export_metrics(0)]
    names: dict[str, set[str]] = {family.name: set() for family in families if family.kind != "histogram"}
    for family in families:
        for suffix, labels, _value in family.samples:
            names.setdefault(family.name + suffix, set()).update(labels)
    return names


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    texts = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in VARIABLES.items():
        texts = [text.replace(name, value) for text in texts]
    return texts


def asked_by_alerts() -> list[str]:
    groups: list[dict[str, t.Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def test_every_metric_in_dashboard_and_alerts_is_exported(written: dict[str, set[str]]) -> None:
    asked = [*expressions(), *asked_by_alerts()]
    assert len(asked) > 30
    for text in asked:
        assert NAME.findall(text), text
        assert set(NAME.findall(text)) <= set(written), text
        for name, selectors in SELECTOR.findall(text):
            labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selectors))
            assert labels - {"instance"} <= written[name], text


def test_every_exported_metric_is_in_dashboard_or_alerts(written: dict[str, set[str]]) -> None:
    asked = " ".join([*expressions(), *asked_by_alerts()])
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in written}
    assert [name for name in sorted(families) if name not in asked] == []


def test_each_expression_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    rules = [{"record": f"job:panel{number}:test", "expr": text} for number, text in enumerate(expressions())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    for panel in panels:
        grid = panel["gridPos"]
        cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _y in cells), panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def lost(told: t.Any, kept: t.Any, path: str = "") -> list[str]:
    """Return where something of the first is not in the second."""
    if isinstance(told, dict) and isinstance(kept, dict):
        return [one for key, value in told.items() for one in lost(value, kept.get(key, ...), f"{path}/{key}")]
    if isinstance(told, list) and isinstance(kept, list) and len(told) == len(kept):
        return [one for number, pair in enumerate(zip(told, kept, strict=True)) for one in lost(*pair, f"{path}/{number}")]
    return [] if told == kept else [f"{path}: {told!r}"]


def test_the_model_of_grafana_keeps_every_key_of_the_dashboard() -> None:
    """Its model drops what it does not know."""
    register_default_plugins()
    told = json.loads(DASHBOARD.read_text())
    kept = json.loads(json.dumps(Dashboard.from_json(json.loads(DASHBOARD.read_text())), cls=JSONEncoder))
    assert lost(told, kept) == []


def test_alerts_are_valid_rules_and_pass_their_tests() -> None:
    promtool("check", "rules", ALERTS)
    promtool("test", "rules", ALERTS.parent / "alerts_test.yml")


def test_a_fleet_check_is_exported_with_every_verdict_and_kind(tmp_path: Path, checked: CheckedFleet) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"))
    families = {family.name: family for family in build_metrics(Totals(), read_present(ledger, []), 0, ledger, IDLE)}
    assert [value for _suffix, _labels, value in families["kvmfleet_fleet_check_sets"].samples] == [2, 0, 1]
    kinds = {labels["kind"]: value for _suffix, labels, value in families["kvmfleet_fleet_check_findings"].samples}
    assert (len(kinds), kinds["capacity"], kinds["clock"]) == (8, 1, 0)
    assert families["kvmfleet_fleet_check_met"].samples == [("", {}, 0)]
    assert families["kvmfleet_fleet_check_timestamp_seconds"].samples == [("", {}, 1795230000.0)]


def test_without_a_fleet_check_there_are_no_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ledger = FileLedger(str(tmp_path / "ledger"))
    families = build_metrics(Totals(), read_present(ledger, []), 0, ledger, IDLE)
    assert [family.samples for family in families if "_fleet_check_" in family.name] == [[]] * 5


def test_a_fleet_check_is_one_line_of_the_status_and_a_finding_if_it_is_not_met(checked: CheckedFleet) -> None:
    assert check_line(checked) == "2026-11-21 03:00 UTC: 2 can, 1 cannot (1 capacity)"
    assert attention_line(checked) == ("Fleet check of 2026-11-21 03:00 UTC: 1 of 3 hosts cannot be lost. To check again: kvmfleet.migration.fleet_check")
    met = dataclasses.replace(checked, met=True, sets={"can": 3}, hosts=dict.fromkeys(checked.hosts, "can"), findings={}, attention=())
    assert (check_line(met), attention_line(met)) == ("2026-11-21 03:00 UTC: can lose any host (no findings)", "")


def test_the_last_balance_is_exported_with_what_it_brought(tmp_path: Path) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"))
    for run in balances():
        ledger.put_balance_run(run, None)
    families = {family.name: family.samples for family in build_metrics(Totals(), read_present(ledger, []), 0, ledger, IDLE)}
    assert families["kvmfleet_balance_score"] == [("", {"at": "before"}, 0.75), ("", {"at": "predicted"}, 0.5)]
    assert families["kvmfleet_balance_measured_score"] == [("", {}, 0.25)]
    assert families["kvmfleet_balance_gain"] == [("", {"kind": "predicted"}, 1.0), ("", {"kind": "measured"}, 0.375)]
    assert families["kvmfleet_balance_timestamp_seconds"] == [("", {}, 1795496400.0)]
    assert families["kvmfleet_balance_open"] == [("", {}, 0)]


def test_without_a_balance_there_are_no_samples_of_its_scores(tmp_path: Path) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"))
    families = {family.name: family.samples for family in build_metrics(Totals(), read_present(ledger, []), 0, ledger, IDLE)}
    names = ("timestamp_seconds", "score", "measured_score", "gain")
    assert [families[f"kvmfleet_balance_{name}"] for name in names] == [[]] * 4
