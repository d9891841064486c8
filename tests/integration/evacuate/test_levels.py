# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with a BMC and two supplies at a power strip, by Debian's fence agents. The BMC has no power."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.pdu import COMMUNITY, OFF, ON, PowerStrip, dead_bmc
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document


@pytest.fixture
def strip(site: Site, tmp_path: pathlib.Path) -> Iterator[PowerStrip]:
    strip = PowerStrip(site.lab, 1, tmp_path / "strip")
    yield strip
    strip.close()


def fencing_of(site: Site) -> dict[str, object]:
    found = site.ledger.find_host(name=site.name(1))
    assert found
    fencing = found.body["fencing"]
    assert isinstance(fencing, dict)
    return fencing


def is_on(site: Site) -> bool:
    return site.lab.try_("fence", site.lab.host(1), "status").returncode == 0


@pytest.mark.long
def test_a_dead_bmc_leads_to_the_strip_and_a_dead_strip_to_a_named_state_that_ends_by_itself(site: Site, guest: Make, strip: PowerStrip) -> None:
    guest("web")
    site.fencing(1, {"levels": [[dead_bmc()], [strip.device(1), strip.device(2)]]})
    site.protect()
    # It is silent, and its guest runs: without a fence the guest would run twice.
    site.lab("cut", site.lab.host(1))

    with Receiver() as receiver:
        for number in HOSTS:
            site.variable(number, "kvmfleet_notices", {"url": receiver.url, "timeout_seconds": 2})
        code, text = site.playbook("evacuate", source=site.name(1))
        assert code != 0, text
        printed = " ".join(text.split())
        assert "could not be fenced by any of its 2 levels" in printed
        assert "fencing_impossible" in printed
        assert "confirm it with force_down and a reason" in printed
        assert COMMUNITY not in text
        assert (is_on(site), site.record_summaries(), site.fleet()) == (True, [], {1: {"web"}, 2: set(), 3: set()})
        fencing = fencing_of(site)
        attempts = fencing["attempts"]
        assert [(one["level"], one["device"], one["power"]) for one in attempts] == [(1, 1, "unknown"), (2, 1, "unknown")]  # type: ignore[attr-defined]
        since = fencing["since"]
        assert receiver.kinds() == ["host.fencing_impossible"]
        check_document("host-notice.json", receiver.events()[0])
        dummy, text = site.playbook("status")
        assert f"{site.name(1)}: fencing_impossible since" in " ".join(text.split())

        # Another run that cannot fence is the same state, and no second notice.
        code, text = site.playbook("evacuate", source=site.name(1))
        assert (code != 0, fencing_of(site)["since"], receiver.kinds()) == (True, since, ["host.fencing_impossible"]), text

        strip.open()
        code, text = site.playbook("evacuate", source=site.name(1))
        assert code == 0, text
        assert COMMUNITY not in text
    assert (strip.outlets(), strip.switched(), is_on(site)) == ([OFF, OFF], [OFF, OFF], False)
    there = site.fleet()
    assert there[2] | there[3] == {"web"}
    assert fencing_of(site) == {}
    (record,) = site.records()
    evidence = next(one for one in record["evidence"] if one["kind"] == "fence_agent")
    assert (evidence["level"], evidence["agent"], evidence["status"]) == (2, "fence_apc_snmp, fence_apc_snmp", "off")
    assert [(one["level"], one["device"], one["power"]) for one in evidence["attempts"]] == [(1, 1, "unknown"), (2, 1, "off"), (2, 2, "off")]
    site.verify_audit()


@pytest.mark.long
def test_a_strip_that_loses_one_supply_alone_proves_nothing(site: Site, guest: Make, strip: PowerStrip) -> None:
    """The first supply is switched off, the other outlet is not known to the strip: the guest runs on, and is not started elsewhere."""
    guest("web")
    unknown = {**strip.device(2), "options": {**strip.device(2)["options"], "plug": "9"}}
    site.fencing(1, {"levels": [[strip.device(1), unknown]]})
    site.protect()
    strip.open()
    site.lab("cut", site.lab.host(1))
    code, text = site.playbook("evacuate", source=site.name(1))
    assert code != 0, text
    assert (strip.outlets(), is_on(site), site.record_summaries()) == ([OFF, ON], True, [])
    assert fencing_of(site)["state"] == "fencing_impossible"
    # The inventory is mended, and the next run goes on: what is off stays off.
    site.fencing(1, {"levels": [[strip.device(1), strip.device(2)]]})
    code, text = site.playbook("evacuate", source=site.name(1))
    assert code == 0, text
    assert (strip.switched(), is_on(site), fencing_of(site)) == ([OFF, OFF], False, {})
