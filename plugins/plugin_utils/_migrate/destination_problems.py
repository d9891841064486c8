# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Why a host cannot be the destination of a move, whatever the scheduler decides."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import HOST_ID_FILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.renamed_request import rename_request
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    KvmfleetError,
    NotSupported,
    Unreachable,
    error_for_code,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey, SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HOW_TO_SET_UUID
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.storage import check_storage


def find_destination_problem(request: MoveRequest, source: str, survey: Survey, domain: SurveyedDomain, host: str) -> KvmfleetError | None:
    """Return why that host cannot be the destination: silent, the source itself, another domain of that name or with its firmware variables, older memory of
    it, or disks that it cannot have.
    """
    uri = request.uris[host]
    facts = survey.destinations[uri]
    if not facts.answered:
        return Unreachable(f"The destination {host} does not answer: {facts.msg}", "Nothing was moved.")
    problem = _identity_problem(request, source, survey.source.host, host, facts.host)
    if problem is not None:
        return problem
    other = (domain.name_taken or {}).get(uri)
    if other:
        return Conflict(f"{host} has another domain named {domain.source_info.name} ({other}).", "Rename one of the two. Nothing was moved.")
    taken = explain_taken_variables(request, facts, domain, host)
    if taken:
        return Conflict(taken, "Give one of the two another file (nvram in its definition). Nothing was moved.")
    saved = explain_saved_memory(request, domain, host)
    if saved:
        return Conflict(saved, f"If the image is not needed, discard it there (virsh managedsave-remove {domain.uuid}). Nothing was moved.")
    try:
        _check_rewrite(request, domain, host)
        check_storage(request, domain, source, host, survey.source.pools or ())
    except KvmfleetError as error:
        return error
    return None


def explain_taken_variables(request: MoveRequest, facts: HostFacts, domain: SurveyedDomain, host: str) -> str:
    """Return that another domain of that host has its firmware variables in the file of this one; empty if none has.

    A domain that is renamed keeps the file. A guest that arrives writes its own variables into it, without a warning by libvirt.
    """
    needs, renaming = domain.request, request.renamings.get(request.uris[host])
    if domain.at_source is None or not needs or not needs.nvram:
        return ""
    path = rename_request(needs, renaming).needs.nvram if renaming else needs.nvram
    owners = (other for other in facts.domains or () if other.uuid != domain.uuid and (other.request or {}).get("nvram") == path)
    owner = next(owners, None)
    return f"The firmware variables of domain {owner.name} ({owner.uuid}) on {host} are in {path}, which {request.label} would overwrite." if owner else ""


def explain_saved_memory(request: MoveRequest, domain: SurveyedDomain, host: str) -> str:
    """Return that the host has a managed-save image of that guest, which its next start there would resume; empty if it has none.

    libvirt keeps the image when the guest arrives (L(JobPreparation) looks again). If the domain is off on its source too, the image may be the newer one.
    """
    there = domain.there.get(request.uris[host])
    if domain.at_source is None or not domain.at_source.view.active or there is None or not there.saved:
        return ""
    return f"{host} has a managed-save image of domain {request.label} ({domain.uuid}), with memory that is older than that of the guest."


def _check_rewrite(request: MoveRequest, domain: SurveyedDomain, host: str) -> None:
    """Raise why the definition of the domain cannot be rewritten for that host."""
    found = (domain.rewrites or {}).get(request.uris[host])
    if found and found.problem:
        raise error_for_code(str(found.error_code))(
            f"Domain {request.label} cannot get the names of {host}: {found.problem}",
            "Complete the resource maps of both hosts (kvmfleet_bridge_map and the like). Nothing was moved.",
        )


def _identity_problem(request: MoveRequest, source: str, source_ref: HostRef, host: str, destination_ref: HostRef) -> KvmfleetError | None:
    """Return why the two hosts cannot be source and destination of a move."""
    if source_ref.is_twin(destination_ref):
        return Conflict(
            f"Two hosts report the host ID {source_ref.host_id}: {source}, and the destination {host}, with another libvirt UUID.",
            f"If {HOST_ID_FILE} of one of them is a copy, remove it there. Nothing was moved.",
        )
    if source_ref.shares_uuid(destination_ref):
        return NotSupported(
            f"{source} and the destination {host} have the same libvirt UUID ({destination_ref.host_uuid}): libvirt refuses to migrate between them.",
            f"{HOW_TO_SET_UUID} Nothing was moved.",
        )
    if source_ref.is_same_answer(destination_ref):
        return InvalidArgument(f"The destination {host} is the host that domain {request.label} runs on, by libvirt's UUID.", "Nothing was moved.")
    return None
