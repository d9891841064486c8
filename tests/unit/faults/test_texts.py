# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The texts of fault scenarios: all are understood, and what is not is named with its file and line."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.faults.engine import phrases, text
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.actions import Actions, method_of
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.histories import matches, words
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.located import TextError

GOOD = """---
title: One
shows: That it is one.
guests:
  web: {host: 1}
steps:
  - begin: first
    move: {guest: web, to: 2, bandwidth_mib: 2}
  - at: iteration 1
    do: [{kill: watcher}, {kill: qemu of web on 2}, {let pass: 2.5}, {cut: {host: 1, peer: 2, only: [data], direction: out}}]
  - wait: first
    exit: failed
    error: migration_failed
expect:
  guests: {web: {1: running}}
  records:
    - {guest: web, history: "accepted, arrived?, *, failed"}
  tasks: {first: failed}
"""


def read(folder: pathlib.Path, content: str) -> text.Scenario:
    file = folder / "one.yml"
    file.write_text(content, encoding="utf-8")
    return text.read(file)


@pytest.mark.parametrize("file", text.files(), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_each_scenario_can_be_read(file: pathlib.Path) -> None:
    scenario = text.read(file)
    assert scenario.title
    assert scenario.shows.endswith(".")


def test_titles_of_scenarios_are_unique() -> None:
    titles = [text.read(file).title for file in text.files()]
    assert sorted(set(titles)) == sorted(titles)


def test_a_scenario_is_parsed_into_steps(tmp_path: pathlib.Path) -> None:
    scenario = read(tmp_path, GOOD)
    assert [step.kind for step in scenario.steps] == ["begin", "at", "wait"]
    at = scenario.steps[1]
    assert (at.moment, at.guest, at.times) == ("iteration 1", "web", 1)
    assert at.actions[1] == phrases.Action("kill", what="qemu", of="web", on=2)
    assert scenario.steps[0].task == text.Task("move", {"guest": "web", "to": 2}, {"bandwidth_mib": 2})
    assert scenario.steps[2].line == 11


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("title: One", "titel: One", 2, "no key 'titel'"),
        ("guests:\n", "guests: {}\nguests:\n", 5, "twice"),
        ("{host: 1}", "{host: 4}", 5, "no host 4"),
        ("{host: 1}", "{host: 1, size: 3}", 5, "no key 'size'"),
        ("iteration 1", "iteration x", 9, "no moment 'iteration x'"),
        ("kill: watcher", "kill: the watcher", 10, "kill takes"),
        ("{kill: qemu of web on 2}", "{kill: qemu on 2}", 10, "needs 'of"),
        ("{kill: watcher}", "{kill: watcher on 1}", 10, "takes no 'on"),
        ("{kill: watcher}", "{hit: watcher}", 10, "no verb 'hit'"),
        ("{kill: watcher}", "{kill: etcd member}", 10, "needs 'number"),
        ("{kill: watcher}", "{kill: watcher 1}", 10, "takes no 'number"),
        ("{kill: watcher}", "{kill: etcd member 4}", 10, "kill takes"),
        ("{kill: watcher}", "{kill: etcd leader}", 9, "'kill: etcd leader' needs 'ledger: etcd'"),
        ("{kill: watcher}", "{accept: new cluster}", 9, "needs 'ledger: etcd'"),
        ("title: One", "title: One\nledger: paper", 3, "one of files, etcd"),
        ("title: One", "title: One\nledger: etcd\nledger_mib: 4", 4, "'ledger_mib' is about"),
        ("only: [data]", "only: [dat]", 10, "'only' takes"),
        ("peer: 2", "pear: 2", 10, "no key 'pear'"),
        ("exit: failed", "exit: true", 12, "ok, failed or any"),
        ("wait: first", "wait: second", 6, "never begun"),
        ("to: 2,", "to: 9,", 8, "no host 9"),
        ("move: {guest: web", "move: {guest: app", 8, "no guest 'app'"),
        ("{guest: web, history", "{guest: web, story", 17, "no key 'story'"),
        ("guests: {web: {1: running}}", "guests: {app: {1: running}}", 15, "no guest 'app'"),
        ('"accepted, arrived?, *, failed"', "[accepted]", 17, "line of text"),
        ("tasks: {first", "tasks: {second", 18, "'second' was never begun"),
        ("tasks: {first: failed", "tasks: {first: any", 18, "ok or failed"),
    ],
)
def test_an_invalid_scenario_is_refused_with_file_and_line(tmp_path: pathlib.Path, old: str, new: str, line: int, told: str) -> None:
    assert old in GOOD
    with pytest.raises(TextError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert told in str(caught.value)
    assert f"one.yml:{line}:" in str(caught.value)


def test_faults_of_etcd_are_parsed_only_in_scenarios_on_etcd(tmp_path: pathlib.Path) -> None:
    on_etcd = GOOD.replace("title: One", "title: One\nledger: etcd")
    scenario = read(tmp_path, on_etcd.replace("{kill: watcher}", "{freeze: etcd member 2}, {stop: all etcd members}"))
    assert scenario.steps[1].actions[:2] == (phrases.Action("freeze", what="etcd member", number=2), phrases.Action("stop", what="all etcd members"))
    with pytest.raises(TextError, match="'write-protect: ledger' needs 'ledger: files'"):
        read(tmp_path, on_etcd.replace("{kill: watcher}", "{write-protect: ledger}"))


def test_invalid_yaml_is_refused_with_its_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TextError, match=r"one\.yml"):
        read(tmp_path, GOOD + "  - ]")


def test_each_verb_has_an_action() -> None:
    assert [verb for verb in phrases.VERBS if not callable(getattr(Actions, method_of(verb), None))] == []


@pytest.mark.parametrize(
    ("lines", "wanted", "same"),
    [
        ("a, b", "a, b", True),
        ("a, b", "a", False),
        ("a", "a, b", False),
        ("b, a", "a, b", False),
        ("a, c", "a, b?, c", True),
        ("a, b, c", "a, b?, c", True),
        ("a, b, b, c", "a, b?, c", False),
        ("a, b, c", "a, *", True),
        ("a, b, c", "*, c", True),
        ("a, b, c", "*, d", False),
        ("", "", True),
        ("a", "", False),
    ],
)
def test_expected_lines_match_in_order_with_optional_and_open_parts(lines: str, wanted: str, same: bool) -> None:
    assert matches(words(lines), words(wanted)) is same
