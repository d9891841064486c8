# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of an evacuation."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.job import check_numbers


@pytest.mark.parametrize(("parallel", "wait"), [(0, 0), (65, 0), (1, -1), (1, 3601)])
def test_parallel_and_lock_wait_out_of_bounds_are_refused(parallel: int, wait: int) -> None:
    with pytest.raises(InvalidArgument):
        check_numbers(parallel, wait)
