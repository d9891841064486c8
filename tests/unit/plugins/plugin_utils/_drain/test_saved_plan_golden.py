# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan of a drain that an earlier tree saved is read, and is the same when it is sealed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import pack_plan, read_plan
from ansible_collections.kvmfleet.migration.tests.golden.corpus import CORPORA, GOLDEN

PLANS = [corpus / name for corpus in CORPORA for name in ("plans/drain.json", "unknown-keys/drain.json")]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_a_saved_plan_is_read_and_is_written_back_byte_for_byte(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    plan = read_plan(text)
    assert plan.moves
    assert read_plan(pack_plan(plan)) == plan
    assert json.dumps(encode(plan.seal()), indent=4, sort_keys=True) + "\n" == text
