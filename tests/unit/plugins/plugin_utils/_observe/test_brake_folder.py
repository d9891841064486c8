# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The brake's folder: the file that disarms, the slots of an earlier version, and what cannot be read."""

from __future__ import annotations

import datetime
import json
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake_folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake import Slot

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)
SLOT = Slot("evacuate", "kvm1", NOON)
WITHOUT_ZONE = '{"places": [{"reaction": "evacuate", "host": "kvm1", "at": "2026-11-21T12:00:00"}]}'


def test_old_slots_are_read_and_the_file_is_kept_under_another_name(tmp_path: pathlib.Path) -> None:
    assert brake_folder.read_old_slots(str(tmp_path / "missing")) == []
    assert brake_folder.read_old_slots(str(tmp_path)) == []
    content = json.dumps({"places": [SLOT.as_dict()]})
    (tmp_path / brake_folder.STATE_FILE).write_text(content)
    assert brake_folder.read_old_slots(str(tmp_path)) == [SLOT]
    for _run in range(2):
        brake_folder.retire_old_slots(str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == [brake_folder.MOVED_FILE]
    assert (tmp_path / brake_folder.MOVED_FILE).read_text() == content


def test_old_slots_are_added_once() -> None:
    later = Slot("evacuate", "kvm2", NOON + datetime.timedelta(minutes=1))
    assert brake_folder.join_slots([later], [SLOT]) == [SLOT, later]
    assert brake_folder.join_slots([SLOT, later], [SLOT]) == [SLOT, later]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"places": [1]}', WITHOUT_ZONE])
def test_an_unreadable_state_file_is_refused(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / brake_folder.STATE_FILE).write_text(content)
    with pytest.raises(Unsafe, match="Nothing was done"):
        brake_folder.read_old_slots(str(tmp_path))
    assert (tmp_path / brake_folder.STATE_FILE).read_text() == content


def test_a_state_file_that_is_none_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / brake_folder.STATE_FILE).mkdir()
    with pytest.raises(Internal, match="Nothing was done"):
        brake_folder.read_old_slots(str(tmp_path))


def test_any_file_named_disarmed_disarms(tmp_path: pathlib.Path) -> None:
    brake_folder.check_armed(str(tmp_path), "kvm1")
    (tmp_path / brake_folder.DISARMING_FILE).symlink_to(tmp_path / "nowhere")
    assert brake_folder.is_disarmed(str(tmp_path))
    with pytest.raises(Forbidden, match="kvm1"):
        brake_folder.check_armed(str(tmp_path), "kvm1")
