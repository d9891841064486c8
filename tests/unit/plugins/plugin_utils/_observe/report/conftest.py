# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger with a night in it, in each of the stores, and the report of it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Scope, build_document, gather_records
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body


@pytest.fixture(scope="session", params=["file", "etcd"])
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The night, which no test changes."""
    if request.param == "file":
        found = open_ledger(str(tmp_path_factory.mktemp("night") / "ledger"))
    else:
        member: Cluster = request.getfixturevalue("member")
        found = open_ledger(member.location(f"/tests/{uuid.uuid4()}"))
    nights.night(found, strange=True)
    return found


@pytest.fixture
def empty(tmp_path: Path) -> Ledger:
    """A ledger with nothing in it."""
    return open_ledger(str(tmp_path / "ledger"))


def report_of(ledger: Ledger, scope: Scope | None = None, drains: Body | None = None) -> Body:
    """Return the report that a task would write, as JSON."""
    wanted = scope or Scope()
    document: Body = json.loads(json.dumps(build_document(gather_records(ledger, wanted, drains), wanted, nights.MADE_AT).as_json()))
    return document


@pytest.fixture
def report(ledger: Ledger) -> Body:
    """The report of the whole night."""
    return report_of(ledger, drains=nights.DRAINS)
