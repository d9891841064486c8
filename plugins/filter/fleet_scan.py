# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(fleet_scan). Documentation is in fleet_scan.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, ShapeError, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.fleet_scan import scan_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts


def fleet_scan(facts: Json) -> JsonObject:
    """Return the states that must never occur, and the hosts without facts."""
    if not isinstance(facts, Mapping):
        raise AnsibleFilterError(f"fleet_scan: the input is a {type(facts).__name__}; give a dictionary of kvmfleet_host facts by host name.")
    try:
        known = {host: read_facts(t.cast("JsonObject", document)) if document else None for host, document in facts.items()}
        return t.cast("JsonObject", encode(scan_fleet(known)))
    except (AttributeError, ShapeError, TypeError) as error:
        raise AnsibleFilterError(f"fleet_scan: the facts have not the form that host_facts gives them ({type(error).__name__}: {error}).") from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[[Json], JsonObject]]:
        """Return the filters by name."""
        return {"fleet_scan": fleet_scan}
