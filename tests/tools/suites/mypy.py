# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Static types of everything under plugins/, of the event source, of the benchmarks, of these tools, of both labs, and of the scenarios on whole machines."""

from __future__ import annotations

from . import places
from .results import Results


def run(results: Results) -> None:
    """Check plugins, event source and benchmarks as the packages that they are, the tools as scripts, the labs, and the scenarios that hardly ever run."""
    # The sanity tests list the files of the copy meanwhile.
    mypy = [places.tool("mypy"), "--config-file", str(places.COPY / ".mypy.ini"), "--cache-dir", str(places.BUILD / ".mypy_cache")]
    env = places.environment(MYPYPATH=f"{places.BUILD}:{places.COPY / 'tests/tools/stubs'}")
    scenarios = places.environment(MYPYPATH=str(places.BUILD))
    results.check("plugins", [*mypy, "-p", "ansible_collections.kvmfleet.migration.plugins"], cwd=places.BUILD, env=env)
    results.check("event source", [*mypy, "-p", "ansible_collections.kvmfleet.migration.extensions"], cwd=places.BUILD, env=env)
    results.check("benchmarks", [*mypy, "-p", "ansible_collections.kvmfleet.migration.bench"], cwd=places.BUILD, env=env)
    results.check("tools", [*mypy, "."], cwd=places.COPY / "tests" / "tools")
    results.check("lab", [*mypy, "kvmlab"], cwd=places.COPY / "tests" / "lab")
    results.check("machines", [*mypy, "-p", "tests.machines.kvmmachines"])
    results.check("scenarios on machines", [*mypy, "-p", "ansible_collections.kvmfleet.migration.tests.machines.scenarios"], cwd=places.BUILD, env=scenarios)
