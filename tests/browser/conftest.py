# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A browser, and reports to open in it."""

from __future__ import annotations

import dataclasses
import json
import os
import typing as t
from dataclasses import dataclass
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import CheckedFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report, ReportData, Scope, build_document, gather_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import as_html
from ansible_collections.kvmfleet.migration.tests.browser.window import Window
from ansible_collections.kvmfleet.migration.tests.simulator import balance_week
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import balances
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body

MANY = 10_000
CHECK = CheckedFleet(
    schema=1,
    ledger_id="",
    at=nights.MADE_AT,
    met=False,
    hosts_lost=1,
    sets={"can": 2, "unknown": 0, "cannot": 1},
    hosts={"kvm1": "cannot", "kvm2": "can", "kvm3": "can"},
    findings={"capacity": 1},
    attention=(f"1 of 3 hosts cannot be lost. {nights.MARKUP}",),
    lines=("Not every host can be lost. 1 finding for a person.", f"  {nights.BREAKOUT}"),
)
DEMO = Path(__file__).resolve().parents[2] / "docs" / "demo"


@dataclass
class Page:
    """A report on disk, and the records of the ledger, or the balance runs, that it is about."""

    path: Path
    records: list[Body]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Window]:
    window = Window(tmp_path_factory.mktemp("profile"))
    yield window
    window.close()


@pytest.fixture
def window(browser: Window) -> Window:
    """The browser, as somebody at a desk in daylight has it."""
    browser.look()
    return browser


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A night with everything in it, names that are markup among it."""
    ledger = open_ledger(str(tmp_path_factory.mktemp("night") / "ledger"))
    nights.night(ledger, strange=True)
    found = dataclasses.replace(gather_records(ledger, Scope(), nights.DRAINS), check=CHECK, runs=[nights.maintenance_run()], balances=balances(nights.MARKUP))
    path = _written(tmp_path_factory, found, "Kernel updates in November")
    return Page(path, encode(list(ledger.list_records())))


@pytest.fixture(scope="session")
def demo() -> Page:
    """The report of a real night that is kept with the documentation."""
    return Page(DEMO / "report.html", json.loads((DEMO / "report.json").read_text(encoding="utf-8"))["moves"])


@pytest.fixture(scope="session")
def slow_drain(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The report of a real drain over a slow cable, which is kept with the documentation."""
    document = json.loads((DEMO / "rates.json").read_text(encoding="utf-8"))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(as_html(decode(Report, document)), encoding="utf-8")
    return Page(path, document["moves"])


@pytest.fixture(scope="session")
def balanced_week(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The report of the balances of a simulated week."""
    keeper = balance_week.RunKeeper()
    balance_week.live_through(balance_week.draw_week(seed=1, hosts=8, per_host=12), keeper)
    return Page(_written(tmp_path_factory, ReportData(balances=keeper.runs), "A simulated week of 8 hosts"), encode(keeper.runs))


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A report of no move at all."""
    return Page(_written(tmp_path_factory, ReportData()), [])


@pytest.fixture(scope="session")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A report of one move that ended before its first reading."""
    records = [dataclasses.replace(nights.many(1)[0], samples=())]
    return Page(_written(tmp_path_factory, ReportData(records=records)), encode(records))


@pytest.fixture(scope="session")
def month(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A report of very many moves."""
    records = nights.many(MANY)
    return Page(_written(tmp_path_factory, ReportData(records=records)), encode(records))


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker."""
    return Path(os.environ["KVMFLEET_NODE_MODULES"], "axe-core", "axe.min.js").read_text(encoding="utf-8")


def _written(factory: pytest.TempPathFactory, found: ReportData, title: str | None = None) -> Path:
    path = factory.mktemp("report") / "report.html"
    path.write_text(as_html(build_document(found, Scope(), nights.MADE_AT, title)), encoding="utf-8")
    return path
