# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The event source and the rulebooks under a real ansible-rulebook, on real libvirt hosts. setup.sh brings the Java that it needs."""

from __future__ import annotations

import sys
from pathlib import Path

from . import interpreters, places, pytest
from .integration import EDA
from .results import Results
from .warnings_gate import scenarios

VENV = places.BUILD / "venv-eda"
# The distribution's Python, for its libvirt binding.
PYTHON = Path("/usr/bin/python3")
# ansible-rulebook says pyparsing 3.0, which Debian 12 has, and needs 3.1.
REQUIREMENTS = ["ansible-core >= 2.19.0, < 2.20", "ansible-rulebook >= 1.3, < 2", "jmespath >= 1.0.0", "pyparsing >= 3.1, != 3.3.3", "pytest >= 8.4, < 10"]


def make_environment() -> bool:
    """Make the virtual environment with ansible-rulebook, unless it is there; return whether it is."""
    return interpreters.make_venv(PYTHON, VENV, REQUIREMENTS, "--system-site-packages")


def run(results: Results) -> None:
    """Run all of them, one after the other: each wants the whole fleet."""
    if not make_environment():
        results.add("no virtual environment with ansible-rulebook", passed=False)
    else:
        with scenarios(results, "kvn", VENV) as env:
            pytest.run(results, "kvn", places.tool("python", VENV), [f"tests/integration/{EDA}"], env)


if __name__ == "__main__":
    sys.exit(not make_environment())
