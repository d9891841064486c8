# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(evacuate_plan) decides for all survivors of a dead host together. The decisions are in C(plugin_utils/_evacuate)."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import (
    EVACUATE_ASSESS,
    EVACUATE_CHECK,
    EVACUATE_PROBE,
    EVACUATE_PROVE,
    EVACUATE_QUERY,
    EVACUATE_SURVIVORS,
    Spec,
    evacuate_plan_spec,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment, read_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import (
    EvacuationAction,
    add_proof,
    add_shares,
    build_assessment,
    note_fencing,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.detection import read_detection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation, ProbedFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import SourceAnswers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.job import EvacuationTask
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.plan import Shares, has_recent_facts, plan_evacuation, refuse_missing_destination
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.renewals import Renewals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.request import EvacuationRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.restart_limit import RestartLimit
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.result import plan_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt

FACTS_KEY = "kvmfleet_host"


class ActionModule(EvacuationAction):
    """Action plugin of the module of the same name."""

    MODULE = "evacuate_plan"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return evacuate_plan_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Do one step towards a plan."""
        self.refuse_free_strategy("Nothing was started.")
        with readable_results():
            task = decode(EvacuationTask, args)
            step, request = task.step, EvacuationRequest.from_task(task)
        request.check_choice()
        RestartLimit.from_option(task.restart_limit or None)
        read_detection(task.detection or None)
        if step == EVACUATE_CHECK:
            self.warn_of_mistyped_options(task_vars)
            request.check_options()
            return {"changed": False, "assess_first": request.must_assess_first, "_check_mode": bool(self._task.check_mode)}
        if step == EVACUATE_QUERY:
            return self._query_host(task, request, task_vars)
        if step == EVACUATE_SURVIVORS:
            return self._list_survivors(request, task_vars)
        if step == EVACUATE_PROBE:
            return self._probe_source(task, request, task_vars)
        run = self.prepare_evacuation(task, task_vars, connects_as_ansible=step in (EVACUATE_ASSESS, EVACUATE_PROVE))
        if step == EVACUATE_PROVE:
            evidence = request.given_evidence(run.source.name, bool(self._task.check_mode))
            run.context.options = dataclasses.replace(task, fencing=tuple(evidence or ()))
        try:
            probed = run.probe_fleet(step == EVACUATE_PROVE, request.first_round)
        except SourceAnswers as error:
            raise run.add_begun(error) from error
        refuse_missing_destination(run, request.destination, task.survivors or (), request.excluded)
        if step == EVACUATE_ASSESS:
            return self.with_warnings(run, {**encode(build_assessment(run)), "changed": False})
        take_step = self._take_evidence if step == EVACUATE_PROVE else self._share_domains
        with note_fencing(run):
            return self.with_warnings(run, take_step(run, probed, task, request))

    def _query_host(self, task: EvacuationTask, request: EvacuationRequest, task_vars: Result) -> JsonObject:
        """Gather the facts of the host. The first host of the play asks for all that has to be known before the fencing, at the same time."""
        if self.target_host(task_vars) in request.play[:1]:
            try:
                asked = self.prepare_evacuation(task, task_vars, connects_as_ansible=True).ask_first_round()
                warnings = {"warnings": list(asked.facts_warnings)} if asked.facts_warnings else {}
                return {"changed": False, "ansible_facts": {FACTS_KEY: with_receipt(asked.seen.facts)}, "first_round": encode(asked), **warnings}
            except KvmfleetError:
                # The step that judges the answers asks again, and reports this.
                pass
        # Not the method of this class, whose modules have the options of an evacuation.
        done: Result = FleetAction._execute_module(self, module_name="kvmfleet.migration.host_facts", module_args={"uri": task.uri}, task_vars=task_vars)
        facts = done.get("ansible_facts")
        if isinstance(facts, dict) and isinstance(facts.get(FACTS_KEY), dict):
            done["ansible_facts"] = {**facts, FACTS_KEY: with_receipt(facts[FACTS_KEY])}
        return done

    def _probe_source(self, task: EvacuationTask, request: EvacuationRequest, task_vars: Result) -> JsonObject:
        """Try to connect to the source as Ansible does, and find out whether it renews its lease."""
        renewals, host_id = self._read_leases(task, task_vars)
        with self.make_probe(task.source, task_vars) as probe:
            probe.require_silence()
        renewals.require_silence(task.source, host_id)
        return {"changed": False}

    def _read_leases(self, task: EvacuationTask, task_vars: Result) -> tuple[Renewals, str]:
        """Return the leases, read once, and the ID of the source. A host that the ledger does not know has none."""
        try:
            ledger = open_ledger(*self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger), create=False)
            ids = [str(entry.host_id) for entry in list_entries(ledger) if task.source in (entry.name, entry.host_id)]
        except KvmfleetError:
            return Renewals(lambda: None), ""
        renewals = Renewals(ledger.open_leases)
        renewals.read_leases()
        return renewals, ids[0] if ids else ""

    def _list_survivors(self, request: EvacuationRequest, task_vars: Result) -> JsonObject:
        """Return the hosts that share the work, and warn of those that answered and do not. Or have the role ask some of them again first."""
        found = request.find_survivors(self.settings(task_vars).facts)
        result: JsonObject = {"changed": False, "survivors": list(found.hosts), "excluded": {**found.earlier, **found.excluded}}
        if found.ask_again:
            return {**result, "_ask_again": list(found.ask_again)}
        warnings = found.list_warnings(request.task.source)
        return {**result, "warnings": warnings} if warnings else result

    def _take_evidence(self, run: Evacuation, probed: ProbedFleet, task: EvacuationTask, request: EvacuationRequest) -> JsonObject:
        """Collect the evidence, and make the plan unless the survivors have to be asked again first. A host is fenced only if that is necessary."""
        run.record_waiting(probed.fleet.destination)
        if run.open_jobs():
            run.prove_source_off(probed, starts=False)
        proof, changed = add_proof(run, boot_moment()), bool(run.proofs.all_evidence) and not run.check
        names = list(task.survivors or ())
        if names and run.open_jobs() and has_recent_facts(run, names):
            shares = plan_evacuation(run, probed, names, None, request.destination)
            return {**self._show_plan(run, shares, request), "since": encode(proof.since), "changed": changed}
        return {**encode(proof), "changed": changed}

    def _share_domains(self, run: Evacuation, probed: ProbedFleet, task: EvacuationTask, request: EvacuationRequest) -> JsonObject:
        """Make the shares of the survivors, and show them."""
        shares = Shares({}, [])
        if run.open_jobs():
            run.reuse_evidence(probed)
        if run.open_jobs():
            names = task.survivors or [request.destination or run.context.target_host]
            shares = plan_evacuation(run, probed, names, read_moment(task.since or None), request.destination)
        return {**self._show_plan(run, shares, request), "changed": False}

    def _show_plan(self, run: Evacuation, shares: Shares, request: EvacuationRequest) -> JsonObject:
        plan = dataclasses.replace(add_shares(run, shares), excluded=request.excluded or ABSENT)
        if not self._task.no_log:
            for line in plan_lines(plan):
                Display().display(line)
        return t.cast(JsonObject, encode(plan))
