# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan of a drain that version 0.1.0 saved is read, and is the same when it is sealed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved import packed, read, sealed

CORPUS = Path(__file__).resolve().parents[4] / "golden" / "0.1.0"


@pytest.mark.parametrize("name", ["plans/drain.json", "unknown-keys/drain.json"])
def test_a_saved_plan_is_read_and_is_written_back_byte_for_byte(name: str) -> None:
    text = (CORPUS / name).read_text(encoding="utf-8")
    plan = read(text)
    assert plan["moves"]
    assert read(packed(plan)) == plan
    assert json.dumps(sealed(plan), indent=4, sort_keys=True) + "\n" == text
