# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(scheduler_check) returns: a verdict for each candidate, and the best of those that passed."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, KvmfleetError, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import NO_COPY
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.copying import copied_bytes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.judging import Judge, Subject, subject_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.known import Facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.policy import place_of, policy_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.question import UNNAMED, Question
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.reasons import compact
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.check import Verdict, best

Result = dict[str, t.Any]


def answer(question: Question, view: FleetView) -> Result:
    """Return C({verdicts, selected, request}). Raises L(NotFound) for a domain that is not there, and L(Conflict), with the verdicts, where none passes."""
    domain, move = view.survey["domains"][0], question.move
    subject = _saved_subject(question, view) if question.saved is not None else _domain_subject(question, view, domain)
    judge = Judge(view, subject, move, domain, lambda host: _copied(question, subject, domain, host))
    verdicts = {host: _with_storage(verdict, question, domain, judge.copied(host)) for host, verdict in judge.rank(move.uris).items()}
    ordered = sorted(verdicts.values(), key=lambda verdict: (not verdict.passed, -verdict.weight, verdict.host))
    shown = {"verdicts": [_shown(verdict) for verdict in ordered], "request": {**subject.needs, "uuid": subject.uuid, "name": subject.name}}
    chosen = best(ordered)
    if chosen is None:
        raise _refusal(move.label, verdicts, shown)
    return {"changed": False, **shown, "selected": chosen.host}


def _domain_subject(question: Question, view: FleetView, domain: Facts) -> Subject:
    move = question.move
    if not domain["found"]:
        raise NotFound(f"There is no domain {move.label!r} on {view.source}.", "Check the name and the host (virsh list --all).")
    move.label = domain["info"]["name"]
    move.policy, _warnings = policy_of(move, domain, view.settings, view.source)
    move.place = place_of(domain, view.settings, view.source)
    return subject_of(view, move, domain)


def _saved_subject(question: Question, view: FleetView) -> Subject:
    """Return a saved request; where its domain is active on a host that was asked, that host is its source."""
    saved = t.cast(Result, question.saved)
    needs = {key: value for key, value in saved.items() if key not in ("uuid", "name")}
    hosts = {view.source: view.survey["source"], **{host: view.survey["destinations"][uri] for host, uri in question.move.uris.items()}}
    for host, facts in hosts.items():
        if any(domain["uuid"] == saved["uuid"] and domain["active"] for domain in facts.get("domains", ())):
            return Subject(saved["uuid"], saved["name"], needs, host, facts["host_uuid"], facts.get("host_id"))
    return Subject(saved["uuid"], saved["name"], needs, "", "")


def _is_examined(question: Question, domain: Facts, host: str) -> bool:
    return question.move.uris[host] in domain.get("storage", {})


def _copied(question: Question, subject: Subject, domain: Facts, host: str) -> Mapping[str, int]:
    """Return what would be copied there, as far as it was found out; else every disk that is written to and not known to be shared."""
    if question.move.options.copy_storage == NO_COPY:
        return {}
    if _is_examined(question, domain, host):
        try:
            return copied_bytes(question.move, domain, host)
        except KvmfleetError:
            # It is a failure of that host in _with_storage.
            return {}
    disks = [disk for disk in subject.needs.get("disks") or () if disk.get("source") and not disk.get("readonly") and disk.get("shared") is not True]
    return {disk["target"]: int(disk.get("bytes") or 0) for disk in disks}


def _with_storage(verdict: Verdict, question: Question, domain: Facts, counted: Mapping[str, int]) -> Verdict:
    """Return the verdict with what only the test of both hosts' storage, or the names of other domains there, can say.

    :arg counted: the disks that count as copied there.
    """
    uri, failures, warnings = question.move.uris[verdict.host], list(verdict.failures), list(verdict.warnings)
    if uri in domain.get("name_taken", {}):
        failures.append({"filter": "name", "reason": f"It has another domain named {domain['info']['name']} ({domain['name_taken'][uri]})."})
    if question.move.options.copy_storage != NO_COPY:
        if _is_examined(question, domain, verdict.host):
            try:
                copied_bytes(question.move, domain, verdict.host)
            except KvmfleetError as error:
                failures.append({"filter": "storage", "reason": error.message})
        elif verdict.passed and counted:
            warnings.append("What would be copied was not tested from both hosts: every disk that is written to and not known to be shared is counted.")
    return replace(verdict, passed=not failures, failures=failures, warnings=warnings, weight=verdict.weight if not failures else 0.0)


def _shown(verdict: Verdict) -> Result:
    return {
        "host": verdict.host,
        "passed": verdict.passed,
        "failures": list(verdict.failures),
        "warnings": list(verdict.warnings),
        "weight": round(verdict.weight, 3),
    }


def _refusal(label: str, verdicts: Mapping[str, Verdict], shown: Result) -> Conflict:
    reasons = {host: verdict.reason for host, verdict in verdicts.items()}
    what = "what the request asks for" if label == UNNAMED else f"domain {label}"
    if len(reasons) == 1:
        ((host, reason),) = reasons.items()
        return Conflict(f"{host} may not take {what}: {reason}", **shown)
    return Conflict(f"None of the {len(reasons)} candidates may take {what}. {compact(reasons)}", **shown)
