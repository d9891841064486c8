# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger as a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import FileStore


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A folder that is not there yet."""
    return str(tmp_path / "ledger")


@pytest.fixture
def store(path: str) -> FileStore:
    return FileStore(Path(path))


@pytest.fixture
def ledger(store: FileStore) -> FileLedger:
    return store.open()
