# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guide as steps: what its invisible marks say of its blocks, so that a test can follow it as a reader does.

A mark is a comment of HTML on a line of its own. All but C(lab) speak of the fenced block that follows:

- C(file: NAME): the reader writes this file.
- C(run), C(run: fails), C(run: background): the reader types this; it ends with 0, with something else, or goes on beside what follows.
- C(sees): each line is in what the last command printed. An ellipsis stands for anything, runs of blanks for one.
- C(not run: REASON): the reader types this, and a test cannot.
- C(lab: VERB ...): what happens to the hosts here, in words of the lab.

A mark that says C(in the lab) or C(on machines) before its colon is for readers there only: on hosts of the lab, where no systemd runs, or on whole machines.
"""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[4]
GUIDES = ROOT / "docs" / "guides"
README = ROOT / "README.md"

LAB, FILE, RUN, SEES, NOT_RUN, UNMARKED = "lab", "file", "run", "sees", "not run", "unmarked"
FAILS, BACKGROUND = "fails", "background"
IN_THE_LAB, ON_MACHINES = "in the lab", "on machines"

_MARK = re.compile(rf"<!-- (lab|file|run|sees|not run)(?: ({IN_THE_LAB}|{ON_MACHINES}))?(?:: (.+))? -->")
_FENCE = re.compile(r"```(\w*)")


@dataclass(frozen=True)
class Step:
    """A block with its mark, or a verb of the lab.

    C(line) is where it begins, C(language) that of its fence. C(place) is L(IN_THE_LAB) or L(ON_MACHINES) if it is for readers there only.
    """

    kind: str
    argument: str
    text: str
    line: int
    language: str = ""
    place: str = ""


def paths() -> list[pathlib.Path]:
    """Return all guides."""
    return sorted(GUIDES.glob("*.md"))


def steps_of(guide: pathlib.Path) -> list[Step]:
    """Return the steps of a guide, in their order. Raises ValueError for a mark without its block."""
    steps: list[Step] = []
    mark = Step(UNMARKED, "", "", 0)
    lines = enumerate(guide.read_text(encoding="utf-8").splitlines(), 1)
    for number, line in lines:
        if found := _MARK.fullmatch(line):
            mark = _unused(mark, guide)
            step = Step(found[1], found[3] or "", "", number, place=found[2] or "")
            if step.kind == LAB:
                steps.append(step)
            else:
                mark = step
        elif fence := _FENCE.fullmatch(line):
            body = list(iter(lambda: next(lines)[1], "```"))
            steps.append(Step(mark.kind, mark.argument, "".join(f"{text}\n" for text in body), number, fence[1], mark.place))
            mark = Step(UNMARKED, "", "", 0)
        elif line:
            _unused(mark, guide)
    return steps


def _unused(mark: Step, guide: pathlib.Path) -> Step:
    if mark.kind != UNMARKED:
        raise ValueError(f"{guide.name}:{mark.line}: no block follows the mark '{mark.kind}'.")
    return mark
