# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import check_definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import RestartOrder, SavedDisk
from ansible_collections.kvmfleet.migration.tests.unit.fakes.orders import restart_order
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import EMULATOR, UUID, definition

PATH = "/srv/images/web1.qcow2"
BOMB = "<!DOCTYPE domain [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>]>"


def disk(target: str = "vda", path: str = PATH) -> SavedDisk:
    return SavedDisk(target, "file", path, readonly=False, optional=False, folders=())


def order(text: str | None, source: str = PATH, disks: tuple[SavedDisk, ...] = (disk(),)) -> RestartOrder:
    return restart_order(UUID, "web1", text, (("vda", source),), disks)


def test_a_saved_definition_is_accepted() -> None:
    check_definition(order(definition()), [EMULATOR])


def test_a_volume_is_proved_by_its_pool_and_name() -> None:
    text = definition().replace("type='file'", "type='volume'").replace(f"file='{PATH}'", "pool='images' volume='web1.qcow2'")
    check_definition(order(text, source="images/web1.qcow2"), [EMULATOR])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB + definition(), "document type"),
        ("", "there is none"),
        (None, "there is none"),
        ("a shopping list", "not XML"),
        ("<network/>", "not a domain"),
        (definition(name="other"), "name 'other'"),
        (definition(uuid="5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a99"), "UUID"),
        (definition(path="/etc/shadow"), "/etc/shadow"),
        (definition(emulator="/bin/sh"), "/bin/sh"),
        (definition().replace("</devices>", "<disk type='file'><source file='/etc/shadow'/><target dev='vdb'/></disk></devices>"), "vdb"),
    ],
)
def test_an_altered_definition_is_refused(text: str | None, told: str) -> None:
    with pytest.raises(Unsafe, match=told) as raised:
        check_definition(order(text), [EMULATOR])
    assert "web1" in str(raised.value)
    assert "was not started" in str(raised.value)


@pytest.mark.parametrize(
    "disks",
    [(), (disk("vdb"),), (disk(path="/etc/shadow"),)],
)
def test_a_proof_of_other_disks_is_refused(disks: tuple[SavedDisk, ...]) -> None:
    with pytest.raises(Unsafe, match="proved"):
        check_definition(order(definition(), disks=disks), [EMULATOR])


def test_a_definition_over_the_size_limit_is_refused() -> None:
    with pytest.raises(Unsafe, match="longer than"):
        check_definition(order("<domain>" + " " * (5 * 1024 * 1024) + "</domain>"), [EMULATOR])
