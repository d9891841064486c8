# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can end otherwise with another release of ansible-core: imports with the first and the last one that are supported, the rest with the last one.

Sanity tests with every release are in C(make sanity-matrix).
"""

from __future__ import annotations

from . import places, pytest, releases, sanity
from .results import Results

# What Ansible itself reads, and its rules for that. The others judge text, with tools that hardly change; import_plugins is the short form of "import".
TESTS = ("ansible-doc", "runtime-metadata", "validate-modules")
# These run real plays, with the release whose Python they are given.
PLAYS = "tests/unit/variables"


def run(results: Results) -> None:
    """Import all plugins with each release, on its own Python; run those tests and plays with the last one."""
    chosen = [word for test in TESTS for word in ("--test", test)]
    for release in releases.others(results, releases.ENDS):
        results.check(f"{release.prefix}every plugin is imported", [places.tool("python", release.venv), sanity.IMPORT], env=places.environment(release.venv))
        if release.version == releases.ENDS[-1]:
            sanity.run_with(results, release.venv, release.prefix, *sanity.HERE, "--target-python", "default", *chosen)
            run_plays(results, release)


def run_plays(results: Results, release: releases.Release) -> None:
    """Run those plays with that release."""
    env = places.environment(KVMFLEET_ANSIBLE_PYTHON=places.tool("python", release.venv))
    pytest.run(results, release.venv.name, places.tool("python"), [PLAYS], env)
