# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs antsibull-docs with temporary folders whose names do not end with an underscore.

The pages that it writes for rstcheck contain the name of the folder, and reStructuredText takes a word with an underscore at its end for a reference.
"""

from __future__ import annotations

import sys
import tempfile

from antsibull_docs.cli.antsibull_docs import main

if __name__ == "__main__":
    tempfile._RandomNameSequence.characters = tempfile._RandomNameSequence.characters.replace("_", "")  # type: ignore[attr-defined]
    sys.exit(main())
