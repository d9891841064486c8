# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_result). Documentation is in drain_result.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import host_result

Body = Mapping[str, t.Any]


def drain_result(
    plan: Body,
    facts: Mapping[str, Body],
    outcomes: Mapping[str, Sequence[Body]],
    records: Sequence[Body] = (),
    problems: t.Optional[Mapping[str, Sequence[str]]] = None,
    refusals: t.Optional[Mapping[str, Mapping[str, str]]] = None,
    check_mode: bool = False,
) -> dict[str, t.Any]:
    """Return C(drain_host_result): a dictionary by host."""
    try:
        return {
            host: host_result(
                host, plan, facts, outcomes.get(host, ()), records, (problems or {}).get(host, ()), (refusals or {}).get(host), check_mode=check_mode
            )
            for host in plan["sources"]
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"drain_result: plan, facts or records have not the expected form ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"drain_result": drain_result}
