# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The edited cache of a host that shall look older."""

from __future__ import annotations

import pytest
from kvmlab.capabilities import Less, edited
from kvmlab.errors import UsageError

CACHE = """\
<qemuCaps>
  <version>7002022</version>
  <hostCPU type='tcg' model='base' migratability='yes'>
    <property name='cx16' type='boolean' value='true' migratable='yes'/>
    <property name='aes' type='boolean' value='false'/>
  </hostCPU>
  <machine type='kvm' name='pc-i440fx-7.2' alias='pc' maxCpus='255'/>
  <machine type='tcg' name='pc-i440fx-7.2' alias='pc' maxCpus='255'/>
  <machine type='tcg' name='pc-i440fx-7.1' maxCpus='255'/>
</qemuCaps>
"""


def test_a_machine_type_is_removed_for_every_accelerator() -> None:
    assert "7.2'" not in (left := edited(CACHE, Less(machines=("pc-i440fx-7.2",))))
    assert "pc-i440fx-7.1" in left


def test_a_version_and_a_feature_are_rewritten() -> None:
    left = edited(CACHE, Less(version="6.2.0", features=("cx16",)))
    assert "<version>6002000</version>" in left
    assert "<property name='cx16' type='boolean' value='false'/>" in left


@pytest.mark.parametrize("less", [Less(version="old"), Less(machines=("pc-i440fx-7",)), Less(features=("aes",)), Less(features=("nix",))])
def test_removing_an_unknown_machine_feature_or_version_is_refused(less: Less) -> None:
    with pytest.raises(UsageError):
        edited(CACHE, less)
