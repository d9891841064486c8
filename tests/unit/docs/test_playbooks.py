# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of the playbooks names each of them, each option that somebody can give to one, and exactly the variables that it reads."""

from __future__ import annotations

import re

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.domain_location import given_options_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import PURPOSES
from ansible_collections.kvmfleet.migration.tests.unit.docs.pages import DOCS, ROOT

PAGE = (DOCS / "playbooks.md").read_text(encoding="utf-8")
# What nobody starts at a shell to work with a fleet: it sets something up, or reacts to an event.
OTHERS = {"awx_setup", "exchange_keys", "react_armed", "react_host_back", "react_host_gone", "react_host_isolated", "react_post_copy_failed"}
ROW = re.compile(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| \S", re.MULTILINE)
SURVEY = re.compile(r"^ {10}(\w+): \"\{\{ (\w+) \| default\(''\) \}\}\"$", re.MULTILINE)


def section_of(purpose: str) -> str:
    return PAGE.partition(f"\n## {purpose}\n")[2].partition("\n## ")[0]


def test_the_page_names_every_playbook() -> None:
    table = PAGE.partition("| playbook |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - OTHERS


@pytest.mark.parametrize("purpose", PURPOSES)
def test_every_option_of_a_playbook_is_documented(purpose: str) -> None:
    rows = dict(ROW.findall(section_of(purpose)))
    assert rows.keys() == given_options_spec(purpose).keys()
    assert f"`{purpose}_options`" in section_of(purpose)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_variables_of_options_are_those_that_the_playbook_reads(purpose: str) -> None:
    rows = {option: variable for option, variable in ROW.findall(section_of(purpose)) if variable}
    text = (ROOT / "playbooks" / f"{purpose}.yml").read_text(encoding="utf-8")
    assert rows == dict(SURVEY.findall(text))
    assert all(variable == f"{purpose}_{option}" for option, variable in rows.items())
    assert f"{purpose}_options | default(" in text


@pytest.mark.parametrize("purpose", sorted({*PURPOSES} - {"migrate"}))
def test_every_option_reaches_the_module(purpose: str) -> None:
    text = (ROOT / "playbooks" / f"{purpose}.yml").read_text(encoding="utf-8")
    passed = re.findall(r"^ {8}(\w+): \"\{\{ __domain_checked\.options\.(\w+) \| default\(omit\) \}\}\"$", text, re.MULTILINE)
    assert {option for _name, option in passed} == given_options_spec(purpose).keys()
    assert all(name == option for name, option in passed)
    # migrate passes the dictionary as it is.
    assert "__domain_checked.options)" in (ROOT / "playbooks/migrate.yml").read_text(encoding="utf-8")
