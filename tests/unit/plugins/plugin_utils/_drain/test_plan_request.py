# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan in its file."""

from __future__ import annotations

import pathlib

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_request import save_plan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import sealed_plan, uuid_of

PLAN = sealed_plan(
    sources=("kvm1", "kvm3"),
    options={"moves": {"timeout_seconds": 9}},
    moves=[{"uuid": uuid_of("a"), "name": "a", "source": "kvm1", "destination": "kvm2"}],
)


def test_a_plan_is_written_to_its_file_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.json"
    assert save_plan(PLAN, str(path), check_mode=True)
    assert not path.exists()
    assert save_plan(PLAN, str(path), check_mode=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not save_plan(PLAN, str(path), check_mode=False)
