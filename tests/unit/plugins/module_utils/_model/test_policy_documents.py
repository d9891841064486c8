# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import (
    POLICY_NAMESPACE,
    change_policy,
    is_same_policy,
    parse_policy,
    read_policy_element,
)

EVERYTHING: t.Dict[str, t.Any] = {
    "auto_converge": False,
    "post_copy": True,
    "timeout_seconds": 0,
    "on_timeout": "force_complete",
    "downtime_ms": 250,
    "force_pause_max_seconds": 20,
    "priority": -3,
    "drain": "shutdown",
    "group": {"name": 'a <b> "c"', "policy": "anti-affinity", "max_per_host": 2},
    "labels": ["ssd", "zone=a & b", "größe"],
    "profile": "database",
}


def domain_with(policy: str) -> str:
    """A domain's XML as libvirt gives it; C(p:) is the prefix of our namespace."""
    return f'<domain><name>web1</name><metadata><x:y xmlns:x="urn:other"/><p:policy xmlns:p="{POLICY_NAMESPACE}">{policy}</p:policy></metadata></domain>'


def of_domain(policy: str) -> str:
    return read_policy_element(ElementTree.fromstring(domain_with(policy)))


def test_a_written_policy_is_read_back() -> None:
    xml = change_policy("", EVERYTHING)
    assert parse_policy(xml).values == EVERYTHING
    assert parse_policy(xml).wrong == {}


@pytest.mark.parametrize(("words", "value"), [(("true", "True", "yes", "Yes", "on", "ON"), True), (("false", "False", "no", "NO", "off", " Off "), False)])
@pytest.mark.parametrize("field", ["auto_converge", "post_copy"])
def test_a_boolean_may_be_written_as_people_write_it(words: t.Tuple[str, ...], value: bool, field: str) -> None:
    for word in words:
        xml = of_domain(f"<p:{field}>{word}</p:{field}>")
        assert parse_policy(xml) == parse_policy(f"<policy><{field}>{str(value).lower()}</{field}></policy>")
        assert is_same_policy(change_policy(xml, {field: value}), xml), "the value does not change, and neither does the text"


def test_one_strategy_of_a_drain_is_text_and_several_are_elements_in_their_order() -> None:
    several = change_policy(of_domain("<p:drain>shutdown</p:drain>"), {"drain": ["save", "migrate"]})
    assert several.endswith("<drain><strategy>save</strategy><strategy>migrate</strategy></drain></policy>")
    assert parse_policy(several).values == {"drain": ["save", "migrate"]}
    assert is_same_policy(change_policy(several, {"drain": ["save", "migrate"]}), several)
    single = change_policy(several, {"drain": "leave"})
    assert (parse_policy(single).values, "strategy" in single) == ({"drain": "leave"}, False)
    assert parse_policy("<policy><drain><strategy>save</strategy></drain></policy>").values == {"drain": "save"}


def test_an_empty_policy_is_an_empty_text() -> None:
    assert parse_policy("").values == {}
    assert change_policy("", {}) == ""
    assert change_policy(change_policy("", {"priority": 1}), {}, ["priority"]) == ""


def test_the_policy_is_found_by_its_namespace_whatever_its_prefix() -> None:
    assert parse_policy(of_domain("<p:priority>4</p:priority>")).values == {"priority": 4}
    assert read_policy_element(ElementTree.fromstring("<domain/>")) == ""
    assert read_policy_element(ElementTree.fromstring('<domain><metadata><policy xmlns="urn:other"/></metadata></domain>')) == ""


def test_a_field_without_the_namespace_prefix_counts() -> None:
    assert parse_policy(of_domain("<post_copy> false </post_copy>")).values == {"post_copy": False}


