# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan's file: written, read, edited by hand, damaged, or something else altogether."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import typing as t
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

Document = dict[str, t.Any]

GUESTS = [f.domain("web", dirty_rate_mib=3), f.domain("db", drain="leave"), f.domain("batch", drain="shutdown"), f.domain("huge", 65000)]
FACTS = {"kvm1": f.host("kvm1", domains=GUESTS), "kvm2": f.host("kvm2", 8192), "kvm3": f.host("kvm3", 4096)}
MADE = make_plan(DrainInputs(FACTS, scheduler={"kvm2": {"labels": ["ssd"]}}), ["kvm1"], ["kvm2", "kvm3"], DrainOptions(n_plus_one=True))
PLAN: Document = encode(MADE)


def test_a_saved_plan_is_read_back_unchanged() -> None:
    assert saved_plan.read_plan(json.dumps(PLAN, indent=4)) == MADE
    assert saved_plan.read_plan(json.loads(json.dumps(PLAN))) == MADE


def test_a_packed_plan_is_read_back_unchanged_and_contains_no_template() -> None:
    name = "{{ lookup('pipe', 'id') }} {% raw %}"
    plan = dataclasses.replace(MADE, skipped=(saved_plan.SkippedDomain(name, "0" * 36, "kvm1", "off", "", ""),)).seal()
    text = saved_plan.pack_plan(plan)
    assert saved_plan.read_plan(text) == saved_plan.read_plan(text.encode()) == saved_plan.read_plan(f"{text}\n") == plan
    assert not {*text} & {*"{}%# \n'"}
    assert saved_plan.pack_plan(decode(saved_plan.DrainPlan, json.loads(json.dumps(encode(plan))))) == text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 8 * 4],
        lambda text: text[:-8],
        lambda text: text[:40] + ("AAAA" if text[40:44] != "AAAA" else "BBBB") + text[44:],
        lambda text: text[:60] + "{{ x }}" + text[60:],
        lambda text: text + text,
        lambda text: "H4sI",
    ],
)
def test_a_damaged_packed_plan_is_refused(spoil: Callable[[str], str]) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot be unpacked.*Nothing was moved"):
        saved_plan.read_plan(spoil(saved_plan.pack_plan(MADE)))


def test_a_packed_plan_that_was_edited_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="was changed after it was made"):
        saved_plan.read_plan(saved_plan.pack_plan(dataclasses.replace(MADE, moves=())))


def test_a_packed_plan_over_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = saved_plan.pack_plan(dataclasses.replace(MADE, created_at=" " * 10_000_000))
    monkeypatch.setattr(saved_plan, "_MAX_CHARACTERS", 1_000_000)
    assert len(text) < 100_000
    with pytest.raises(InvalidArgument, match="more than 1000000 characters"):
        saved_plan.read_plan(text)


def sealed(plan: Document) -> Document:
    return {**plan, "schema": saved_plan.PLAN_SCHEMA, "digest": saved_plan.plan_digest(plan)}


def edited(change: Callable[[Document], t.Any], reseal: bool = False) -> Document:
    plan: Document = json.loads(json.dumps(PLAN))
    change(plan)
    return sealed(plan) if reseal else plan


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["moves"][0].update(destination="kvm3"),
        lambda plan: plan["moves"][0]["request"].update(memory_mib=1),
        lambda plan: plan["moves"].clear(),
        lambda plan: plan.update(sources=["kvm9"]),
        lambda plan: plan["options"]["moves"].update(unsafe=True),
        lambda plan: plan.update(digest="sha256:0"),
        lambda plan: plan.update(digest=None),
        lambda plan: plan.update(more=1),
    ],
)
def test_a_plan_that_was_edited_is_refused(change: Callable[[Document], t.Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"was changed after it was made.*Nothing was moved"):
        saved_plan.read_plan(edited(change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan["moves"][0].update(destination=7), "moves, entry 1: destination is 7, not text"),
        (lambda plan: plan["moves"][0].pop("request"), "moves, entry 1 has no request"),
        (lambda plan: plan["moves"].append("web"), "moves, entry 2 is 'web', not a JSON object"),
        (lambda plan: plan.update(moves={}), "moves is {}, not a list"),
        (lambda plan: plan.update(sources="kvm1"), "sources is 'kvm1', not a list"),
        (lambda plan: plan["moves"][0].update(predicted_seconds=-1), "not a number of seconds"),
        (lambda plan: plan["moves"][0].update(memory_mib=True), "memory_mib is True"),
        (lambda plan: plan["moves"].append(plan["moves"][0]), "more than once"),
        (lambda plan: plan["moves"][0].update(source="kvm7"), "away from kvm7"),
        (lambda plan: plan["moves"][0].update(uuid="web"), "not a UUID"),
    ],
)
def test_an_invalid_plan_with_a_correct_digest_is_refused(change: Callable[[Document], t.Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        saved_plan.read_plan(edited(change, reseal=True))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "not JSON"),
        ("- moves", "not JSON"),
        ('{"schema": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("null", "not a saved plan"),
        (None, "not a saved plan"),
        ([], "not a saved plan"),
        ({}, "not a saved plan"),
        (object(), "JSON cannot represent"),
        ({**PLAN, "schema": 1}, "schema 1, this version reads 2"),
        ({**PLAN, "schema": "2"}, "schema '2'"),
        ({**PLAN, "schema": True}, "schema True"),
    ],
)
def test_a_document_that_is_not_a_plan_is_refused(document: t.Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        saved_plan.read_plan(document)


def test_a_plan_with_duplicate_domains_is_refused_quickly() -> None:
    skipped = [{"name": "x", "uuid": f"{number // 2:036d}", "source": "kvm1", "reason": "", "state": "off", "drain": ""} for number in range(60000)]
    with pytest.raises(InvalidArgument, match="more than once"):
        saved_plan.read_plan(edited(lambda plan: plan.update(skipped=skipped), reseal=True))


def test_a_plan_over_the_size_limit_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_plan, "_MAX_CHARACTERS", 10)
    with pytest.raises(InvalidArgument, match="more than 10 characters"):
        saved_plan.read_plan(json.dumps(PLAN))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*PLAN, *PLAN["moves"][0]]), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(PLAN)), JSON, st.booleans())
def test_any_value_in_any_part_of_a_plan_is_read_or_refused(key: str, value: t.Any, deep: bool) -> None:
    document = edited(lambda plan: (plan["moves"][0] if deep else plan).update({key: value}))
    document = document if key == "schema" and not deep else sealed(document)
    with contextlib.suppress(InvalidArgument):
        assert {move.source for move in saved_plan.read_plan(document).moves} <= {*document["sources"]}
