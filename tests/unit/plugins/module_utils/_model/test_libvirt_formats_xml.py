# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import (
    clean_path,
    parse_ids,
    parse_number,
    parse_size,
    parse_vcpu_count,
    parse_xml,
    read_vlan,
    round_up_to_mib,
)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0", [0]),
        ("0-3,^2,8", [0, 1, 3, 8]),
        ("^1,0-2", [0, 2]),
        (" 4 , 2-3 ", [2, 3, 4]),
        ("", []),
        (None, []),
        ("all", []),
        ("3-1", []),
        ("0-99999999999", []),
        ("0-16384", []),
        ("16383", [16383]),
        ("1,9" + "9" * 5000, [1]),
    ],
)
def test_a_cpuset_is_parsed(text: str, ids: list[int]) -> None:
    assert parse_ids(text) == ids


def test_sizes_are_parsed_with_their_units() -> None:
    assert parse_size("2", "M") == parse_size("2048", None) == 2 * 1024**2
    assert parse_size("1", "GB") == 1000**3
    assert parse_size(None, "KiB") == 0
    assert [round_up_to_mib(size) for size in (0, 1, 1024**2, 1024**2 + 1)] == [0, 1, 1, 2]


def test_numbers_of_a_definition_are_parsed() -> None:
    assert [parse_number(text, 7) for text in ("0", " 12\n", "", None)] == [0, 12, 7, 7]
    assert parse_vcpu_count("16384") == 16384


@pytest.mark.parametrize("text", ["four", "-1", "1.5", "0x10", "²", "9" * 21, "9" * 5000])
def test_an_invalid_number_of_a_definition_is_an_error(text: str) -> None:
    with pytest.raises(Internal, match="where libvirt writes a number"):
        parse_number(text)
    with pytest.raises(Internal):
        parse_size(text, "KiB")


def test_an_impossible_number_of_vcpus_is_an_error() -> None:
    with pytest.raises(Internal):
        parse_vcpu_count("4294967295")


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("/images/web", "/images/web"),
        ("//images//./old/../web/", "/images/web"),
        ("file:/images/web", "/images/web"),
        ("file:///images/web", "/images/web"),
        ("web", "web"),
        ("json:{}", "json:{}"),
        ("rbd:pool/web", "rbd:pool/web"),
        ("", ""),
    ],
)
def test_a_path_has_one_form(path: str, cleaned: str) -> None:
    assert clean_path(path) == cleaned


@pytest.mark.parametrize(
    ("vlan", "text"),
    [
        ("<vlan><tag id='42'/></vlan>", "42"),
        ("<vlan trunk='yes'><tag id='42'/></vlan>", "trunk 42"),
        ("<vlan trunk='yes'><tag id='47'/><tag id='42' nativeMode='untagged'/></vlan>", "trunk 42 untagged, 47"),
        ("<vlan/>", None),
        ("", None),
    ],
)
def test_vlan_tags_have_one_text(vlan: str, text: str | None) -> None:
    assert read_vlan(parse_xml(f"<network>{vlan}<portgroup name='dmz'><vlan><tag id='9'/></vlan></portgroup></network>")) == text
