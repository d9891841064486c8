# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(domain_policy): profiles and host defaults are inventory variables; the domain's own values stay on its host."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import check_profile
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.change import CONFIG, LIVE, Change, Definitions, apply, in_force
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import is_same, parse
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import FIELDS, PROFILE, check_field
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.spec import domain_policy_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._policy.effective import effective, warning_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "domain_policy"

    def spec(self) -> Result:
        """Return the module's options."""
        return domain_policy_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Read the policy, and write it where it is to change."""
        change = change_of(args)
        host = self.here(task_vars)
        found = self.phase("read", {"name": args["name"], "uuid": args["uuid"]}, args["uri"], task_vars)
        domain, before = found["domain"], found["definitions"]
        what = f"domain {domain['name']} on {host}"
        after = apply(change, before, what)
        result = _result(domain, after, self.settings(task_vars), host, change)
        changed = any(not is_same(before[scope], after[scope]) for scope in before)
        if changed and domain["busy"]:
            raise InvalidState(
                f"{what[0].upper()}{what[1:]} is {domain['state']} and has a job in progress ({domain['job']}): its policy cannot be written now.",
                "Wait for the job's end and run the task again. Nothing was changed.",
            )
        if changed and not self._task.check_mode:
            self.phase("write", {"uuid": domain["uuid"], "change": change.as_dict(), "what": what}, args["uri"], task_vars)
        if self._task.diff:
            result["diff"] = {"before": _shown(before), "after": _shown(after), "before_header": f"policy of {what}", "after_header": f"policy of {what}"}
        return {**result, "changed": changed}


def change_of(args: t.Mapping[str, t.Any]) -> Change:
    """Return what the task's options want. Raises L(InvalidArgument) for values and combinations that cannot be."""
    if (args["name"] is None) == (args["uuid"] is None):
        raise InvalidArgument("Exactly one of name and uuid is needed.")
    check_domain_name(args["name"])
    setting = {field: args[field] for field in FIELDS if args[field] is not None}
    if "group" in setting:
        setting["group"] = {key: value for key, value in setting["group"].items() if value is not None}
    for field, value in setting.items():
        check_field(field, value)
    absent = args["state"] == "absent"
    if absent and (setting or args["unset"]):
        raise InvalidArgument("state is absent, which takes the whole policy away, and fields are given.", "To take single fields away, name them in unset.")
    both = [field for field in args["unset"] if field in setting]
    if both:
        raise InvalidArgument(f"{', '.join(both)} is to be set and unset at once.")
    return Change(setting, tuple(args["unset"]), absent)


def _result(domain: t.Mapping[str, t.Any], after: Definitions, settings: Settings, host: str, change: Change) -> Result:
    """Return what the task returns. Raises L(InvalidArgument) for an unknown profile, L(Conflict) for one that contradicts what is being set."""
    own = parse(in_force(after)).values
    profile = settings.profile(host, own.get(PROFILE))
    if change.is_wanted and PROFILE in own:
        check_profile(own, own[PROFILE], profile)
    policy = effective(own, profile, settings.policy(host))
    differing = CONFIG in after and LIVE in after and not is_same(after[LIVE], after[CONFIG])
    stale = f"The persistent definition of domain {domain['name']} on {host} has another policy than the running domain: it holds after the next start."
    warnings = [warning for warning in (warning_of(policy), stale if differing else None) if warning]
    result: Result = {"domain": {"uuid": domain["uuid"], "name": domain["name"]}, "policy": own, "effective": policy}
    return {**result, "warnings": warnings} if warnings else result


def _shown(definitions: Definitions) -> Result:
    """Return the policy for a diff; each definition's own where they differ."""
    texts = {scope: parse(xml).shown() for scope, xml in definitions.items()}
    live = parse(in_force(definitions)).shown()
    return live if all(text == live for text in texts.values()) else texts
