# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What version 0.1.0 decided when it read its own documents is what the present code decides."""

from __future__ import annotations

import functools
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.tests.golden import answers

CORPUS = Path(__file__).resolve().parents[2] / "golden" / "0.1.0"
GIVEN = json.loads((CORPUS / "answers.json").read_text(encoding="utf-8"))


@functools.lru_cache
def given_now() -> dict[str, t.Any]:
    """Return the present answers, as JSON has them."""
    return t.cast("dict[str, t.Any]", json.loads(json.dumps(answers.of(CORPUS))))


@pytest.mark.parametrize("question", sorted(GIVEN))
def test_the_answers_are_those_of_the_version_that_wrote_the_documents(question: str) -> None:
    assert given_now()[question] == GIVEN[question]


def test_every_kind_of_decision_about_a_move_is_in_the_corpus() -> None:
    kinds = {decision["is"] for cases in GIVEN["decisions"] for decision in cases.values()}
    assert kinds == {"Start", "Observe", "Conclude", "Adopt", "AdoptForeign", "AlreadyThere"}


def test_the_answers_given_at_the_time_are_those_that_were_acted_upon() -> None:
    """The recorder saw the decision itself: what is asked again here is the same question."""
    acted = [line["decision"]["is"] for line in answers.lines(CORPUS / "wire/decisions.jsonl")]
    assert acted == [cases["as it was"]["is"] for cases in GIVEN["decisions"]]
