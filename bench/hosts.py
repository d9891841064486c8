# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real libvirt hosts for a benchmark, with a control node, which are gone afterwards."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab


@contextlib.contextmanager
def fleet(name: str, hosts: int) -> t.Iterator[Control]:
    """Give a control node with so many hosts; C(name), of one letter or two, keeps benchmarks apart."""
    lab = Lab(f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'kvb')}{name}")
    lab("down")
    try:
        lab("up", "--hosts", str(hosts))
        with tempfile.TemporaryDirectory() as folder:
            yield Control(lab, pathlib.Path(folder))
    finally:
        lab("down")
