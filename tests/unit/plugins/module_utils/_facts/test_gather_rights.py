# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the facts of a host lack for a user who is not root, and why."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.local_stores import LocalStores
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import FROM_AFAR, NOT_READABLE, WITHHELD, HardwareFacts, HostFacts, Platform
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

FROM_ANOTHER_HOST = "qemu+ssh://kvm1/system"
OF_ITSELF = ("machine_id", "boot_id", "ledger_id", "mounts", "bridges", "interfaces", "interface_details", "firmware_files")
PLATFORMS = (Platform("x86_64", "kvm"), Platform("i686", "kvm"))


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    """A host with a guest, as a user sees it who may read what is readable for all."""
    monkeypatch.setattr(module, "is_root", lambda: False)
    monkeypatch.setattr(module, "list_remembered", list)
    monkeypatch.setattr(FakeHost, "read_hardware", lambda self: HardwareFacts("x86_64", (0,), (), PLATFORMS, None))
    fleet = FakeFleet()
    fleet.guest(disks=(domain_states.Disk("vda", "file", "/srv/images/web1.qcow2"),))
    return fleet


def reasons_of(fleet: FakeFleet, uri: str = LOCAL_URI, seconds: int = 0) -> t.Dict[str, str]:
    facts = module.gather_facts(fleet.open(uri), seconds)[0]
    assert tuple(facts.unverified_reasons or ()) == facts.unverified
    assert decode(HostFacts, encode(facts)) == facts
    return dict(facts.unverified_reasons or {})


def test_what_libvirt_withholds_on_a_read_only_connection_is_listed(fleet: FakeFleet) -> None:
    fleet.source.is_read_only = True
    reasons = reasons_of(fleet)
    assert {what for what, why in reasons.items() if why == WITHHELD} == {"platforms.cpu", "cpu_comparison", "paths"}
    with_rates = reasons_of(fleet, seconds=1)
    assert with_rates["domains.dirty_rate_mib"] == WITHHELD


def test_over_a_remote_uri_the_identity_is_withheld_too(fleet: FakeFleet) -> None:
    fleet.source.host_id = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
    fleet.source.is_read_only = True
    reasons = reasons_of(fleet, FROM_ANOTHER_HOST)
    assert reasons["host_id"] == WITHHELD
    assert {what for what, why in reasons.items() if why == FROM_AFAR} == {*OF_ITSELF, "remembered"}


def test_a_user_with_the_full_connection_lacks_only_what_root_can_read(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "list_remembered", lambda: None)
    reasons = reasons_of(fleet)
    assert WITHHELD not in reasons.values()
    assert reasons["remembered"] == f"{NOT_READABLE} (/run/kvmfleet, /var/lib/kvmfleet/evacuations)"


def test_an_identity_that_only_root_can_read_is_listed(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise Forbidden("/var/lib/kvmfleet/host-id cannot be read: Permission denied.")

    monkeypatch.setattr(module, "read_host_id", refuse)
    assert reasons_of(fleet)["host_id"] == NOT_READABLE


def test_images_that_a_user_may_not_see_are_named(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Denied(LocalStores):
        def locate_file(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
            self.denied.update(f"{path}.{number}" for number in range(5))
            return None, None

    monkeypatch.setattr(module, "LocalStores", Denied)
    images = ", ".join(f"/srv/images/web1.qcow2.{number}" for number in range(3))
    assert reasons_of(fleet)["domains.request.disks"] == f"{NOT_READABLE} ({images} and 2 more)"


@pytest.mark.parametrize("uri", [LOCAL_URI, FROM_ANOTHER_HOST])
def test_the_facts_of_root_have_no_reasons(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setattr(module, "is_root", lambda: True)
    facts = encode(module.gather_facts(fleet.open(uri))[0])
    assert "unverified_reasons" not in facts
    of_itself = ["host_id", *OF_ITSELF]
    assert [what for what in facts["unverified"] if what in of_itself] == ([] if uri == LOCAL_URI else of_itself)
    assert not {"paths", "cpu_comparison", "platforms.cpu", "remembered"} & {*facts["unverified"]}
