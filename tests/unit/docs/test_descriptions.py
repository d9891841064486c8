# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every option and every return value is described in whole sentences, with its type, its unit, and what holds when nobody says anything."""

from __future__ import annotations

import re
import typing as t

import pytest

from .conftest import Documents, Found, nested

PLUGINS = ("module", "filter", "lookup")
# What says in which unit a number is.
UNITS = re.compile(r"_(seconds|ms|mib|bytes|days|gib)$")
COUNTS = re.compile(r"\b(how many|number|numbers|MiB|seconds|days|milliseconds|percent)\b", re.IGNORECASE)
DEFAULTS = re.compile(r"\b(default|without|not given|exactly one|needed|unless|else|only|all)\b", re.IGNORECASE)


def sentences(value: t.Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def options(documents: dict[str, Documents]) -> Found:
    for kind in PLUGINS:
        for name, document in documents[kind].items():
            yield from nested(document["doc"].get("options") or {}, "suboptions", name)
    for name, role in documents["role"].items():
        for entry in role["entry_points"].values():
            yield from nested(entry["options"], "options", name)


def values(documents: dict[str, Documents]) -> Found:
    for kind in PLUGINS:
        for name, document in documents[kind].items():
            yield from nested(document.get("return") or {}, "contains", name)


def test_plugins_of_every_kind_are_documented(documents: dict[str, Documents]) -> None:
    assert {"kvmfleet.migration.live_migrate", "kvmfleet.migration.evacuate"} <= set(documents["module"])
    assert "kvmfleet.migration.ledger" in documents["lookup"]
    assert "kvmfleet.migration.plan_drain" in documents["filter"]
    assert "kvmfleet.migration.drain_host" in documents["role"]


@pytest.mark.parametrize("what", [options, values], ids=["options", "values"])
def test_descriptions_are_whole_sentences(documents: dict[str, Documents], what: t.Callable[[dict[str, Documents]], Found]) -> None:
    wrong = [where for where, one in what(documents) for text in sentences(one.get("description")) or [""] if not text.rstrip().endswith((".", "?"))]
    assert wrong == []


@pytest.mark.parametrize("what", [options, values], ids=["options", "values"])
def test_every_option_and_return_value_has_a_type(documents: dict[str, Documents], what: t.Callable[[dict[str, Documents]], Found]) -> None:
    assert [where for where, one in what(documents) if not one.get("type")] == []
    assert [where for where, one in what(documents) if one.get("type") == "list" and not one.get("elements")] == []


def test_numeric_options_name_their_unit(documents: dict[str, Documents]) -> None:
    numbers = [(where, one) for where, one in options(documents) if one.get("type") in ("int", "float")]
    assert [where for where, one in numbers if not UNITS.search(where) and not COUNTS.search(" ".join(sentences(one["description"])))] == []


def test_options_without_a_default_describe_what_applies(documents: dict[str, Documents]) -> None:
    silent = [
        where
        for where, one in options(documents)
        if not one.get("required") and "default" not in one and "_work" not in where and one["type"] in ("bool", "int", "float")
        if not DEFAULTS.search(" ".join(sentences(one["description"])))
    ]
    assert silent == []


def test_return_values_have_samples_and_conditions(documents: dict[str, Documents]) -> None:
    tops = [(f"{name}.{key}", value) for kind in PLUGINS for name, one in documents[kind].items() for key, value in (one.get("return") or {}).items()]
    assert [where for where, value in tops if not value.get("returned") and not where.endswith(("._value", "._raw"))] == []
    assert [where for where, value in tops if "sample" not in value and not value.get("contains")] == []
    inner = [(where, value) for where, value in values(documents) if not value.get("contains")]
    assert [where for where, value in inner if "sample" not in value] == []
