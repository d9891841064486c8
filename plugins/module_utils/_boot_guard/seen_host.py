# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The phase of C(fleet_status) on a host: what it reports of its domains, and whether its boot is held."""

from __future__ import annotations

import typing as t

from .._facts.own_moves import report_seen_domains
from .._host_identity import find_ledger_id
from .._model.codec import Json, JsonObject
from .._module import Phase
from .status import is_boot_held


def look_at_host(uri: str, work: JsonObject) -> t.Dict[str, Json]:
    """Return what L(report_seen_domains) returns, C(held), whether the boot guard holds this boot, null if this user may not know, and C(ledger_id)."""
    return {**report_seen_domains(uri, work), "held": is_boot_held(), "ledger_id": find_ledger_id()}


SEEN_PHASES: t.Dict[str, Phase] = {"look": look_at_host}
