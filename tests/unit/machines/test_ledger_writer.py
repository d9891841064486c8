# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that writes a ledger in a machine, which has no Ansible: it needs nothing but Python's standard library."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(__file__).resolve().parents[6]
WRITER = pathlib.Path(__file__).resolve().parents[2] / "machines" / "scenarios" / "support" / "ledger_writer.py"


def test_records_are_opened_without_ansible_and_only_once(tmp_path: pathlib.Path) -> None:
    # -S: without what is installed beside the standard library.
    command = [sys.executable, "-I", "-S", str(WRITER), str(BUILD), str(tmp_path / "ledger"), "control1", "2"]
    answers = [subprocess.run(command, capture_output=True, text=True, timeout=300, check=False) for _attempt in range(2)]
    assert [answer.returncode for answer in answers] == [0, 0], answers[0].stderr
    first, second = (json.loads(answer.stdout) for answer in answers)
    assert first == {"opened": [0, 1], "unseen": [], "problems": []}
    assert second == {"opened": [], "unseen": [], "problems": []}
