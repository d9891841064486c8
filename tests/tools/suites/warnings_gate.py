# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible warned of in the scenarios of a suite: a warning that is not expected is a failure.

Ansible's log has all that it showed, of every run and every job; there an entry has an end, which it does not have on a screen.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import lab, places
from .results import PROBLEM_LENGTH, Results

# A regular expression a line; it has to match the beginning of a warning.
EXPECTED = places.ROOT / "tests" / "tools" / "expected-warnings.txt"
_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} p=\d+ u=\S+ n=\S+ [A-Z]+\| ", re.MULTILINE)
_WARNING = re.compile(r"\[(?:DEPRECATION )?WARNING\]: ")


@contextmanager
def scenarios(results: Results, prefix: str, venv: Path = places.VENV, label: str = "", runs_ansible: bool = True) -> Iterator[dict[str, str]]:
    """Give the environment of C(labs), in which Ansible keeps a log, and look at that at the end.

    :arg label: what tells these scenarios from others of the suite; its prefix unless said.
    :arg runs_ansible: whether a log without a single entry is a failure.
    """
    label = label or prefix
    log = places.RESULTS / f"{results.suite}-{label}.ansible.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    try:
        with lab.labs(prefix, venv) as env:
            yield {**env, "ANSIBLE_LOG_PATH": str(log)}
    finally:
        check(results, label, log.read_text(encoding="utf-8", errors="replace"), expected(), runs_ansible)


def check(results: Results, label: str, log: str, expectations: list[re.Pattern[str]], runs_ansible: bool = True) -> None:
    """Print each warning that none of these expects, and how often it came. A log without a single entry is a failure, too, if these were to run Ansible."""
    unexpected = Counter(warning for warning in warnings_in(log) if not any(one.match(warning) for one in expectations))
    for warning, times in unexpected.most_common():
        print(f"{label}: Ansible warned {times} times: {warning}", flush=True)
    first = f", but: {next(iter(unexpected))[:PROBLEM_LENGTH]}" if unexpected else ""
    results.add(f"{label}: Ansible warned of nothing but what {EXPECTED.name} names{first}", passed=not unexpected)
    if runs_ansible:
        results.add(f"{label}: Ansible logged its runs", passed=_ENTRY.search(log) is not None)


def warnings_in(log: str) -> Iterator[str]:
    """Yield the text of each warning of a log on one line; before a deprecation stands that it is one."""
    for entry in _ENTRY.split(log)[1:]:
        if _WARNING.match(entry):
            yield " ".join(entry.split()).removeprefix("[WARNING]: ")


def expected(path: Path = EXPECTED) -> list[re.Pattern[str]]:
    """Return what a file expects; its comments begin with #. Raises re.error for what is no regular expression."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def main(log: str) -> int:
    """Check the log of runs that belong to no suite; return 1 where there is anything to say."""
    results = Results("runs")
    check(results, "runs", Path(log).read_text(encoding="utf-8", errors="replace"), expected())
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
