# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The script that installs the requirements of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools/setup.sh"


def test_a_virtual_environment_that_is_a_link_is_not_emptied(tmp_path: Path) -> None:
    other, build = tmp_path / "other", tmp_path / "build"
    for folder in (other, build):
        folder.mkdir()
    (other / "pyvenv.cfg").touch()
    (build / "venv").symlink_to(other)
    (tmp_path / "requirements.txt").touch()
    text = SCRIPT.read_text(encoding="utf-8")
    function = text[text.index("make_venv() {") :].split("\n}\n")[0]
    script = f"build='{build}'\nroot='{tmp_path}'\n{function}\n}}\nmake_venv venv '{sys.executable}' '{tmp_path}/requirements.txt'"
    done = subprocess.run(["sh", "-euc", script], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, (other / "pyvenv.cfg").exists()) == (0, True), done.stderr
