# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(domain_policy): profiles and defaults of hosts are inventory variables; the policy of a domain is on its host."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, domain_policy_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import check_profile
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import POLICY_FIELDS, PROFILE, check_field, strategies_value
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import (
    CONFIG,
    LIVE,
    Definitions,
    PolicyChange,
    apply_change,
    is_same_policy,
    parse_policy,
    policy_in_force,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import effective_policy
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

Result = dict[str, Json]


class PolicyOptions(t.TypedDict):
    """The options of C(domain_policy); C(POLICY_FIELDS) are further ones."""

    uri: str
    name: str | None
    uuid: str | None
    state: str
    unset: list[str]


@dataclass(frozen=True)
class PolicyDomain:
    """The domain that has the policy.

    :arg state: its state, a phrase; C(job) is the kind of job that libvirt has for it.
    :arg busy: whether the job forbids writing its policy.
    """

    uuid: str
    name: str
    state: str
    job: str
    busy: bool


@dataclass(frozen=True)
class PolicyAnswer:
    """What the phase C(read) returns: the domain, and the policy's XML in each of its definitions."""

    domain: PolicyDomain
    definitions: t.Mapping[str, str]
    extra: JsonObject = dataclasses.field(default_factory=dict)


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "domain_policy"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return domain_policy_spec()

    def run_task(self, args: Result, task_vars: Result) -> Result:
        """Read the policy, and write it if it changes."""
        options = t.cast(PolicyOptions, args)
        change = read_change(options, args)
        host = self.target_host(task_vars)
        found = decode(PolicyAnswer, self.run_phase("read", {"name": options["name"], "uuid": options["uuid"]}, options["uri"], task_vars))
        domain, before = found.domain, dict(found.definitions)
        what = f"domain {domain.name} on {host}"
        after = apply_change(change, before, what)
        result = _build_result(domain, after, self.settings(task_vars), host, change)
        changed = any(not is_same_policy(before[scope], after[scope]) for scope in before)
        if changed and domain.busy:
            raise InvalidState(
                f"{what[0].upper()}{what[1:]} is {domain.state} and has a job in progress ({domain.job}): its policy cannot be written now.",
                "Wait for the job's end and run the task again. Nothing was changed.",
            )
        if changed and not self._task.check_mode:
            self.run_phase("write", {"uuid": domain.uuid, "change": change.as_dict(), "what": what}, options["uri"], task_vars)
        if self._task.diff:
            result["diff"] = {
                "before": _diff_policy(before),
                "after": _diff_policy(after),
                "before_header": f"policy of {what}",
                "after_header": f"policy of {what}",
            }
        return {**result, "changed": changed}


def read_change(args: PolicyOptions, fields: JsonObject) -> PolicyChange:
    """Return the change that the task's options request. Raises L(InvalidArgument) for invalid values and combinations.

    :arg fields: of the policy, by their names; null for one that the task does not set.
    """
    if (args["name"] is None) == (args["uuid"] is None):
        raise InvalidArgument("Exactly one of name and uuid is needed.")
    check_domain_name(args["name"])
    setting = {field: fields[field] for field in POLICY_FIELDS if fields[field] is not None}
    if isinstance(group := setting.get("group"), t.Mapping):
        setting["group"] = {key: value for key, value in group.items() if value is not None}
    for field, value in setting.items():
        check_field(field, value)
    if strategies := setting.get("drain"):
        setting["drain"] = strategies_value(t.cast("list[str]", strategies))
    absent = args["state"] == "absent"
    if absent and (setting or args["unset"]):
        raise InvalidArgument("state: absent removes the whole policy, but fields are given.", "To remove single fields, list them in unset.")
    both = [field for field in args["unset"] if field in setting]
    if both:
        raise InvalidArgument(f"{', '.join(both)} is both set and unset.")
    return PolicyChange(setting, tuple(args["unset"]), absent)


def _build_result(domain: PolicyDomain, after: Definitions, settings: Settings, host: str, change: PolicyChange) -> Result:
    """Return what the task returns. Raises L(InvalidArgument) for an unknown profile, L(Conflict) for a profile that contradicts the new values."""
    own = parse_policy(policy_in_force(after)).values
    profile = settings.profile(host, own.get(PROFILE))
    for scope in sorted(after, reverse=True) if change.is_wanted else ():
        values = parse_policy(after[scope]).values
        if isinstance(name := values.get(PROFILE), str):
            check_profile(values, name, settings.profile(host, name), "the persistent definition" if LIVE in after and scope == CONFIG else "the domain itself")
    policy = effective_policy(own, profile, settings.policy(host))
    differing = CONFIG in after and LIVE in after and not is_same_policy(after[LIVE], after[CONFIG])
    stale = f"The persistent definition of domain {domain.name} on {host} has another policy than the running domain: it applies after the next start."
    warnings = [warning for warning in (policy.warning, stale if differing else None) if warning]
    result: Result = {"domain": {"uuid": domain.uuid, "name": domain.name}, "policy": own, "effective": policy.as_json()}
    result["lines"] = list_policy_lines(domain, policy.as_json())
    return {**result, "warnings": warnings} if warnings else result


def list_policy_lines(domain: PolicyDomain, effective: JsonObject) -> list[str]:
    """Return the policy for people: each field that has a value, with its source."""
    entries = {field: t.cast(JsonObject, entry) for field, entry in sorted(effective.items())}
    values = [(field, entry["value"], entry["source"]) for field, entry in entries.items() if entry["value"] not in (None, [])]
    written = [f"{field}: {value if isinstance(value, str) else json.dumps(value)} ({source})" for field, value, source in values]
    return [printable_line(line) for line in [f"The next move of {domain.name} takes:", *written]]


def _diff_policy(definitions: Definitions) -> Result:
    """Return the policy for a diff; each definition's own where they differ."""
    texts: Result = {scope: parse_policy(xml).describe_values() for scope, xml in definitions.items()}
    live = parse_policy(policy_in_force(definitions)).describe_values()
    return live if all(text == live for text in texts.values()) else texts
