# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of fault scenarios: what was run now, what was run before, and what never was."""

from __future__ import annotations

from pathlib import Path

from suites import faults_page as page

TEXTS = [page.Text("disks/full", "The disk | is full", "That it is."), page.Text("disks/torn", "It is torn", "That too."), page.Text("hosts/off", "Off", "It.")]
JUNIT = """<testsuites><testsuite>
<testcase classname="x" name="test_scenario[disks/full]"/>
<testcase classname="x" name="test_scenario[disks/torn]"><failure message="no"/></testcase>
<testcase classname="x" name="test_scenario[disks/torn]"/>
<testcase classname="x" name="test_scenario[hosts/off]"><skipped message="why"/></testcase>
<testcase classname="x" name="test_another"/>
</testsuite></testsuites>"""


def lines(file: Path) -> list[str]:
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith(("## ", "| ["))]


def test_only_scenarios_that_were_run_have_an_outcome(tmp_path: Path) -> None:
    report = tmp_path / "faults-kvp.xml"
    report.write_text(JUNIT, encoding="utf-8")
    assert page.outcomes_in(report) == {"disks/full": True, "disks/torn": False}


def test_a_scenario_that_was_not_run_keeps_its_result(tmp_path: Path) -> None:
    file = tmp_path / "faults.md"
    page.rewrite(file, TEXTS, {"disks/full": True, "disks/torn": False}, "2026-11-20")
    page.rewrite(file, TEXTS, {"disks/torn": True}, "2026-11-21")
    assert lines(file) == [
        "## Disks",
        "| [The disk \\| is full](../tests/faults/disks/full.yml) | That it is. | passed, 2026-11-20 |",
        "| [It is torn](../tests/faults/disks/torn.yml) | That too. | passed, 2026-11-21 |",
        "## Hosts",
        "| [Off](../tests/faults/hosts/off.yml) | It. | not run yet |",
    ]


def test_a_deleted_scenario_is_removed_from_the_page(tmp_path: Path) -> None:
    file = tmp_path / "faults.md"
    page.rewrite(file, TEXTS, {"hosts/off": False}, "2026-11-20")
    assert "**failed**, 2026-11-20" in file.read_text(encoding="utf-8")
    page.rewrite(file, TEXTS[:2], {}, "2026-11-21")
    assert "hosts" not in "".join(lines(file))
