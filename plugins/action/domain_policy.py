# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(domain_policy): profiles and host defaults are inventory variables; the domain's own values stay on its host."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, InvalidState, KvmfleetError, error_for_code
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import check_profile
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.change import CONFIG, LIVE, Change, Definitions, apply, in_force
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import is_same, parse
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import FIELDS, PROFILE, check_field
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.spec import domain_policy_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._policy.effective import effective, warning_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

Result = dict[str, t.Any]


class ActionModule(ActionBase):
    """Action plugin of the module of the same name."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Run the task. An error of ours becomes C(msg) and C(error_code)."""
        result: Result = super().run(tmp, task_vars)
        try:
            result = {**result, **self._policy(task_vars or {})}
        except KvmfleetError as error:
            result = {**result, "failed": True, "changed": False, **error.as_result()}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _policy(self, task_vars: dict[str, t.Any]) -> Result:
        if self._task.async_val:
            raise InvalidArgument("domain_policy does not take the task keyword async.", "Leave async out.")
        _validation, args = self.validate_argument_spec(domain_policy_spec())
        change = change_of(args)
        host = self._task.delegate_to or task_vars["inventory_hostname"]
        found = self._phase("read", {"name": args["name"], "uuid": args["uuid"]}, args, task_vars)
        domain, before = found["domain"], found["definitions"]
        what = f"domain {domain['name']} on {host}"
        after = apply(change, before, what)
        result = _result(domain, after, Settings(task_vars), host, change)
        changed = any(not is_same(before[scope], after[scope]) for scope in before)
        if changed and domain["busy"]:
            raise InvalidState(
                f"{what[0].upper()}{what[1:]} is {domain['state']} and has a job in progress ({domain['job']}): its policy cannot be written now.",
                "Wait for the job's end and run the task again. Nothing was changed.",
            )
        if changed and not self._task.check_mode:
            self._phase("write", {"uuid": domain["uuid"], "change": change.as_dict(), "what": what}, args, task_vars)
        if self._task.diff:
            result["diff"] = {"before": _shown(before), "after": _shown(after), "before_header": f"policy of {what}", "after_header": f"policy of {what}"}
        return {**result, "changed": changed}

    def _phase(self, phase: str, work: Result, args: Result, task_vars: dict[str, t.Any]) -> Result:
        module_args = {"uri": args["uri"], "_work": {**work, "phase": phase}}
        result = self._execute_module(module_name="kvmfleet.migration.domain_policy", module_args=module_args, task_vars=task_vars)
        if result.get("failed") or result.get("rc"):
            raise error_for_code(result.get("error_code", ""))(str(result.get("msg") or result.get("module_stderr")))
        return t.cast(Result, result)


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
