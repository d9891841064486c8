# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(scheduler_check): its options as a request, and its result with a verdict for each candidate."""

from __future__ import annotations

import typing as t
import uuid as uuid_module
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    KvmfleetError,
    NotFound,
    printable_line,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_uri, is_local
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import NO_COPY, GivenPolicy, read_copy_mode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey, SurveyedDomain, SurveyQuestion
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.decide import find_job, group_reasons
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.destination_problems import explain_saved_memory, explain_taken_variables
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import (
    DestinationOptions,
    MoveRequest,
    apply_policy,
    name_destination,
    read_renamings,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import CandidateJudge, PlacementSubject, make_subject
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.storage import copied_bytes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import read_request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import Verdict, best_verdict, describe_filters_off
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

# The name of a saved request without a domain in sentences.
UNNAMED = "The request"


class CheckOptions(DestinationOptions):
    """The options of C(scheduler_check)."""

    uri: str
    ledger: str | None
    name: str | None
    uuid: str | None
    request: JsonObject | None
    candidates: t.Sequence[str] | None
    copy_storage: str
    one_way: bool
    scheduler: JsonObject | None


@dataclass(frozen=True)
class CheckRequest:
    """A domain, by name, by UUID or as a saved request, and its possible destinations.

    :arg source: inventory name of the host that C(uri) leads to.
    :arg move: the domain, the candidates' URIs and what is done with disks, as a move has them.
    :arg saved: the saved request; None for a domain of this host.
    :arg scheduler: settings for this question alone.
    """

    source: str
    move: MoveRequest
    saved: DomainRequest | None
    scheduler: JsonObject | None

    def survey_question(self) -> SurveyQuestion:
        """Return the input of the survey on the host."""
        return self.move.survey_question(self.saved)


def read_check(args: CheckOptions, settings: Settings, target_host: str) -> CheckRequest:
    """Return the question. Raises L(InvalidArgument); no host was queried yet.

    :arg args: the validated options of C(scheduler_check).
    :arg target_host: inventory name of the host that the task runs on.
    """
    if sum(given is not None for given in (args["name"], args["uuid"], args["request"])) != 1:
        raise InvalidArgument("Exactly one of name, uuid and request is needed.")
    check_domain_name(args["name"])
    saved = None if args["request"] is None else _read_saved(args["request"])
    name, uuid = (args["name"], canonical_uuid(args["uuid"])) if saved is None else (None, saved.uuid or None)
    source = target_host if is_local(check_uri(args["uri"], "uri")) else settings.host_at(args["uri"])
    uris = _read_candidates(args, settings, source, saved is not None)
    options = MoveOptions(copy_storage=read_copy_mode(args["copy_storage"]))
    label = name or (saved.name if saved else None) or str(uuid)
    # A saved request has no host whose names it could have.
    renamings = read_renamings(settings, source, uris) if saved is None else {}
    move = MoveRequest(name, uuid, args["destination"], uris, None, options, GivenPolicy(), label=label, one_way=args["one_way"], renamings=renamings)
    return CheckRequest(source, move, saved, args["scheduler"])


def _read_saved(request: JsonObject) -> DomainRequest:
    """Return the saved request with a UUID and a name, both generated for a request without a domain."""
    uuid, name = request.get("uuid"), request.get("name")
    if not isinstance(uuid, (str, type(None))) or not isinstance(name, (str, type(None))):
        raise InvalidArgument(f"The request has uuid {uuid!r} and name {name!r}.", "Give texts, or leave them out.")
    return read_request({**request, "uuid": canonical_uuid(uuid) or str(uuid_module.uuid4()), "name": name or UNNAMED})


def _read_candidates(args: CheckOptions, settings: Settings, source: str, with_source: bool) -> dict[str, str]:
    """Return the URIs of the hosts to judge. The source is queried over its own C(uri), and is a candidate only for a saved request."""
    given, destination, uri = args["candidates"], args["destination"], args["destination_uri"]
    if given is not None and (destination is not None or uri is not None):
        raise InvalidArgument("candidates was given together with destination or destination_uri.", "Give either.")
    if uri is not None:
        name = name_destination(check_uri(uri, "destination_uri"), destination)
        return {name: uri}
    fleet = [host for host in settings.fleet() if with_source or host != source]
    hosts = given if given is not None else [destination] if destination is not None else fleet
    if not all(hosts):
        raise InvalidArgument(f"{'destination is' if given is None else 'candidates has a name that is'} empty.", "Give inventory names.")
    if not hosts:
        raise InvalidArgument("There are no candidates.", "Name hosts in candidates, or put them into the inventory group kvmfleet_hosts.")
    return {host: args["uri"] if host == source else settings.libvirt_uri(host, source, args["transport"]) for host in hosts}


Result = dict[str, Json]


def answer_check(question: CheckRequest, view: FleetView) -> Result:
    """Return C({verdicts, selected, request}), and C(unverified_reasons) for a user who is not root.

    Raises L(NotFound) for an unknown domain, and L(Conflict), with the verdicts, where none passes.
    """
    domain, move = view.survey.domains[0], question.move
    subject = _saved_subject(question, view) if question.saved is not None else _domain_subject(question, view, domain)
    judge = CandidateJudge(view, subject, move, domain, lambda host: _copied_bytes(question, subject, domain, host))
    unknown = _list_unknown(question, view)
    ranked = judge.rank_hosts(move.uris).items()
    busy = _list_job(question, view.source, domain)
    verdicts = {
        host: _with_warnings(_with_survey(verdict, question, subject, view.survey, judge.copied(host)), [*busy, *_unknown_texts(host, view.source, unknown)])
        for host, verdict in ranked
    }
    ordered = sorted(verdicts.values(), key=lambda verdict: (not verdict.passed, -verdict.weight, verdict.host))
    shown: Result = {
        "verdicts": [_format_verdict(verdict) for verdict in ordered],
        "request": {**encode(subject.needs), "uuid": subject.uuid, "name": subject.name},
        **({"unverified_reasons": {host: dict(reasons) for host, reasons in unknown.items()}} if unknown else {}),
    }
    chosen = best_verdict(ordered)
    if chosen is None:
        raise _refusal_error(move.label, verdicts, shown)
    return {"changed": False, **shown, "selected": chosen.host, "lines": _verdict_lines(move.label, ordered)}


def _domain_subject(question: CheckRequest, view: FleetView, domain: SurveyedDomain) -> PlacementSubject:
    move = question.move
    if domain.at_source is None:
        raise NotFound(f"There is no domain {move.label!r} on {view.source}.", "Check the name and the host (virsh list --all).")
    move.label = domain.at_source.name
    apply_policy(move, domain, view.settings, view.source)
    return make_subject(view, move, domain)


def _saved_subject(question: CheckRequest, view: FleetView) -> PlacementSubject:
    """Return a saved request; if its domain is active on a queried host, that host is its source."""
    saved = t.cast(DomainRequest, question.saved)
    uuid, name, needs = saved.uuid or "", saved.name or "", replace(saved, uuid=ABSENT, name=ABSENT)
    hosts = {view.source: view.survey.source, **{host: view.survey.destinations[uri] for host, uri in question.move.uris.items()}}
    for host, facts in hosts.items():
        if any(domain.uuid == uuid and domain.active for domain in facts.domains or ()):
            return PlacementSubject(uuid, name, needs, host, facts.host)
    return PlacementSubject(uuid, name, needs, "")


def _is_examined(question: CheckRequest, domain: SurveyedDomain, host: str) -> bool:
    return question.move.uris[host] in (domain.storage or {})


def _copied_bytes(question: CheckRequest, subject: PlacementSubject, domain: SurveyedDomain, host: str) -> Mapping[str, int]:
    """Return the disks that would be copied to the host if known; otherwise every writable disk that is not known to be shared."""
    if question.move.options.copy_storage == NO_COPY:
        return {}
    if _is_examined(question, domain, host):
        try:
            return copied_bytes(question.move, domain, host)
        except KvmfleetError:
            # _with_survey reports it as a failure of that host.
            return {}
    disks = [disk for disk in subject.needs.disks or () if disk.source and not disk.readonly and disk.shared is not True]
    return {disk.target: disk.count_copy(question.move.options.copy_storage) for disk in disks}


def _with_survey(verdict: Verdict, question: CheckRequest, subject: PlacementSubject, survey: Survey, counted: Mapping[str, int]) -> Verdict:
    """Return the verdict, completed by the storage test of both hosts, and by what the host has of it and of others with its name or variables.

    :arg counted: the disks that count as copied to the host.
    """
    domain, uri, failures, warnings = survey.domains[0], question.move.uris[verdict.host], list(verdict.failures), list(verdict.warnings)
    other = (domain.name_taken or {}).get(uri)
    if other:
        failures.append({"filter": "name", "reason": f"It has another domain named {domain.source_info.name} ({other})."})
    taken = explain_taken_variables(question.move, survey.destinations[uri], domain, verdict.host)
    if taken:
        failures.append({"filter": "firmware", "reason": taken})
    saved = explain_saved_memory(question.move, domain, verdict.host)
    if saved:
        failures.append({"filter": "managed_save", "reason": saved})
    if question.move.options.copy_storage != NO_COPY:
        if _is_examined(question, domain, verdict.host):
            try:
                copied_bytes(question.move, domain, verdict.host)
            except KvmfleetError as error:
                failures.append({"filter": "storage", "reason": error.message})
        elif verdict.passed and counted:
            warnings.append("Which disks would be copied was not tested from both hosts: every writable disk that is not known to be shared is counted.")
            unsized = [disk.target for disk in subject.needs.disks or () if disk.target in counted and not isinstance(disk.bytes, int)]
            warnings += [f"The size of disk {target} is not known, so no space is counted for it." for target in unsized]
    return replace(verdict, passed=not failures, failures=failures, warnings=warnings, weight=verdict.weight if not failures else 0.0)


def _list_unknown(question: CheckRequest, view: FleetView) -> dict[str, Mapping[str, str]]:
    """Return by host what is unknown about it because this user is not root, with the reasons; only hosts of which anything is."""
    facts = {view.source: view.source_facts(), **{host: view.candidate_facts(host, uri) for host, uri in question.move.uris.items()}}
    return {host: known.unverified_reasons for host, known in facts.items() if known.unverified_reasons}


def _list_job(question: CheckRequest, source: str, domain: SurveyedDomain) -> list[str]:
    """Return a warning if a job occupies the domain; a move of it is refused meanwhile, wherever it goes."""
    job = find_job(domain) if question.saved is None else ""
    told = f"Domain {question.move.label} on {source} has a job in progress ({job}): a move is refused until its end, or waits for it (busy_wait_seconds)."
    return [told] if job else []


def _with_warnings(verdict: Verdict, warnings: Sequence[str]) -> Verdict:
    return replace(verdict, warnings=[*verdict.warnings, *warnings])


def _unknown_texts(host: str, source: str, unknown: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a warning for everything that is unknown about the host and about the source: no filter passes it silently."""
    return [_unknown_text(one, unknown[one]) for one in dict.fromkeys([host, source]) if one in unknown]


def _unknown_text(host: str, reasons: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for what, why in sorted(reasons.items()):
        by_reason.setdefault(why, []).append(what)
    parts = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
    return f"Not checked on {host}, because it was read without root: {parts}."


def _format_verdict(verdict: Verdict) -> Result:
    return {
        "host": verdict.host,
        "passed": verdict.passed,
        "failures": list(verdict.failures),
        "warnings": list(verdict.warnings),
        "weight": round(verdict.weight, 3),
        "filters_off": list(verdict.filters_off),
    }


def _verdict_lines(label: str, ordered: Sequence[Verdict]) -> list[str]:
    """Return the verdicts for people: the hosts that can accept the domain, best first, all reasons against the others, and the filters that were off."""
    passed = [verdict.host for verdict in ordered if verdict.passed]
    others = [f"{verdict.host}: no. {verdict.reason}" for verdict in ordered if not verdict.passed]
    warnings = [f"{verdict.host}: {warning}" for verdict in ordered if verdict.passed for warning in verdict.warnings]
    switched_off = [f"{verdict.host}:{describe_filters_off(verdict)}" for verdict in ordered if verdict.passed and verdict.filters_off]
    hosts = f"{', '.join(passed)}{' (best first)' if len(passed) > 1 else ''}"
    return [printable_line(line) for line in [f"{label} can go to {hosts}.", *others, *warnings, *switched_off]]


def _refusal_error(label: str, verdicts: Mapping[str, Verdict], shown: Result) -> Conflict:
    reasons = {host: verdict.reason for host, verdict in verdicts.items()}
    what = "what the request asks for" if label == UNNAMED else f"domain {label}"
    if len(reasons) == 1:
        ((host, reason),) = reasons.items()
        return Conflict(f"{host} cannot accept {what}: {reason}", None, **shown)
    return Conflict(f"None of the {len(reasons)} candidates can accept {what}. {group_reasons(reasons)}", None, **shown)
