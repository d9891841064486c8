# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of a host's lease."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import config as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal

from .conftest import OWN, PEER, THIRD, make_config


def test_what_is_written_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lease.json"
    for config in (make_config(), make_config(user=None, password=None), make_config(tls=True, ca_file="/etc/kvmfleet/lease-ca.pem")):
        path.write_text(json.dumps(encode(config)))
        assert m.read_config(str(path)) == config


def test_the_peers_are_the_other_hosts_and_the_key_is_below_leases() -> None:
    config = make_config()
    assert [peer.host_id for peer in config.peers] == [PEER, THIRD]
    assert config.host_ids == (OWN, PEER, THIRD)
    assert config.key == f"/fleet/leases/{OWN}"


def test_a_list_of_hosts_is_known_by_the_checksum_of_its_sorted_lines() -> None:
    found = m.describe_fleet([THIRD, OWN, PEER, OWN])
    assert found.size == 3
    assert found.digest == hashlib.sha256(f"{OWN}\n{PEER}\n{THIRD}\n".encode("ascii")).hexdigest()


@pytest.mark.parametrize(
    "change",
    [{"endpoints": ()}, {"fleet": make_config().fleet[1:]}, {"renew_seconds": 6}, {"renew_seconds": 0}, {"port": 0}, {"port": 65536}],
)
def test_a_configuration_without_which_no_lease_can_be_is_refused(tmp_path: pathlib.Path, change: t.Dict[str, t.Any]) -> None:
    path = tmp_path / "lease.json"
    path.write_text(json.dumps(encode(make_config(**change))))
    with pytest.raises(Internal, match="Run the task host_lease"):
        m.read_config(str(path))


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}"])
def test_a_file_that_is_missing_or_damaged_is_named(tmp_path: pathlib.Path, content: t.Optional[str]) -> None:
    path = tmp_path / "lease.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Internal, match=str(path)):
        m.read_config(str(path))
