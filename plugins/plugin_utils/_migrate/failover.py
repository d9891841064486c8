# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The reserve for failover when the scheduler chooses a destination: a host is refused if the fleet could lose fewer hosts after the move than before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.failover import (
    FAILOVER_HOSTS,
    describe_broken,
    describe_left_out,
    describe_missing,
    judge_reserve,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import Verdict, best_verdict


def refuse_without_reserve(
    view: FleetView, request: MoveRequest, build_request: Callable[[str], Request], verdicts: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Return the verdicts in which the best host keeps the reserve. Hosts after it are not judged by this rule, because each takes a search.

    A destination that a person or a plan has chosen is not judged: a plan is judged as a whole when it is made.
    """
    found, hosts = dict(verdicts), view.count_failover_hosts(request.uris)
    if not hosts or not _is_judged(view, request):
        return found
    before = view.collect_guests(request.uris)
    while (best := best_verdict(found.values())) is not None:
        reserve = judge_reserve(before, before.place_guest(build_request(best.host), best.host), hosts)
        if reserve.is_kept:
            missing = [describe_missing([loss.hosts for loss in reserve.missing], hosts)] if reserve.missing else []
            left_out = [describe_left_out(reserve.left_out)] if reserve.left_out else []
            found[best.host] = replace(best, warnings=[*best.warnings, *missing, *left_out])
            break
        reason = describe_broken([loss.hosts for loss in reserve.broken], hosts)
        failures = [*best.failures, {"filter": FAILOVER_HOSTS, "reason": reason}]
        found[best.host] = replace(best, passed=False, failures=failures, weight=0.0)
    return found


def _is_judged(view: FleetView, request: MoveRequest) -> bool:
    """Whether the scheduler chooses among all hosts of the fleet, and the guest runs after the move."""
    return request.destination is None and not request.stays_off and {*view.settings.fleet()} <= {view.source, *request.uris}
