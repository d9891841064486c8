# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The inventory variables of a host that say what it calls its resources: kvmfleet_bridge_map and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import KINDS, ResourceMaps, check_maps


def read_maps(host: str, read_variable: Callable[[str], Json]) -> ResourceMaps:
    """Return the maps of a host. Raises L(InvalidArgument), naming host and variable, for an invalid one.

    :arg read_variable: returns a variable of the host, or None.
    """
    maps = {kind: _read_map(about.variable, host, read_variable) for kind, about in KINDS.items()}
    return check_maps(ResourceMaps(**maps), host)


def _read_map(variable: str, host: str, read_variable: Callable[[str], Json]) -> dict[str, str]:
    try:
        value = read_variable(variable)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"{variable} of {host} is {value!r}.", "Give a dictionary of the fleet's names and those of this host.")
        return {str(name): _read_name(own, f"{variable} of {host}", str(name)) for name, own in value.items()}
    except AnsibleError as error:
        # A template in it is evaluated when its value is read.
        raise InvalidArgument(f"{variable} of {host} cannot be read: {str(error).rstrip('.')}.") from None


def _read_name(own: Json, where: str, name: str) -> str:
    """Return the name as text: the number of a CPU may be a number."""
    if isinstance(own, bool) or not isinstance(own, (str, int)):
        raise InvalidArgument(f"{where} has {own!r} for {name!r}.", "Give the name that this host has for it, as text.")
    # A text of a template is of another type.
    text = "".join(str(own))
    return text.rstrip("/") if text.startswith("/") else text.lower() if where.startswith(KINDS["devices"].variable) else text
