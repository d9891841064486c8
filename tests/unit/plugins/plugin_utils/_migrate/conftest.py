# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control node for each test, that waits for nothing."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import admission, follow
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control


@pytest.fixture
def control(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    """A ledger and a fleet of three, whose moves are polled without a pause."""
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    monkeypatch.setattr(admission, "ASK_SECONDS", 0)
    return Control(tmp_path)