def test_elements_and_attributes_of_a_newer_version_are_kept() -> None:
    before = of_domain('<p:novel a="1"><p:part/>text</p:novel><p:priority since="2">4</p:priority><p:group name="a" policy="affinity" weight="3"/>')
    after = change_policy(before, {"priority": 5, "group": {"name": "b", "policy": "affinity"}}, ["drain"])
    tree = ElementTree.fromstring(after)
    assert ElementTree.tostring(tree.find("novel") or tree) == b'<novel a="1"><part />text</novel>'
    assert tree.find("priority[@since='2']") is not None
    assert tree.find("group[@weight='3'][@name='b']") is not None
    assert parse_policy(after).values == {"priority": 5, "group": {"name": "b", "policy": "affinity"}}


def test_a_new_group_does_not_keep_the_limit_of_the_old_one() -> None:
    with_limit = change_policy("", {"group": {"name": "a", "policy": "anti-affinity", "max_per_host": 2}})
    assert parse_policy(change_policy(with_limit, {"group": {"name": "a", "policy": "anti-affinity"}})).values["group"] == {
        "name": "a",
        "policy": "anti-affinity",
    }


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
        ("<post_copy>maybe</post_copy>", "post_copy"),
        ("<post_copy>1</post_copy>", "post_copy"),
        ("<auto_converge></auto_converge>", "auto_converge"),
        ("<force_pause_max_seconds>0</force_pause_max_seconds>", "force_pause_max_seconds"),
        ("<force_pause_max_seconds>604801</force_pause_max_seconds>", "force_pause_max_seconds"),
        ("<on_timeout>explode</on_timeout>", "on_timeout"),
        ("<priority>1.5</priority>", "priority"),
        ("<drain>now</drain>", "drain"),
        ("<drain/>", "drain"),
        ("<drain>save, migrate</drain>", "drain"),
        ("<drain><strategy>save</strategy><strategy>now</strategy></drain>", "drain"),
        ("<drain><strategy>save</strategy><strategy>save</strategy></drain>", "drain"),
        ("<drain><strategy>leave</strategy><strategy>save</strategy></drain>", "drain"),
        ("<group>web</group>", "group"),
        ("<group name='a' policy='near'/>", "group"),
        ("<group name='a' policy='anti-affinity' max_per_host='0'/>", "group"),
        ("<group name='a' policy='affinity' max_per_host='2'/>", "group"),
        ("<labels><label/></labels>", "labels"),
        ("<profile> </profile>", "profile"),
        ("<post_copy>true</post_copy><post_copy>false</post_copy>", "post_copy"),
    ],
)
def test_an_invalid_field_is_named_and_repaired_by_setting_or_unsetting_it(element: str, named: str) -> None:
    xml = of_domain(f"{element}<p:novel/>")
    own = parse_policy(xml)
    assert list(own.wrong) == [named]
    assert own.values == {}
    with pytest.raises(InvalidArgument, match=f"domain web1 on kvm1.*<{named}>"):
        own.check_values("domain web1 on kvm1")
    mended = change_policy(xml, {named: EVERYTHING[named]})
    assert (parse_policy(mended).values, parse_policy(mended).wrong) == ({named: EVERYTHING[named]}, {})
    assert parse_policy(change_policy(xml, {}, [named])).wrong == {}
    assert "novel" in mended


@pytest.mark.parametrize(
    "xml",
    [
        "<policy",
        '<!DOCTYPE policy [<!ENTITY a "b">]><policy><profile>&a;</profile></policy>',
        f"<policy>{' ' * 70000}</policy>",
        f'<p:polcy xmlns:p="{POLICY_NAMESPACE}"/>',
    ],
)
def test_an_unreadable_policy_is_wrong_and_not_overwritten(xml: str) -> None:
    assert list(parse_policy(xml).wrong) == ["policy"]
    with pytest.raises(InvalidArgument):
        change_policy(xml, {"priority": 1})


def test_policies_that_differ_only_in_form_are_equal() -> None:
    assert is_same_policy(of_domain("\n  <p:priority>4</p:priority>\n"), change_policy("", {"priority": 4}))
    assert not is_same_policy(of_domain("<p:priority>4</p:priority>"), change_policy("", {"priority": 5}))
    assert not is_same_policy("", change_policy("", {"priority": 5}))
    assert is_same_policy("", "")
