# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guides: every command is run by a test or says why not, every link leads somewhere, every error code and every end of a move is explained."""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import outcome
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.tests.integration.guides.support import guide as g
from ansible_collections.kvmfleet.migration.tests.unit.docs.pages import DOCS, anchors

# Its links are those of the site, which the suite "docs" follows.
SITE_INDEX = DOCS / "docsite" / "index.md"
LINK = re.compile(r"\]\(([^)\s]+)\)")
ERRORS = (g.GUIDES / "errors.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("guide", [*g.paths(), g.README], ids=lambda path: path.stem)
def test_every_command_of_a_guide_is_run_or_says_why_not(guide: pathlib.Path) -> None:
    steps = g.steps_of(guide)
    assert any(step.kind == g.RUN for step in steps)
    assert [step.line for step in steps if step.language == "sh" and step.kind not in (g.RUN, g.NOT_RUN, g.FILE)] == []
    assert [step.line for step in steps if step.kind == g.NOT_RUN and not step.argument] == []


@pytest.mark.parametrize("page", sorted({g.README, *DOCS.rglob("*.md")} - {SITE_INDEX}), ids=lambda path: str(path.relative_to(g.ROOT)))
def test_links_of_pages_have_existing_targets(page: pathlib.Path) -> None:
    wrong = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        path, _hash, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_wrong = not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target))
        if is_wrong and "://" not in link:
            wrong.append(link)
    assert wrong == []


def test_every_guide_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in g.paths() if f"](guides/{path.name})" not in index] == []


def test_the_error_page_explains_exactly_the_existing_error_codes() -> None:
    codes = {cls.error_code for cls in KvmfleetError.__subclasses__()}
    assert set(re.findall(r"^### `(\w+)`$", ERRORS, re.MULTILINE)) == codes
    assert set(re.findall(r"^\| `(\w+)` \| [^`|]+ \| [^|]+ \|$", ERRORS, re.MULTILINE)) == codes


def test_the_error_page_explains_every_final_status_and_reason() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", ERRORS, re.MULTILINE))
    errors = {value for name, value in vars(outcome).items() if name.startswith("REASON_")}
    assert {reason for status, reason in rows if status == statuses.CANCELLED} >= set(statuses.CANCEL_REASONS)
    assert {reason for status, reason in rows if status == statuses.ERROR} >= errors
    assert {status for status, reason in rows} >= statuses.CLOSED | {statuses.ERROR}
