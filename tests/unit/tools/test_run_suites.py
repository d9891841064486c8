# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run over all suites: every one runs, one that dies is a failure, and the last line has the counts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
GOOD = 'def run(results):\n    results.add("one", True)\n'
SKIPS = 'def run(results):\n    results.add("one", True)\n    results.skip("two", "no Python 3.9")\n'
FAILS = 'def run(results):\n    results.add("one", False)\n'
RAISES = 'def run(results):\n    results.add("one", True)\n    raise RuntimeError("torn")\n'
DIES = "import os\n\n\ndef run(results):\n    os._exit(0)\n"
SLOW = """import time
from pathlib import Path


def run(results):
    Path("started").touch()
    try:
        time.sleep(120)
    finally:
        Path("torn-down").touch()
"""

WAITS = """import time
from pathlib import Path


def run(results):
    limit = time.monotonic() + 300
    while not Path("beside").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    results.add("the other one has begun", Path("beside").exists())
"""
BESIDE = """from pathlib import Path


def run(results):
    Path("beside").touch()
    print("from beside")
    results.add("one", True)
"""


@pytest.fixture(name="tools")
def copy_of_tools(tmp_path: Path) -> Path:
    tools = tmp_path / "tests" / "tools"
    shutil.copytree(TOOLS, tools)
    for name, code in {"good": GOOD, "skips": SKIPS, "fails": FAILS, "raises": RAISES, "dies": DIES, "slow": SLOW}.items():
        (tools / "suites" / f"{name}.py").write_text(code, encoding="utf-8")
    return tools


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("suites", "code", "last_line"),
    [
        (["good"], 0, "1 passed, 0 failed"),
        (["good", "skips"], 0, "2 passed, 0 failed, 1 skipped"),
        (["fails", "good"], 1, "1 passed, 1 failed"),
        (["raises", "good"], 1, "2 passed, 1 failed"),
        (["dies", "good"], 1, "1 passed, 1 failed"),
        ([], 1, "0 passed, 0 failed"),
    ],
)
def test_the_last_line_has_the_counts_and_the_exit_code_matches(tools: Path, suites: list[str], code: int, last_line: str) -> None:
    done = subprocess.run([sys.executable, tools / "run_suites.py", *suites], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines()[-1] == last_line
    assert done.returncode == code


def test_the_result_of_an_earlier_run_does_not_count(tools: Path) -> None:
    argv = [sys.executable, tools / "run_suites.py", "good"]
    subprocess.run(argv, capture_output=True, timeout=300, check=True)
    (tools / "suites" / "good.py").write_text(DIES, encoding="utf-8")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed")


def test_a_suite_that_runs_beside_others_is_shown_in_one_block(tools: Path) -> None:
    (tools / "suites" / "integration.py").write_text(WAITS, encoding="utf-8")
    (tools / "suites" / "molecule.py").write_text(BESIDE, encoding="utf-8")
    done = subprocess.run([sys.executable, tools / "run_suites.py", "integration", "molecule"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 passed, 0 failed"), done.stdout
    assert "== molecule, which ran beside the others\nfrom beside\n" in done.stdout


def test_a_suite_that_runs_beside_others_is_ended_with_the_run(tools: Path, tmp_path: Path) -> None:
    (tools / "suites" / "integration.py").write_text(WAITS.replace("beside", "never"), encoding="utf-8")
    (tools / "suites" / "molecule.py").write_text(SLOW, encoding="utf-8")
    with subprocess.Popen([sys.executable, tools / "run_suites.py", "integration", "molecule"], stdout=subprocess.DEVNULL) as run:
        wait_for(tmp_path / "started")
        run.terminate()
        assert run.wait(300) != 0
    assert (tmp_path / "torn-down").exists()


def test_a_suite_tears_down_when_the_run_is_ended(tools: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, tools / "run_suites.py", "slow"], stdout=subprocess.DEVNULL) as run:
        wait_for(tmp_path / "started")
        run.terminate()
        assert run.wait(300) != 0
    assert (tmp_path / "torn-down").exists()
