# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory variables with what a host calls its resources."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import read_renamings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings


def settings_with(**variables: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": variables, "kvm2": {}, "kvm3": variables}, "groups": {"all": ["kvm1", "kvm2", "kvm3"]}})


def test_each_variable_is_a_map_and_numbers_and_slashes_are_read_as_people_write_them() -> None:
    maps = settings_with(
        kvmfleet_bridge_map={"prod": "br0"},
        kvmfleet_network_map={"san": "default"},
        kvmfleet_image_map={"fast": "/srv/fast/"},
        kvmfleet_device_map={"gpu": "0000:4A:00.0"},
        kvmfleet_cpu_map={"guests": 2},
        kvmfleet_numa_map={"near": "0-1"},
        kvmfleet_graphics_map={"console": "10.0.0.1"},
    ).resource_maps("kvm1")
    assert maps == ResourceMaps(
        {"prod": "br0"}, {"san": "default"}, {"fast": "/srv/fast"}, {"gpu": "0000:4a:00.0"}, {"guests": "2"}, {"near": "0-1"}, {"console": "10.0.0.1"}
    )


def test_a_host_without_variables_and_one_outside_the_inventory_have_no_maps() -> None:
    settings = settings_with(kvmfleet_bridge_map={"prod": "br0"})
    assert settings.resource_maps("kvm2") == NO_MAPS
    assert settings.resource_maps("10.0.0.9") == NO_MAPS


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("br0", "kvmfleet_bridge_map of kvm1 is 'br0'. Give a dictionary"),
        (["br0"], "kvmfleet_bridge_map of kvm1 is ['br0']."),
        ({"prod": None}, "kvmfleet_bridge_map of kvm1 has None for 'prod'."),
        ({"prod": True}, "kvmfleet_bridge_map of kvm1 has True for 'prod'."),
        ({"prod": ["br0"]}, "kvmfleet_bridge_map of kvm1 has ['br0'] for 'prod'."),
        ({"prod": "br0", "test": "br0"}, "kvmfleet_bridge_map of kvm1 gives 'br0' two names"),
    ],
)
def test_an_invalid_map_is_refused_with_host_and_variable(value: t.Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        settings_with(kvmfleet_bridge_map=value).resource_maps("kvm1")
    assert message in str(refused.value)


def test_only_destinations_with_other_names_have_a_renaming() -> None:
    found = read_renamings(settings_with(kvmfleet_bridge_map={"prod": "br0"}), "kvm1", {"kvm2": "qemu://kvm2", "kvm3": "qemu://kvm3"})
    assert {uri: (renaming.source, renaming.destination) for uri, renaming in found.items()} == {"qemu://kvm2": ("kvm1", "kvm2")}
