# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control node for each test."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._cold.control import ColdControl


@pytest.fixture
def control(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> ColdControl:
    """A ledger and a fleet of three."""
    return ColdControl(tmp_path, monkeypatch)
