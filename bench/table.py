# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of figures: one section a benchmark, rewritten by the run that measured it, the others left as they are."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import textwrap
import time

from .figures import Figure, Section

_WIDTH = 160

_HEAD = """# Benchmarks

Written by `make bench`. The page shows medians, with the smallest and the largest value. Values that are compared were measured in one run on one machine. The
goals are ratios, because times in seconds say little about another machine.
"""


def rewrite(page: pathlib.Path, name: str, section: Section, rounds: int) -> None:
    """Put the section where it was, or at the end."""
    text = page.read_text(encoding="utf-8") if page.exists() else _HEAD
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    block = f"{begin}\n{_block(section, rounds)}{end}\n"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    text = pattern.sub(lambda dummy: block, text) if pattern.search(text) else f"{text}\n{block}"
    page.write_text(text, encoding="utf-8")


def _block(section: Section, rounds: int) -> str:
    lines = [f"## {section.title}", "", "| benchmark | measured | compared with | ratio | goal | result |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [_row(figure) for figure in section.figures]
    for note in section.notes:
        lines += ["", *textwrap.wrap(" ".join(note.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)]
    lines += ["", f"{_where()} Rounds: {rounds}.", ""]
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    value = "" if figure.value is None else f"{figure.value:.3g}"
    goal = "" if figure.goal is None else f"≤ {figure.goal:g}"
    verdict = {None: "", True: "reached", False: "**not reached**"}[figure.reached]
    return f"| {figure.what} | {figure.measured} | {figure.beside} | {value} | {goal} | {verdict} |"


def _where() -> str:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    processor = f"{os.cpu_count()} cores ({model[1] if model else platform.machine()})"
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}, {processor}, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}."
