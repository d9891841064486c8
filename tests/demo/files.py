# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the report's files in a folder anew from the JSON there, after a change of what a report looks like."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import file_names, render_files

FORMATS = ("html", "json", "csv", "markdown", "junit")


def rendered(folder: Path) -> dict[str, bytes]:
    """Return what the report's files in that folder are to be, by name."""
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return render_files(decode(Report, document), file_names("report", FORMATS))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name, content in rendered(target).items():
        (target / name).write_bytes(content)
