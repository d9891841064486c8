# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(plan_drain). Documentation is in plan_drain.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import Known, make_plan

Body = Mapping[str, t.Any]


def plan_drain(
    facts: t.Any,
    sources: t.Any,
    candidates: t.Any,
    entries: Sequence[Body] = (),
    records: Sequence[Body] = (),
    unreachable: t.Optional[Mapping[str, str]] = None,
    scheduler: t.Optional[Mapping[str, Body]] = None,
    history: Sequence[Body] = (),
    parallel: int = 4,
    bandwidth_mib: int = 0,
) -> dict[str, t.Any]:
    """Return the plan of a drain."""
    if not isinstance(facts, Mapping):
        raise AnsibleFilterError(f"plan_drain: the input is a {type(facts).__name__}; give a dictionary of kvmfleet_host facts by host name.")
    known = Known(facts, entries, records, unreachable or {}, scheduler or {}, history)
    try:
        return make_plan(known, _names(sources, "sources"), _names(candidates, "candidates"), parallel, bandwidth_mib)
    except KvmfleetError as error:
        raise AnsibleFilterError(f"plan_drain: {error}") from error
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"plan_drain: the facts, entries or records have not the expected form ({type(error).__name__}: {error}).") from error


def _names(value: t.Any, option: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise AnsibleFilterError(f"plan_drain: {option} is {value!r}; give a list of host names.")
    return [str(name) for name in value]


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"plan_drain": plan_drain}
