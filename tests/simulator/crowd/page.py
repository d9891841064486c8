# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of a run on the page that has its figures."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.tests.simulator.crowd.figures import Figures
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size

_WIDTH = 160
_BEGIN, _END = "<!-- figures -->", "<!-- end of the figures -->"


def written(text: str, size: Size, runs: Sequence[Figures]) -> str:
    """Return the page with the figures of these runs in place of those it had, or at its end."""
    block = f"{_BEGIN}\n{_block(size, runs)}{_END}\n"
    pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n", re.DOTALL)
    return pattern.sub(lambda _match: block, text) if pattern.search(text) else f"{text}\n{block}"


def _block(size: Size, runs: Sequence[Figures]) -> str:
    limits = ", ".join(f"`{name}` {limit}" for name, limit in size.limits.items())
    text = (
        f"{size.processes} control processes, {size.hosts} simulated hosts with {size.guests} guests, up to {size.tasks} x {size.moves} moves of each process, "
        f"of {size.move_seconds:g} s each, room for {size.rooms} guests on a host, limits {limits}; {_where()}"
    )
    lines = [*textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    lines += [f"- {run.summary()}." for run in runs]
    for run in runs:
        lines += ["", f"### {run.store[0].upper()}{run.store[1:]}", "", "| what | times | median ms | p99 ms | longest ms |", "| --- | --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in run.rows()]
    return "\n".join([*lines, ""])


def _where() -> str:
    return f"everything on one machine of {os.cpu_count()} cores, {time.strftime('%Y-%m-%d', time.gmtime())}."
