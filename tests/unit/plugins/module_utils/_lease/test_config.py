# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of a host's lease."""

from __future__ import annotations

import dataclasses
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
    config = make_config(cluster_id="7", endpoints=("10.0.0.2:2379", "10.0.0.1:2379"))
    found = m.describe_fleet(config)
    store = hashlib.sha256(b"7\n/fleet/\n10.0.0.1:2379\n10.0.0.2:2379\n").hexdigest()
    assert (config.store, found.size) == (store, 3)
    assert found.digest == hashlib.sha256(f"{store}\n{OWN}\n{PEER}\n{THIRD}\n".encode("ascii")).hexdigest()


def test_another_etcd_is_another_fleet_and_the_order_of_its_members_does_not_matter() -> None:
    config = make_config(endpoints=("10.0.0.2:2379", "10.0.0.1:2379"))
    assert m.describe_fleet(config) == m.describe_fleet(make_config(endpoints=("10.0.0.1:2379", "10.0.0.2:2379"), fleet=config.fleet[::-1]))
    others = [{"cluster_id": "2"}, {"endpoints": ("10.0.0.3:2379",)}, {"prefix": "/other/"}, {"fleet": config.fleet[:2]}]
    assert len({m.describe_fleet(dataclasses.replace(config, **change)).digest for change in others} | {m.describe_fleet(config).digest}) == 5


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
