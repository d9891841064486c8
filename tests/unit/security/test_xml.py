# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""XML of another host or of a file declares no entities, is not endless, and fails with a sentence."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.saved import check_saved
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor import cpus, folder, storage_host, surroundings
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.domain import definition_root
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import parse as parse_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._xml import MAX_CHARACTERS, NotXml, parse_xml

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
    "a definition": definition_root,
    "a volume": folder._parsed,
    "disks": storage_host._disks,
    "a pool": lambda xml: surroundings._pool(Described(xml)),
    "a network": lambda xml: surroundings._network(Described(xml), set()),
    "a CPU": lambda xml: cpus._missing(None, (), xml, ()),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("xml", FOREIGN)
def test_what_a_host_gives_as_xml_ends_as_our_error(xml: str, reader: t.Callable[[str], t.Any]) -> None:
    with pytest.raises(Internal, match="cannot be read"):
        reader(xml)


def test_capabilities_that_cannot_be_read_are_none() -> None:
    platform = {"emulator": "/usr/bin/qemu", "arch": "x86_64", "virt_type": "kvm"}
    assert cpus.guest_cpu(Described(BOMB), "qemu:///system", t.cast(t.Any, platform)) is None


@pytest.mark.parametrize("xml", FOREIGN)
def test_a_saved_definition_and_a_policy_too(xml: str) -> None:
    with pytest.raises(Unsafe, match="was not started"):
        check_saved({"uuid": "u", "name": "web1", "definition": xml, "sources": [], "disks": []}, ["/usr/bin/qemu"])
    assert parse_policy(xml).values == {}


@pytest.mark.parametrize("xml", [BOMB, THIEF, OUTSIDE])
def test_a_document_type_is_named(xml: str) -> None:
    with pytest.raises(NotXml, match="declares a document type"):
        parse_xml(xml)


def test_the_words_in_a_guest_s_description_are_words() -> None:
    root = parse_xml("<domain><title><![CDATA[<!DOCTYPE html>]]></title><!-- <!DOCTYPE x> --><metadata>&lt;!ENTITY</metadata></domain>")
    assert (root.findtext("title"), root.findtext("metadata")) == ("<!DOCTYPE html>", "<!ENTITY")
