# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the importer's log is a failure: it ends with 0 whatever it finds."""

from __future__ import annotations

import pytest
from suites.importer import findings

NEWS = "Importing with galaxy-importer\nGetting doc strings via ansible-doc\n...ansible-doc run complete\n"


@pytest.mark.parametrize("line", ["WARNING: No changelog found.", "ERROR: Error running ansible-doc: no such option"])
def test_a_warning_and_an_error_are_findings(line: str) -> None:
    assert findings(f"{NEWS}{line}\n") == [line]


def test_information_lines_are_not_findings() -> None:
    assert findings(NEWS) == []
