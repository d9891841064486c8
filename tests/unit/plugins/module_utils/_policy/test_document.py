# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import NAMESPACE, changed, element_of, is_same, parse

EVERYTHING: t.Dict[str, t.Any] = {
    "auto_converge": False,
    "post_copy": True,
    "timeout_seconds": 0,
    "on_timeout": "force_complete",
    "downtime_ms": 250,
    "priority": -3,
    "drain": "shutdown",
    "group": {"name": 'a <b> "c"', "policy": "anti-affinity", "max_per_host": 2},
    "labels": ["ssd", "zone=a & b", "größe"],
    "profile": "database",
}


def domain_with(policy: str) -> str:
    """A domain's XML as libvirt gives it; C(p:) is the prefix of our namespace."""
    return f'<domain><name>web1</name><metadata><x:y xmlns:x="urn:other"/><p:policy xmlns:p="{NAMESPACE}">{policy}</p:policy></metadata></domain>'


def of_domain(policy: str) -> str:
    return element_of(ElementTree.fromstring(domain_with(policy)))


def test_what_is_written_is_read_again() -> None:
    xml = changed("", EVERYTHING)
    assert parse(xml).values == EVERYTHING
    assert parse(xml).wrong == {}


def test_an_empty_policy_is_none() -> None:
    assert parse("").values == {}
    assert changed("", {}) == ""
    assert changed(changed("", {"priority": 1}), {}, ["priority"]) == ""


def test_ours_is_found_among_others_metadata_whatever_its_prefix() -> None:
    assert parse(of_domain("<p:priority>4</p:priority>")).values == {"priority": 4}
    assert element_of(ElementTree.fromstring("<domain/>")) == ""
    assert element_of(ElementTree.fromstring('<domain><metadata><policy xmlns="urn:other"/></metadata></domain>')) == ""


def test_an_element_without_our_prefix_counts_for_a_veto_must_not_be_missed() -> None:
    assert parse(of_domain("<post_copy> false </post_copy>")).values == {"post_copy": False}


def test_elements_and_attributes_of_a_newer_version_stay() -> None:
    before = of_domain('<p:novel a="1"><p:part/>text</p:novel><p:priority since="2">4</p:priority><p:group name="a" policy="affinity" weight="3"/>')
    after = changed(before, {"priority": 5, "group": {"name": "b", "policy": "affinity"}}, ["drain"])
    tree = ElementTree.fromstring(after)
    assert ElementTree.tostring(tree.find("novel") or tree) == b'<novel a="1"><part />text</novel>'
    assert tree.find("priority[@since='2']") is not None
    assert tree.find("group[@weight='3'][@name='b']") is not None
    assert parse(after).values == {"priority": 5, "group": {"name": "b", "policy": "affinity"}}


def test_a_group_s_limit_goes_with_its_group() -> None:
    with_limit = changed("", {"group": {"name": "a", "policy": "anti-affinity", "max_per_host": 2}})
    assert parse(changed(with_limit, {"group": {"name": "a", "policy": "anti-affinity"}})).values["group"] == {"name": "a", "policy": "anti-affinity"}


@pytest.mark.parametrize(
    ("element", "named"),
    [
        ("<timeout_seconds>soon</timeout_seconds>", "timeout_seconds"),
        ("<timeout_seconds>-1</timeout_seconds>", "timeout_seconds"),
        ("<timeout_seconds></timeout_seconds>", "timeout_seconds"),
        ("<timeout_seconds>1e3</timeout_seconds>", "timeout_seconds"),
        ("<timeout_seconds>٣</timeout_seconds>", "timeout_seconds"),
        ("<timeout_seconds>99999999999999999999</timeout_seconds>", "timeout_seconds"),
        ("<timeout_seconds><x>5</x></timeout_seconds>", "timeout_seconds"),
        ("<downtime_ms>0</downtime_ms>", "downtime_ms"),
        ("<post_copy>yes</post_copy>", "post_copy"),
        ("<post_copy>False</post_copy>", "post_copy"),
        ("<on_timeout>explode</on_timeout>", "on_timeout"),
        ("<priority>1.5</priority>", "priority"),
        ("<drain>now</drain>", "drain"),
        ("<group>web</group>", "group"),
        ("<group name='a' policy='near'/>", "group"),
        ("<group name='a' policy='anti-affinity' max_per_host='0'/>", "group"),
        ("<group name='a' policy='affinity' max_per_host='2'/>", "group"),
        ("<labels><label/></labels>", "labels"),
        ("<profile> </profile>", "profile"),
        ("<post_copy>true</post_copy><post_copy>false</post_copy>", "post_copy"),
    ],
)
def test_what_is_wrong_by_hand_is_named_and_mended_by_setting_or_unsetting_it(element: str, named: str) -> None:
    xml = of_domain(f"{element}<p:novel/>")
    own = parse(xml)
    assert list(own.wrong) == [named]
    assert own.values == {}
    with pytest.raises(InvalidArgument, match=f"domain web1 on kvm1.*<{named}>"):
        own.check("domain web1 on kvm1")
    mended = changed(xml, {named: EVERYTHING[named]})
    assert (parse(mended).values, parse(mended).wrong) == ({named: EVERYTHING[named]}, {})
    assert parse(changed(xml, {}, [named])).wrong == {}
    assert "novel" in mended


@pytest.mark.parametrize(
    "xml",
    [
        "<policy",
        '<!DOCTYPE policy [<!ENTITY a "b">]><policy><profile>&a;</profile></policy>',
        f"<policy>{' ' * 70000}</policy>",
        f'<p:polcy xmlns:p="{NAMESPACE}"/>',
    ],
)
def test_what_cannot_be_read_at_all_is_wrong_and_is_not_written_over(xml: str) -> None:
    assert list(parse(xml).wrong) == ["policy"]
    with pytest.raises(InvalidArgument):
        changed(xml, {"priority": 1})


def test_the_same_in_other_clothes_is_the_same() -> None:
    assert is_same(of_domain("\n  <p:priority>4</p:priority>\n"), changed("", {"priority": 4}))
    assert not is_same(of_domain("<p:priority>4</p:priority>"), changed("", {"priority": 5}))
    assert not is_same("", changed("", {"priority": 5}))
    assert is_same("", "")
