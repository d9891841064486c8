# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of a host that returns: its name and hardware permit no cleanup; only its identity file does."""

from __future__ import annotations

import collections.abc
import pathlib
import re
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import building
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import IDENTITY, Site

LIBVIRTD_CONF = "etc-libvirt/libvirtd.conf"
MACHINE_ID = "etc-machine-id"
Make = t.Callable[..., str]


@pytest.fixture(scope="module")
def returned(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[Site]:
    """The guest C(web) was evacuated from the first host to the second; the first is back, and has C(own) too, which was never evacuated."""
    with building(lab, tmp_path_factory.mktemp("returned")) as (site, make):
        make("web")
        make("own", "--off")
        site.protect()
        site.lose(1)
        done = site.evacuate(2, domains=["web"])
        assert done.code == 0, done.text
        site.bring_back(1)
        yield site


@pytest.fixture
def site(returned: Site, tmp_path: pathlib.Path) -> collections.abc.Iterator[Site]:
    """The same for each scenario, with its own ledger; the first host has its identity and its definition of the guest again afterwards."""
    site = returned.twin(tmp_path)
    identity, definition = site.on_disk(1, IDENTITY).read_text(), site.lab.virsh(1, "dumpxml", "--inactive", "web")
    second = site.on_disk(2, IDENTITY).read_text()
    yield site
    for number, text in ((1, identity), (2, second)):
        site.on_disk(number, IDENTITY).write_text(text)
    site.lab("virsh", site.lab.host(1), "define", "/dev/stdin", stdin=definition)
    site.verify_audit()


def untouched(site: Site) -> None:
    """Nothing was cleaned, and the record still waits for its host."""
    assert site.has_definition("web", 1)
    assert site.has_definition("own", 1)
    site.check_end_state({1: [], 2: ["web"], 3: []}, ("web", "done", None, site.lab.host(1), site.lab.host(2)))


def cleaned(site: Site) -> None:
    assert not site.has_definition("web", 1)
    assert site.has_definition("own", 1)
    site.check_end_state({1: [], 2: ["web"], 3: []}, ("web", "completed", None, site.lab.host(1), site.lab.host(2)))


@pytest.mark.long
def test_a_host_without_its_identity_file_cleans_nothing(site: Site) -> None:
    site.on_disk(1, IDENTITY).unlink()
    done = site.clean()
    assert done.code != 0, done.text
    assert "host-id" in done.msg
    assert not site.on_disk(1, IDENTITY).exists()
    untouched(site)


@pytest.mark.long
@pytest.mark.parametrize("content", ["garbage \0 here", "", "00000000-0000-0000-0000-00000000000g\n"])
def test_a_host_with_an_invalid_identity_file_cleans_nothing(site: Site, content: str) -> None:
    site.on_disk(1, IDENTITY).write_text(content)
    done = site.clean()
    assert done.code != 0, done.text
    assert "host-id" in done.msg
    assert site.on_disk(1, IDENTITY).read_text() == content
    untouched(site)


@pytest.mark.long
def test_a_host_with_a_new_identity_cleans_nothing(site: Site) -> None:
    """A host that was reinstalled under its old name is another host: no record of the old one permits it a cleanup."""
    site.on_disk(1, IDENTITY).write_text(f"{uuid.uuid4()}\n")
    done = site.clean()
    assert done.refused() == "conflict"
    untouched(site)


@pytest.mark.long
def test_a_host_with_a_copied_identity_cleans_nothing(site: Site) -> None:
    """As with disks that were cloned. On the host that took the guest over, a cleanup by that identity would take the running guest for a leftover.

    The host that the ledger knows by its name, machine and libvirt UUIDs may still clean itself.
    """
    site.on_disk(2, IDENTITY).write_text(site.on_disk(1, IDENTITY).read_text())
    on_the_copy = site.clean(2)
    assert on_the_copy.refused() == "conflict"
    untouched(site)
    assert site.clean(1).code == 0
    cleaned(site)


@pytest.mark.long
def test_cleanup_with_another_ledger_changes_nothing(site: Site, tmp_path: pathlib.Path) -> None:
    other = Site(site.lab, tmp_path / "elsewhere")
    done = other.clean()
    assert done.code != 0 or not done.changed, done.text
    untouched(site)


@pytest.mark.long
def test_a_renamed_host_is_identified_and_cleaned(site: Site) -> None:
    site.rename(1, f"{site.lab.prefix}x")
    try:
        done = site.clean()
        assert (done.code, done.changed) == (0, True), done.text
    finally:
        site.rename(1, site.lab.host(1))
    cleaned(site)


@pytest.mark.long
def test_a_host_under_the_name_of_another_host_cleans_nothing(site: Site) -> None:
    """The addresses of two hosts are swapped in the inventory: the identity file on the host counts."""
    site.swap(1, 3)
    on_the_third = site.clean(3)
    assert not on_the_third.changed, on_the_third.text
    untouched(site)


@pytest.mark.long
def test_a_host_whose_disks_are_in_another_machine_is_cleaned(site: Site) -> None:
    """The example of the specification: only the libvirt UUID of the machine is another one."""
    conf = site.on_disk(1, LIBVIRTD_CONF)
    before = conf.read_text()
    site.lose(1)
    conf.write_text(re.sub(r'host_uuid = ".*"', f'host_uuid = "{uuid.uuid4()}"', before))
    site.bring_back(1)
    try:
        done = site.clean()
        assert (done.code, done.changed) == (0, True), done.text
        cleaned(site)
    finally:
        conf.write_text(before)
        site.lose(1)
        site.bring_back(1)


@pytest.mark.long
def test_a_host_with_new_name_machine_id_and_uuid_must_be_adopted_before_cleanup(site: Site) -> None:
    conf, machine_id = site.on_disk(1, LIBVIRTD_CONF), site.on_disk(1, MACHINE_ID)
    before = conf.read_text(), machine_id.read_text()
    site.lose(1)
    conf.write_text(re.sub(r'host_uuid = ".*"', f'host_uuid = "{uuid.uuid4()}"', before[0]))
    machine_id.write_text(f"{uuid.uuid4().hex}\n")
    site.rename_in_inventory(1, f"{site.lab.prefix}x")
    site.bring_back(1)
    try:
        assert site.clean().refused() == "conflict"
        untouched(site)
        assert site.task(1, "host", {"adopt_identity": True}).code != 0
        assert site.clean().refused() == "conflict"
        adopted = site.task(1, "host", {"adopt_identity": True, "reason": "its disks were put into the spare machine"})
        assert adopted.code == 0, adopted.text
        done = site.clean()
        assert (done.code, done.changed) == (0, True), done.text
        cleaned(site)
    finally:
        site.lose(1)
        conf.write_text(before[0])
        machine_id.write_text(before[1])
        site.rename_in_inventory(1, site.lab.host(1))
        site.bring_back(1)


@pytest.mark.long
def test_a_renamed_host_without_a_record_is_not_changed(site: Site, tmp_path: pathlib.Path) -> None:
    """In this situation, Nova concluded that the guests of the host had moved away, and destroyed them."""
    fresh = Site(site.lab, tmp_path / "fresh")
    for number in (1, 2, 3):
        (fresh.on_disk(number, "var-lib-kvmfleet/ledger-id")).unlink()
    fresh.protect()
    fresh.rename(1, f"{site.lab.prefix}x")
    try:
        done = fresh.clean()
        assert (done.code, done.changed) == (0, False), done.text
        assert done.result["cleaned"] == []
        assert fresh.record_summaries() == []
    finally:
        fresh.rename(1, site.lab.host(1))
        for number in (1, 2, 3):
            fresh.on_disk(number, "var-lib-kvmfleet/ledger-id").write_text(f"{site.ledger.ledger_id}\n")
    untouched(site)


@pytest.mark.long
def test_a_record_whose_domain_was_undefined_by_hand_is_completed(site: Site) -> None:
    """Somebody has removed it by hand: there is nothing to clean, and the record is closed."""
    site.lab.virsh(1, "undefine", "web")
    done = site.clean()
    assert done.code == 0, done.text
    cleaned(site)
    assert not site.clean().changed


@pytest.mark.long
def test_cleanup_is_refused_while_the_local_copy_is_active(site: Site) -> None:
    """This is an error: both copies stay as they are until an operator decides. On shared storage, the locks of QEMU prevent a second start."""
    path = site.lab.virsh(1, "dumpxml", "--inactive", "web")
    site.lab("virsh", site.lab.host(1), "define", "/dev/stdin", stdin=re.sub(r"<disk .*?</disk>", "", path, flags=re.DOTALL))
    site.lab.virsh(1, "start", "web", "--paused")
    try:
        done = site.clean()
        assert done.refused() == "unsafe"
        assert "web" in done.msg
        site.check_end_state({1: ["web (paused)"], 2: ["web"], 3: []}, site.line("web", "done", 1, 2))
    finally:
        site.lab.virsh(1, "destroy", "web")


@pytest.mark.long
def test_the_copy_is_kept_while_the_domain_runs_nowhere(site: Site) -> None:
    """The only copy left may be this one: it is kept until the guest runs elsewhere."""
    site.lab.virsh(2, "destroy", "web")
    try:
        done = site.clean()
        assert not done.changed, done.text
        assert site.has_definition("web", 1)
        assert site.record_summaries() == [site.line("web", "done", 1, 2)]
    finally:
        site.lab.virsh(2, "start", "web")
    assert site.clean().changed
    cleaned(site)


@pytest.mark.long
def test_the_copy_is_kept_while_the_destination_does_not_answer(site: Site) -> None:
    site.lab("cut", site.lab.host(2))
    try:
        done = site.clean()
        assert not done.changed, done.text
        assert site.has_definition("web", 1)
        assert site.record_summaries() == [site.line("web", "done", 1, 2)]
    finally:
        site.lab("heal", site.lab.host(2))
    untouched(site)
