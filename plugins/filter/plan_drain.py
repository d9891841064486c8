# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(plan_drain). Documentation is in plan_drain.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.arguments import called
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.known import Known
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.wish import Wish


def plan_drain(facts: t.Any, sources: t.Any, candidates: t.Any, **arguments: t.Any) -> dict[str, t.Any]:
    """Return the plan of a drain."""
    return called("plan_drain", _planned, facts, sources, candidates, arguments)


def _planned(known: Known, sources: list[str], candidates: list[str], given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return make_plan(known, sources, candidates, Wish.of(**given))


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"plan_drain": plan_drain}
