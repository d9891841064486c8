# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real etcd, for what keeps a ledger there."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest

# The lab's package, which starts an etcd of its own.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab"))

from kvmlab.etcd import Cluster


@pytest.fixture(scope="session")
def member(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    """An etcd of one member, for all tests of the process."""
    cluster = Cluster(tmp_path_factory.mktemp("etcd") / "cluster")
    try:
        cluster.up(members=1)
        yield cluster
    finally:
        cluster.down()
