# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter ledger_query: what it selects, and its sentences for a bad expression and a missing library."""

from __future__ import annotations

import subprocess
import sys
import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.filter.ledger_query import FilterModule, ledger_query

RECORDS = [
    {"domain": {"name": "web1"}, "status": "failed", "result": {"downtime_ms": None}},
    {"domain": {"name": "web2"}, "status": "completed", "result": {"downtime_ms": 120}},
    {"domain": {"name": "db1"}, "status": "completed", "result": {"downtime_ms": 80}},
]


class Text(str):
    """As templating hands texts out: a subclass."""


class Items(list[t.Any]):
    """As templating hands lists out: a subclass."""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[?status=='failed'].domain.name", ["web1"]),
        ("[?status=='completed'] | sort_by(@, &domain.name)[].domain.name", ["db1", "web2"]),
        ("max([?status=='completed'].result.downtime_ms)", 120),
        ("length(@)", 3),
        ("[9].domain", None),
    ],
)
def test_expressions_select_from_records(expression: str, expected: t.Any) -> None:
    assert FilterModule().filters()["ledger_query"](RECORDS, expression) == expected


def test_values_from_templating_are_accepted() -> None:
    records = Items([{"domain": {Text("name"): Text("web1")}, "tags": (Text("a"),)}])
    assert ledger_query(records, Text("[?contains(domain.name, 'web')].domain.name")) == ["web1"]
    assert ledger_query(records, "[0].tags | join('-', @)") == "a"


@pytest.mark.parametrize("expression", ["[" * 5000, "[" + "9" * 5000 + "]", "[?", "length(", "nosuch(@)", "length(`1`)", "", 5, None])
def test_a_bad_expression_is_refused_by_name(expression: t.Any) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        ledger_query(RECORDS, expression)
    assert str(refused.value).startswith("kvmfleet.migration.ledger_query: ")
    assert repr(expression) in str(refused.value)
    assert "\n" not in str(refused.value)


_WITHOUT_LIBRARY = """
import sys
sys.path[:0] = {search!r}
sys.modules["jmespath"] = None
from ansible.errors import AnsibleFilterError
from ansible_collections.kvmfleet.migration.plugins.filter.ledger_query import ledger_query
try:
    ledger_query([], "[]")
except AnsibleFilterError as error:
    print(error)
"""


def test_a_missing_jmespath_library_is_named() -> None:
    script = _WITHOUT_LIBRARY.format(search=sys.path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert "need the Python library jmespath on the control node" in done.stdout, done
    assert "pip install jmespath" in done.stdout
