# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of filters in docs/inventory.md lists every filter of the scheduler, and whether it can be switched off."""

from __future__ import annotations

import re

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import FILTERS

from .pages import ROOT

ROW = re.compile(r"^\| `(\w+)` \| .* \| (yes|no)\b.*\|$", re.MULTILINE)


def test_the_table_of_filters_is_complete() -> None:
    section = (ROOT / "docs/inventory.md").read_text(encoding="utf-8").partition("\n## Filters\n")[2]
    assert ROW.findall(section) == [(name, "no" if why else "yes") for name, why in FILTERS.items()]
