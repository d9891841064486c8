# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.saved import check_saved
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import EMULATOR, UUID, definition

PATH = "/srv/images/web1.qcow2"
BOMB = "<!DOCTYPE domain [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>]>"


def order(text: t.Any = None, **changes: t.Any) -> dict[str, t.Any]:
    disk = {"target": "vda", "kind": "file", "path": PATH}
    return {"uuid": UUID, "name": "web1", "definition": definition() if text is None else text, "sources": [["vda", PATH]], "disks": [disk], **changes}


def test_what_was_saved_is_taken() -> None:
    check_saved(order(), [EMULATOR])


def test_a_volume_is_proved_as_what_it_is_in_its_pool() -> None:
    text = definition().replace("type='file'", "type='volume'").replace(f"file='{PATH}'", "pool='images' volume='web1.qcow2'")
    check_saved(order(text, sources=[["vda", "images/web1.qcow2"]]), [EMULATOR])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "document type"),
        ("", "there is none"),
        (7, "there is none"),
        ("a shopping list", "no XML"),
        ("<network/>", "no domain"),
        (definition(name="other"), "name 'other'"),
        (definition(uuid="5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a99"), "UUID"),
        (definition(path="/etc/shadow"), "/etc/shadow"),
        (definition(emulator="/bin/sh"), "/bin/sh"),
        (definition().replace("</devices>", "<disk type='file'><source file='/etc/shadow'/><target dev='vdb'/></disk></devices>"), "vdb"),
    ],
)
def test_what_nobody_saved_is_refused(text: t.Any, told: str) -> None:
    given = BOMB + definition() if text is None else text
    with pytest.raises(Unsafe, match=told) as raised:
        check_saved(order(given), [EMULATOR])
    assert "web1" in str(raised.value)
    assert "was not started" in str(raised.value)


@pytest.mark.parametrize(
    "disks",
    [[], [{"target": "vdb", "kind": "file", "path": PATH}], [{"target": "vda", "kind": "file", "path": "/etc/shadow"}]],
)
def test_a_proof_about_other_disks_is_none(disks: list[dict[str, t.Any]]) -> None:
    with pytest.raises(Unsafe, match="proved"):
        check_saved(order(disks=disks), [EMULATOR])


def test_an_endless_definition_is_not_even_read() -> None:
    with pytest.raises(Unsafe, match="longer than"):
        check_saved(order("<domain>" + " " * (5 * 1024 * 1024) + "</domain>"), [EMULATOR])
