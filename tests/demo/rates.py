# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drains a real host with busy and full guests over a slow cable, and keeps the report as JSON: the picture of its rates in docs/report.md is made from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.kvmfleet.migration.bench.cases import link
from ansible_collections.kvmfleet.migration.bench.hosts import fleet
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control

TITLE = "A drain over a slow cable"


def drain(control: Control) -> None:
    """Make the guests of the benchmark of the link, and drain their host over its cable. Raises CalledProcessError with what a playbook printed."""
    lab = control.lab
    for number in range(link.BUSY):
        lab("guest", f"busy{number}", "--host", lab.host(1), *_size(link.BUSY_MIB, link.PAGES_A_SECOND))
    for number in range(link.FULL):
        lab("guest", f"full{number}", "--host", lab.host(1), *_size(link.FULL_MIB, 0))
    lab("slow", lab.host(1), "--mbit", str(link.CABLE_MBIT))
    _play(control, "drain", {"target": lab.host(1), "drain_host_options": {"link_mib": link.CABLE_MIB}})


def _size(dirty_mib: int, pages_a_second: int) -> list[str]:
    return ["--mib", str(link.GUEST_MIB), "--dirty-mib", str(dirty_mib), "--rate", str(pages_a_second)]


def _play(control: Control, playbook: str, variables: dict[str, object]) -> None:
    subprocess.run(control.playbook_command(playbook, variables), env=control.environment, stdin=subprocess.DEVNULL, check=True)


def main(target: Path) -> None:
    """Write the report of such a drain to that file."""
    with fleet("r", 2) as control:
        drain(control)
        folder = control.folder / "report"
        _play(control, "report", {"report_dest": str(folder), "report_formats": ["json"], "report_title": TITLE})
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    target.write_text(json.dumps(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
