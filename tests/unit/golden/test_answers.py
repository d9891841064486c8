# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The present code decides about documents of earlier trees as those trees did."""

from __future__ import annotations

import functools
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.tests.golden import answers
from ansible_collections.kvmfleet.migration.tests.golden.corpus import CORPORA

Answers = dict[str, t.Any]

GIVEN: dict[Path, Answers] = {corpus: json.loads((corpus / "answers.json").read_text(encoding="utf-8")) for corpus in CORPORA}
QUESTIONS = [pytest.param(corpus, question, id=f"{corpus.name}-{question}") for corpus, given in GIVEN.items() for question in sorted(given)]

every_corpus = pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)


@functools.lru_cache
def given_now(corpus: Path) -> Answers:
    """Return the present answers, as JSON has them."""
    return t.cast("Answers", json.loads(json.dumps(answers.of(corpus))))


@pytest.mark.parametrize(("corpus", "question"), QUESTIONS)
def test_answers_equal_those_of_the_tree_that_wrote_the_documents(corpus: Path, question: str) -> None:
    assert given_now(corpus)[question] == GIVEN[corpus][question]


@every_corpus
def test_all_questions_of_a_corpus_are_asked(corpus: Path) -> None:
    assert given_now(corpus).keys() == GIVEN[corpus].keys()


@every_corpus
def test_every_kind_of_decision_about_a_move_is_in_the_corpus(corpus: Path) -> None:
    kinds = {decision["is"] for cases in GIVEN[corpus]["decisions"] for decision in cases.values()}
    assert kinds == {"Start", "Observe", "Conclude", "Adopt", "AdoptForeign", "AlreadyThere"}


@every_corpus
def test_recorded_decisions_equal_those_that_were_acted_on(corpus: Path) -> None:
    """Proves that the questions that are asked again here are those of the recorded decisions."""
    acted = [line["decision"]["is"] for line in answers.lines(corpus / "wire/decisions.jsonl")]
    assert acted == [cases["as it was"]["is"] for cases in GIVEN[corpus]["decisions"]]
