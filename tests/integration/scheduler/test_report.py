# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report after a drain: the section of the rates has every guest that left, at the time at which it left."""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import MIB, Desk

Make = t.Callable[..., str]
DATA = re.compile(r'<script type="application/json" id="([a-z0-9-]+)">(.*?)</script>', re.DOTALL)
NAMES = ("alpha", "beta")
# The bystander lives on the first host, so the second is the one that is drained.
SOURCE = 2
CAP_MIB, LINK_MIB, HELD_MIB = 16, 64, 32


def read_page(control: Desk) -> dict[str, t.Any]:
    """Write the report, and return the data of its page."""
    folder = control.folder / "report"
    process = control.popen([*control.playbook_command("report", {"report_dest": str(folder)})])
    text, dummy = process.communicate()
    assert process.returncode == 0, text
    return {name: json.loads(content) for name, content in DATA.findall((folder / "report.html").read_text(encoding="utf-8"))}


@pytest.mark.long
def test_the_rates_of_a_drain_have_every_guest_that_left(control: Desk, guest: Make) -> None:
    for name in NAMES:
        guest(name, "--mib", "64", "--dirty-mib", str(HELD_MIB), on=SOURCE)
    code, text = control.drain(SOURCE, drain_host_options={"bandwidth_mib": CAP_MIB, "link_mib": LINK_MIB})
    assert code == 0, text
    page = read_page(control)
    (drain,) = page["report"]["rates"]
    assert (drain["source"], drain["link_mib"]) == (control.lab.host(SOURCE), LINK_MIB)
    column = page["report"]["moves"]["columns"].index("domain")
    names = [page["report"]["moves"]["rows"][index][column]["name"] for index, _offset in drain["moves"]]
    assert sorted(names) == sorted(NAMES)
    starts = sorted(line["at"] for record in control.records() for line in record["history"] if line["status"] == "migrate")
    ends = sorted(line["at"] for record in control.records() for line in record["history"] if line["status"] == "completed")
    assert drain["from_at"] == starts[0]
    assert starts[-1] < drain["until_at"] < ends[-1]
    for index, _offset in drain["moves"]:
        samples = page["details-0"][index]["samples"]
        # Under the cap, what a guest holds takes two seconds, and a mean rate of more than the cap would be no rate of it.
        assert samples["elapsed_ms"][-1] > 1000 * HELD_MIB / CAP_MIB / 2
        assert CAP_MIB * MIB / 4 < max(samples["bandwidth_bytes"]) < 2 * CAP_MIB * MIB
