# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The software bill of materials of a release: written beside its tarball, and compared with what is in the tree."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .. import places
from ..results import Results
from . import bill, licences
from .contents import Contents


def check(results: Results, tarball: Path) -> None:
    """Write the bill of that tarball to its folder, and count whether it is valid and whole."""
    contents = Contents(tarball)
    bom = bill.bill(contents, tarball)
    written = bill.text(bom)
    path = tarball.with_name(tarball.name.replace(".tar.gz", ".cdx.json"))
    path.write_text(written, encoding="utf-8")
    print(f"{path.name}: {len(bom.components)} components", flush=True)
    flaw = bill.flaw(written)
    _count(results, "the SBOM is valid CycloneDX", [flaw] if flaw else [])
    _count(results, "the SBOM has all that is not ours", licences.missing(contents, bom, _reuse()))


def _reuse() -> dict[str, object]:
    """Return what REUSE says of every file of the checkout, where git tells it what is ignored."""
    argv = [places.tool("reuse"), "lint", "--json"]
    done = subprocess.run(argv, cwd=places.ROOT, env=places.environment(), capture_output=True, text=True, check=False, timeout=300)
    return dict(json.loads(done.stdout))


def _count(results: Results, name: str, problems: list[str]) -> None:
    for problem in problems:
        print(problem, flush=True)
    results.add(name, passed=not problems)
