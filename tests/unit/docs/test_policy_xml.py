# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of the policy's element: its templates are policies that the collection reads, and it names each field. Wrong elements are refused by name."""

from __future__ import annotations

import re
import typing as t
from xml.etree import ElementTree

import lxml.etree
import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import POLICY_FIELDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import POLICY_NAMESPACE, POLICY_ROOT, parse_policy, read_policy_element
from ansible_collections.kvmfleet.migration.tests.unit.docs.pages import DOCS

PAGE = (DOCS / "guides" / "policy-xml.md").read_text(encoding="utf-8")
WHOLE, OF_VIRSH, STYLESHEET = re.findall(r"^```xml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHORT: dict[str, t.Any] = {"timeout_seconds": 1800, "post_copy": False, "priority": 100}


def as_libvirt_has_it(policy: str) -> str:
    """Return the policy that is read from a domain with that element."""
    return read_policy_element(ElementTree.fromstring(f"<domain><metadata>{policy}</metadata></domain>"))


def test_the_element_of_the_page_has_each_field_and_is_valid() -> None:
    own = parse_policy(as_libvirt_has_it(WHOLE))
    assert own.wrong == {}
    assert set(own.values) == set(POLICY_FIELDS)
    assert (own.values["auto_converge"], own.values["post_copy"], own.values["labels"]) == (True, False, ["ssd"])
    assert own.values["group"] == {"name": "web", "policy": "soft-anti-affinity", "max_per_host": 2}


def test_the_element_for_virsh_is_valid_without_a_namespace() -> None:
    own = parse_policy(OF_VIRSH)
    assert (own.values, own.wrong) == (SHORT, {})


def test_the_policy_in_the_stylesheet_is_valid() -> None:
    (policy,) = ElementTree.fromstring(STYLESHEET).iter(f"{{{POLICY_NAMESPACE}}}{POLICY_ROOT}")
    own = parse_policy(as_libvirt_has_it(ElementTree.tostring(policy, encoding="unicode")))
    assert (own.values, own.wrong) == (SHORT, {})


OTHERS = '<app:of xmlns:app="http://example.org/app">kept</app:of>'


@pytest.mark.parametrize("metadata", ["", f"<metadata>{OTHERS}<k:policy xmlns:k='{POLICY_NAMESPACE}'><k:priority>1</k:priority></k:policy></metadata>"])
def test_the_stylesheet_gives_a_new_domain_the_policy_and_keeps_the_rest(metadata: str) -> None:
    domain = f"<domain type='kvm'><name>web1</name>{metadata}<memory unit='KiB'>2097152</memory><devices><emulator>/usr/bin/qemu</emulator></devices></domain>"
    transform = lxml.etree.XSLT(lxml.etree.fromstring(STYLESHEET.encode()))
    made = ElementTree.fromstring(bytes(transform(lxml.etree.fromstring(domain.encode()))))
    own = parse_policy(read_policy_element(made))
    assert (own.values, own.wrong) == (SHORT, {})
    assert [element.tag for element in made if element.tag != "metadata"] == ["name", "memory", "devices"]
    assert ("kept" in ElementTree.tostring(made, encoding="unicode")) == bool(metadata)


def test_the_table_of_the_page_names_each_field() -> None:
    cells = re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(POLICY_FIELDS)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("<kvmfleet:post_copy>perhaps</kvmfleet:post_copy>", "post_copy"),
        ("<kvmfleet:post_copy/>", "post_copy"),
        ("<kvmfleet:timeout_seconds>10 min</kvmfleet:timeout_seconds>", "timeout_seconds"),
        ("<kvmfleet:timeout_seconds>-1</kvmfleet:timeout_seconds>", "timeout_seconds"),
        ("<kvmfleet:priority>99999</kvmfleet:priority>", "priority"),
        ("<kvmfleet:priority>1</kvmfleet:priority><kvmfleet:priority>2</kvmfleet:priority>", "priority"),
        ("<kvmfleet:on_timeout>cancel</kvmfleet:on_timeout>", "on_timeout"),
        ("<kvmfleet:drain>maybe</kvmfleet:drain>", "drain"),
        ('<kvmfleet:group name="web"/>', "group"),
        ('<kvmfleet:group name="web" policy="near"/>', "group"),
        ('<kvmfleet:group name="web" policy="anti-affinity" max_per_host="two"/>', "group"),
        ("<kvmfleet:labels>ssd</kvmfleet:labels><kvmfleet:labels/>", "labels"),
    ],
)
def test_a_malformed_element_is_named_and_nothing_is_changed(content: str, field: str) -> None:
    policy = f'<kvmfleet:policy xmlns:kvmfleet="{POLICY_NAMESPACE}">{content}</kvmfleet:policy>'
    with pytest.raises(InvalidArgument, match=f"of domain web1 on kvm1 is wrong: <{field}>: .*Nothing was changed") as caught:
        parse_policy(as_libvirt_has_it(policy)).check_values("domain web1 on kvm1")
    assert caught.value.error_code == "invalid_argument"


@pytest.mark.parametrize("policy", ["<kvmfleet:rules/>", "<kvmfleet:policy>", "<policy"])
def test_a_root_that_is_no_policy_is_refused(policy: str) -> None:
    whole = policy.replace("<kvmfleet:rules", f'<kvmfleet:rules xmlns:kvmfleet="{POLICY_NAMESPACE}"')
    with pytest.raises(InvalidArgument, match=r"<policy>: It.*Nothing was changed"):
        parse_policy(whole).check_values("domain web1 on kvm1")
