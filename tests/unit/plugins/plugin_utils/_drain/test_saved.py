# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan's file: written, read, edited by hand, damaged, or something else altogether."""

from __future__ import annotations

import contextlib
import json
import typing as t
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import saved
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.known import Known
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.wish import Wish
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

Document = dict[str, t.Any]

GUESTS = [f.domain("web", dirty_rate_mib=3), f.domain("db", drain="leave"), f.domain("batch", drain="shutdown"), f.domain("huge", 65000)]
FACTS = {"kvm1": f.host("kvm1", domains=GUESTS), "kvm2": f.host("kvm2", 8192), "kvm3": f.host("kvm3", 4096)}
PLAN = make_plan(Known(FACTS, scheduler={"kvm2": {"labels": ["ssd"]}}), ["kvm1"], ["kvm2", "kvm3"], Wish(n_plus_one=True))


def test_a_plan_comes_back_as_it_was() -> None:
    assert saved.read(json.dumps(PLAN, indent=4)) == PLAN
    assert saved.read(json.loads(json.dumps(PLAN))) == PLAN


def test_a_packed_plan_comes_back_as_it_was_and_holds_no_template() -> None:
    name = "{{ lookup('pipe', 'id') }} {% raw %}"
    plan = saved.sealed({**PLAN, "skipped": [{"name": name, "uuid": "0" * 36, "source": "kvm1", "reason": "", "state": "off", "drain": ""}]})
    text = saved.packed(plan)
    assert saved.read(text) == saved.read(text.encode()) == saved.read(f"{text}\n") == plan
    assert not {*text} & {*"{}%# \n'"}
    assert saved.packed(json.loads(json.dumps(plan))) == text


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
def test_a_packed_plan_that_was_spoilt_is_a_sentence(spoil: Callable[[str], str]) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot be unpacked.*Nothing was moved"):
        saved.read(spoil(saved.packed(PLAN)))


def test_a_packed_plan_that_was_edited_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not as it was when it was made"):
        saved.read(saved.packed(edited(lambda plan: plan["moves"][0].update(destination="kvm3"))))


def test_a_packed_plan_is_not_unpacked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = saved.packed({"moves": " " * 10_000_000})
    monkeypatch.setattr(saved, "_MAX_CHARACTERS", 1_000_000)
    assert len(text) < 100_000
    with pytest.raises(InvalidArgument, match="more than 1000000 characters"):
        saved.read(text)


def edited(change: Callable[[Document], t.Any], reseal: bool = False) -> Document:
    plan: Document = json.loads(json.dumps(PLAN))
    change(plan)
    return saved.sealed(plan) if reseal else plan


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
    with pytest.raises(InvalidArgument, match=r"not as it was when it was made.*Nothing was moved"):
        saved.read(edited(change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan["moves"][0].update(destination=7), "moves, entry 1: destination is 7, not a text"),
        (lambda plan: plan["moves"][0].pop("request"), "moves, entry 1 has no request"),
        (lambda plan: plan["moves"].append("web"), "moves, entry 2 is 'web', not an object"),
        (lambda plan: plan.update(moves={}), "moves is {}, not a list"),
        (lambda plan: plan.update(sources="kvm1"), "sources is 'kvm1', not a list"),
        (lambda plan: plan["moves"][0].update(predicted_seconds=-1), "not a number of seconds"),
        (lambda plan: plan["moves"][0].update(memory_mib=True), "memory_mib is True"),
        (lambda plan: plan["moves"].append(plan["moves"][0]), "more than once"),
        (lambda plan: plan["moves"][0].update(source="kvm7"), "away from kvm7"),
        (lambda plan: plan["moves"][0].update(uuid="web"), "not a UUID"),
    ],
)
def test_a_plan_with_a_digest_of_its_own_is_still_no_licence(change: Callable[[Document], t.Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        saved.read(edited(change, reseal=True))


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
        (object(), "JSON cannot carry"),
        ({**PLAN, "schema": 1}, "schema 1, this version reads 2"),
        ({**PLAN, "schema": "2"}, "schema '2'"),
        ({**PLAN, "schema": True}, "schema True"),
    ],
)
def test_what_is_no_plan_is_a_sentence(document: t.Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        saved.read(document)


def test_many_domains_of_one_name_are_refused_at_once() -> None:
    skipped = [{"name": "x", "uuid": f"{number // 2:036d}", "source": "kvm1", "reason": "", "state": "off", "drain": ""} for number in range(60000)]
    with pytest.raises(InvalidArgument, match="more than once"):
        saved.read(edited(lambda plan: plan.update(skipped=skipped), reseal=True))


def test_a_file_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "_MAX_CHARACTERS", 10)
    with pytest.raises(InvalidArgument, match="more than 10 characters"):
        saved.read(json.dumps(PLAN))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*PLAN, *PLAN["moves"][0]]), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(PLAN)), JSON, st.booleans())
def test_any_part_may_be_anything(key: str, value: t.Any, deep: bool) -> None:
    document = edited(lambda plan: (plan["moves"][0] if deep else plan).update({key: value}))
    document = document if key == "schema" and not deep else saved.sealed(document)
    with contextlib.suppress(InvalidArgument):
        assert {move["source"] for move in saved.read(document)["moves"]} <= {*document["sources"]}
