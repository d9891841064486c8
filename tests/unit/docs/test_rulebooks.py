# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rulebooks act only if a person has armed them, run playbooks that exist and take a slot of the brake, and docs/events.md has their variables."""

from __future__ import annotations

import re
import typing as t

import jinja2
import pytest
import yaml

from ansible_collections.kvmfleet.migration.tests.unit.docs.pages import DOCS, ROOT

RULEBOOKS = sorted((ROOT / "extensions" / "eda" / "rulebooks").glob("*.yml"))
PLAYBOOKS = sorted((ROOT / "playbooks").glob("react_*.yml"))
ARMED = re.compile(r'"armed \{\{ (kvmfleet_events_\w+) \| default\(false\) \| string \| lower \}\}" == "armed true"')
VARIABLE = re.compile(r"\bkvmfleet_events_\w+")

Rule = dict[str, t.Any]


def rules(rulebook: str) -> list[Rule]:
    text = (ROOT / "extensions" / "eda" / "rulebooks" / f"{rulebook}.yml").read_text(encoding="utf-8")
    return [rule for ruleset in yaml.safe_load(text) for rule in ruleset["rules"]]


ACTING = [(path.stem, rule) for path in RULEBOOKS for rule in rules(path.stem) if "run_playbook" in rule["action"]]


def test_all_rulebooks_and_playbooks_are_found() -> None:
    assert [path.stem for path in RULEBOOKS] == ["host_back", "host_gone", "post_copy_failed", "watch"]
    assert {rule["action"]["run_playbook"]["name"] for _rulebook, rule in ACTING} == {f"kvmfleet.migration.{path.stem}" for path in PLAYBOOKS}


@pytest.mark.parametrize(("rulebook", "rule"), ACTING)
def test_a_rule_that_acts_has_to_be_armed_and_reports_otherwise(rulebook: str, rule: Rule) -> None:
    assert len(ARMED.findall(rule["condition"])) == 1
    opposite = " ".join(rule["condition"].replace('== "armed true"', '!= "armed true"').split())
    (other,) = [one for one in rules(rulebook) if " ".join(one["condition"].split()) == opposite]
    assert list(other["action"]) == ["debug"]


@pytest.mark.parametrize("value", [None, False, "false", "", "maybe", "no", 1, "1", [], "armed true"])
def test_a_reaction_whose_variable_is_not_true_only_reports(value: t.Any) -> None:
    for rulebook, rule in ACTING:
        (name,) = ARMED.findall(rule["condition"])
        assert not _is_armed(rule["condition"], {name: value}), rulebook
        assert not _is_armed(rule["condition"], {}), rulebook
        assert _is_armed(rule["condition"], {name: True}), rulebook


def _is_armed(condition: str, variables: dict[str, t.Any]) -> bool:
    """Whether the part of a condition that arms it holds, when ansible-rulebook has replaced its template."""
    rendered = jinja2.Template(condition).render(variables)
    (part,) = re.findall(r'"(armed [^"]*)" == "armed true"', rendered)
    return bool(part == "armed true")


def test_each_reaction_has_its_own_variable() -> None:
    armed = {rulebook: ARMED.findall(rule["condition"])[0] for rulebook, rule in ACTING}
    assert armed == {"host_back": "kvmfleet_events_return", "host_gone": "kvmfleet_events_evacuate", "post_copy_failed": "kvmfleet_events_recover"}


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_a_reaction_takes_a_slot_of_the_brake_before_it_acts(path: t.Any) -> None:
    plays = yaml.safe_load(path.read_text(encoding="utf-8"))
    play = plays[-1]
    tasks = [*play.get("pre_tasks", []), *play.get("tasks", [])]
    modules = [next(key for key in task if key.startswith(("kvmfleet.", "ansible."))) for task in tasks]
    harmless = {"kvmfleet.migration.event_brake", "kvmfleet.migration.migration_info"}
    acting = [number for number, module in enumerate(modules) if module.startswith("kvmfleet.") and module not in harmless]
    # One with _work only checks the request.
    taking = [number for number, task in enumerate(tasks) if "_work" not in task.get("kvmfleet.migration.event_brake", {"_work": {}})]
    assert taking or path.stem == "react_armed"
    assert all(number > taking[0] for number in acting)


@pytest.mark.parametrize("path", [*RULEBOOKS, *PLAYBOOKS], ids=lambda path: path.stem)
def test_the_variables_of_a_reaction_are_on_the_page_about_events(path: t.Any) -> None:
    described = set(VARIABLE.findall((DOCS / "events.md").read_text(encoding="utf-8")))
    assert set(VARIABLE.findall(path.read_text(encoding="utf-8"))) - described == set()
