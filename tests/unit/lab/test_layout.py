# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and addresses of a lab."""

from __future__ import annotations

import json
import pathlib

import pytest
from kvmlab.errors import LabError, UsageError
from kvmlab.layout import Lab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> Lab:
    lab = Lab("kvm", tmp_path)
    lab.state.mkdir()
    lab.settings_file.write_text(json.dumps({"subnet": "10.177.4", "hosts": 2}))
    return lab


@pytest.mark.parametrize("prefix", ["", "KVM", "1kvm", "kvm-a", "a/b", "../x", "toolongprefix", "localhost", "kvm\n"])
def test_a_prefix_that_makes_no_host_name_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="prefix"):
        Lab.named(prefix, "/run/x")


def test_a_state_folder_too_long_for_unix_sockets_is_refused() -> None:
    with pytest.raises(UsageError, match="too long"):
        Lab.named("kvm", "/" + "x" * 80)


def test_the_state_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVMFLEET_LAB_STATE", "/var/tmp/labs")
    assert Lab.named("kvm").state == pathlib.Path("/var/tmp/labs/kvm")
    assert Lab.named("kvm", "/run/other").state == pathlib.Path("/run/other/kvm")


def test_each_host_has_its_own_name_and_address(lab: Lab) -> None:
    assert lab.hosts == ["kvm1", "kvm2"]
    assert [lab.host_address(host) for host in lab.hosts] == ["10.177.4.11", "10.177.4.12"]


@pytest.mark.parametrize("host", ["kvm3", "kvm", "../kvm1", "", "kvm1\n"])
def test_an_unknown_host_is_refused_with_the_known_ones(lab: Lab, host: str) -> None:
    with pytest.raises(UsageError, match="kvm1, kvm2"):
        lab.require_host(host)


def test_hosts_of_a_lab_that_is_not_up_name_the_up_command(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match="lab --prefix kvm up"):
        Lab("kvm", tmp_path).hosts  # noqa: B018 - it is the reading that raises
