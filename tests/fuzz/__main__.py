# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzzes one target, or tries one case again. Tells how many cases ran, and leaves the case of a finding in a file."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

from . import by_coverage, by_structure, registry
from .findings import read, write
from .target import Target
from .watch import Finding, limited_memory, observe

STRUCTURE, COVERAGE = "structure", "coverage"


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        print("\n".join(registry.names()))
        return 0
    target = (by_coverage if arguments.engine == COVERAGE else registry).targets()[arguments.target]
    with limited_memory():
        if arguments.replay:
            return _replay(target, arguments.replay)
        if arguments.engine == COVERAGE:
            is_clean = by_coverage.run(target, arguments.cases, arguments.seed, arguments.findings)
            print(f"{target.name}: {arguments.cases if is_clean else 'fewer'} cases by coverage, {0 if is_clean else 1} findings", flush=True)
            return 0 if is_clean else 1
        return _fuzz(target, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", help="the parser to fuzz (see --list)")
    parser.add_argument("--list", action="store_true", help="print the targets and the engines of each")
    parser.add_argument("--engine", choices=(STRUCTURE, COVERAGE), default=STRUCTURE, help="what makes the cases (structure); coverage needs bytes and atheris")
    parser.add_argument("--cases", type=int, default=10000, help="how many (10000)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same cases (1)")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="folder for the cases of findings (findings)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the one case of that file")
    return parser.parse_args()


def _fuzz(target: Target, arguments: argparse.Namespace) -> int:
    begin = time.process_time()
    ran, case, finding = by_structure.run(target, arguments.cases, arguments.seed)
    seconds = time.process_time() - begin
    print(f"{target.name}: {ran} cases by structure, {seconds:.0f} CPU s, {1 if finding else 0} findings", flush=True)
    if finding is None:
        return 0
    path = write(arguments.findings, target.name, case)
    _show(finding)
    print(f"The case is in {path}", flush=True)
    return 1


def _replay(target: Target, path: Path) -> int:
    try:
        observe(target, read(path))
    except Finding as finding:
        _show(finding)
        return 1
    print(f"{target.name}: nothing is wrong with this case", flush=True)
    return 0


def _show(finding: Finding) -> None:
    traceback.print_exception(finding.__cause__ or finding, limit=-8)
    print(f"FINDING {str(finding)[:500]!r}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
