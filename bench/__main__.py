# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs benchmarks: all, or those that are named. Each leaves a JSON file, and its section of the page of figures."""

from __future__ import annotations

import argparse
import json
import pathlib
import pkgutil
import sys
from importlib import import_module

from . import cases
from .figures import Effort, Section
from .table import rewrite


def main() -> int:
    names = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
    wanted = _arguments(names)
    effort = Effort(wanted.quick, 1 if wanted.quick else wanted.rounds, wanted.only)
    for name in wanted.name or names:
        print(f"== {name}", flush=True)
        section = import_module(f"{cases.__name__}.{name}").run(effort)
        _show(section)
        if wanted.results:
            wanted.results.mkdir(parents=True, exist_ok=True)
            (wanted.results / f"{name}.json").write_text(json.dumps(section.as_json(), indent=2), encoding="utf-8")
        if wanted.page and not effort.quick and not effort.only:
            rewrite(wanted.page, name, section, effort.rounds)
    return 0


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"one of: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="run everything once and small, to see that it runs; the page stays as it is")
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is timed (5)")
    parser.add_argument("--only", default="", metavar="WORDS", help="measure only ways with these words in their names (link); the page stays as it is")
    parser.add_argument("--results", type=pathlib.Path, help="folder for JSON files")
    parser.add_argument("--page", type=pathlib.Path, help="the page of figures whose sections are rewritten")
    wanted = parser.parse_args()
    unknown = set(wanted.name) - set(names)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    return wanted


def _show(section: Section) -> None:
    for figure in section.figures:
        goal = "" if figure.reached is None else f"  [{'reached' if figure.reached else 'NOT reached'}: {figure.value:.3g}, goal {figure.goal:g}]"
        print(f"{figure.what}: {figure.measured}{f' | {figure.beside}' if figure.beside else ''}{goal}", flush=True)
    for note in section.notes:
        print(f"  {note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
