# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the machine must have for a lab."""

from __future__ import annotations

import pathlib

import pytest
from kvmlab import requirements
from kvmlab.errors import LabError

PROC = "612 611 0:23 / /proc rw,relatime - proc proc rw\n"
ROOT = "611 580 254:0 /srv/debian12 / rw,relatime - ext4 /dev/vda rw\n"


@pytest.fixture
def mounts(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "mountinfo"


def test_a_root_that_is_not_a_mount_point_is_refused_with_the_next_step(mounts: pathlib.Path) -> None:
    mounts.write_text(PROC, encoding="utf-8")
    with pytest.raises(LabError, match=r"/ is not a mount point.*mount --bind FOLDER FOLDER"):
        requirements.require_mounted_root(mounts)


def test_a_root_that_is_a_mount_point_is_accepted(mounts: pathlib.Path) -> None:
    mounts.write_text(ROOT + PROC, encoding="utf-8")
    requirements.require_mounted_root(mounts)
