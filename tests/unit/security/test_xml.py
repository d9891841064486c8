# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""XML of another host or of a file declares no entities, is not endless, and fails with a sentence."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import check_definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import folders, hardware, reporting
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.reading import parse_domain_xml
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import MAX_CHARACTERS, NotXml, parse_xml
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import parse_policy
from ansible_collections.kvmfleet.migration.tests.unit.fakes.orders import restart_order

LAUGHS = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
BOMB = f'<!DOCTYPE domain [<!ENTITY l0 "ha">{LAUGHS}]><domain><name>&l9;</name></domain>'
THIEF = '<!DOCTYPE domain [<!ENTITY x SYSTEM "file:///etc/shadow">]><domain><name>&x;</name></domain>'
OUTSIDE = '<?xml version="1.0"?>\n<!-- <domain> -->\n<!DOCTYPE domain SYSTEM "http://192.0.2.1/domain.dtd"><domain/>'
ENDLESS = f"<domain>{' ' * MAX_CHARACTERS}</domain>"
FOREIGN = [BOMB, THIEF, OUTSIDE, ENDLESS, "", "<domain>", "\x00", "\ud800", "<domain/><domain/>"]


class Described:
    """Whatever libvirt describes as XML."""

    def __init__(self, xml: str) -> None:
        self.xml = xml

    def XMLDesc(self, flags: int = 0) -> str:
        return self.xml

    def name(self) -> str:
        return "x"

    def info(self) -> list[int]:
        return [2, 1, 1, 1]

    def getDomainCapabilities(self, *asked: t.Any) -> str:
        return self.xml

    def isAlive(self) -> bool:
        return True


READERS: dict[str, t.Callable[[str], t.Any]] = {
    "a definition": parse_domain_xml,
    "a volume": folders._parse_volume,
    "disks": reporting._list_disks,
    "a pool": lambda xml: hardware._describe_pool(Described(xml)),
    "a network": lambda xml: hardware._describe_network(Described(xml), set()),
    "a CPU": lambda xml: hardware._find_missing_features(None, (), xml, ()),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("xml", FOREIGN)
def test_hostile_xml_of_a_host_is_an_internal_error(xml: str, reader: t.Callable[[str], t.Any]) -> None:
    with pytest.raises(Internal, match="cannot be read"):
        reader(xml)


def test_hostile_capabilities_count_as_unknown() -> None:
    platform = {"emulator": "/usr/bin/qemu", "arch": "x86_64", "virt_type": "kvm"}
    assert hardware.read_guest_cpu(Described(BOMB), "qemu:///system", t.cast(t.Any, platform)) is None


@pytest.mark.parametrize("xml", FOREIGN)
def test_hostile_saved_definitions_and_policies_are_refused(xml: str) -> None:
    with pytest.raises(Unsafe, match="was not started"):
        check_definition(restart_order("u", "web1", xml), ["/usr/bin/qemu"], list)
    assert parse_policy(xml).values == {}


@pytest.mark.parametrize("xml", [BOMB, THIEF, OUTSIDE])
def test_a_document_type_is_refused(xml: str) -> None:
    with pytest.raises(NotXml, match="declares a document type"):
        parse_xml(xml)


def test_text_that_looks_like_a_document_type_is_accepted() -> None:
    root = parse_xml("<domain><title><![CDATA[<!DOCTYPE html>]]></title><!-- <!DOCTYPE x> --><metadata>&lt;!ENTITY</metadata></domain>")
    assert (root.findtext("title"), root.findtext("metadata")) == ("<!DOCTYPE html>", "<!ENTITY")
