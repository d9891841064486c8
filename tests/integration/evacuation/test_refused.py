# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Survivors that are refused for a domain of a dead host, by the name that it has, a disk or their capacity; and traits that a start cannot keep."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import set_qemu_user
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Running
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

Make = t.Callable[..., str]
TWIN = "<domain type='qemu'><name>web</name><memory unit='MiB'>32</memory><os><type>hvm</type></os></domain>"
POST_COPY = "COMPUTE_MIGRATE_POST_COPY"


@pytest.fixture
def receiver(site: Site) -> Iterator[Receiver]:
    with Receiver() as receiver:
        for number in HOSTS:
            site.variable(number, "kvmfleet_notices", {"url": receiver.url, "timeout_seconds": 2})
        yield receiver


@pytest.mark.long
def test_a_host_with_another_domain_of_that_name_is_refused_and_another_one_starts_it(site: Site, guest: Make, receiver: Receiver) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    site.lab("virsh", site.lab.host(2), "define", "/dev/stdin", stdin=TWIN)
    try:
        foreseen = site.evacuate(2, 1, "--check")
        assert (foreseen.result["error_code"], site.record_summaries()) == ("conflict", []), foreseen.text
        done = site.evacuate(2)
        assert (done.code != 0, done.result["error_code"]) == (True, "conflict"), done.text
        assert "another domain named web" in done.msg
        assert site.record_summaries() == [site.line("web", "conflict", 1, 2)]
        assert receiver.kinds() == ["evacuation.conflict"]
        assert "another domain named web" in receiver.events()[0]["data"]["detail"]
        assert site.lab.places("web") == {2: "shut off"}
    finally:
        site.lab.virsh(2, "undefine", "web")
    assert site.evacuate(3).code == 0
    site.check_end_state({2: [], 3: ["web"]}, site.line("web", "conflict", 1, 2), site.line("web", "done", 1, 3))


@pytest.mark.long
def test_a_survivor_that_was_not_proved_to_see_a_disk_is_refused(site: Site, guest: Make, receiver: Receiver) -> None:
    guest("web")
    site.protect()
    document = site.ledger.find_domains("web")[0]
    own = {site.identity(1), site.identity(3)}
    for disk in document.body["protected"]["disks"]:
        disk["seen_by"] = [one for one in disk["seen_by"] if one in own]
    site.ledger.put_domain(document.domain, document.version)
    site.lose(1)
    done = site.evacuate(2)
    assert (done.code != 0, done.result["error_code"]) == (True, "unsafe"), done.text
    assert site.record_summaries() == [site.line("web", "conflict", 1, 2)]
    assert receiver.kinds() == ["evacuation.conflict"]
    assert site.evacuate(3).code == 0
    site.check_end_state({2: [], 3: ["web"]}, site.line("web", "conflict", 1, 2), site.line("web", "done", 1, 3))


@pytest.mark.long
def test_bad_input_and_missing_evidence_leave_no_record(site: Site, guest: Make, receiver: Receiver) -> None:
    guest("web")
    site.protect()
    site.fencing(1, None)
    site.lose(1)
    assert site.evacuate(2, domains=["nobody"]).refused() == "not_found"
    assert site.evacuate(2, domains=[]).refused() == "invalid_argument"
    assert site.evacuate(2).refused() == "unsafe"
    site.check_end_state({2: [], 3: []})
    assert receiver.kinds() == []


@pytest.mark.long
def test_a_trait_that_the_survivor_lacks_is_a_warning_and_the_guest_is_started(site: Site, guest: Make) -> None:
    guest("web")
    given = Running(site.popen(site.ad_hoc_command(1, "domain_policy", {"name": "web", "post_copy": True}, ledger=False))).wait()
    assert given.code == 0, given.text
    site.protect()
    set_qemu_user(site.lab, 2, "libvirt-qemu")
    try:
        site.lose(1)
        foreseen = site.evacuate(2, 1, "--check")
        done = site.evacuate(2)
        assert done.code == 0, done.text
        for outcome in (foreseen, done):
            for text in ("Domain web", POST_COPY, site.name(2)):
                assert text in outcome.warnings, outcome.text
        site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
    finally:
        set_qemu_user(site.lab, 2, "root")
