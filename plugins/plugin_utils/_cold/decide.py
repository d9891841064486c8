# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The decision about one cold move: finish an earlier one, start, refuse, or an error. A pure function of the request, the survey and the ledger."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import ColdTraits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import SHARED, deletes_tpm
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidState, KvmfleetError, NotFound, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE, SAVE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey, SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.request import ColdRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import settling_step
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import host_ref_from_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.decide import Adopt, AlreadyThere, Refuse, Start, exclude_hosts, read_watch
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.destination_problems import find_destination_problem

ColdDecision = AlreadyThere | Adopt | Start | Refuse

_NOTHING = "Nothing was moved."
# QEMU 7.2 ends with a failed assertion when it saves a guest with a disk that arrived paused and has not run since.
SAVES_PAUSED_DISKS_SINCE = 10_000_000


def decide_cold_move(
    request: ColdRequest,
    source: str,
    survey: Survey,
    domain: SurveyedDomain,
    traits: ColdTraits | None,
    stored: Stored | None,
    entry: DomainEntry | None = None,
) -> ColdDecision:
    """Return the decision. Raises the error with which the task fails, before anything has moved, unless it is the refusal of a destination.

    :arg source: inventory name of the source host.
    :arg survey: what C(prepare) found on both sides.
    :arg domain: the part of it about this domain.
    :arg traits: what else the source reports about it; None if the source does not have it.
    :arg stored: the unsettled record that holds the domain.
    :arg entry: the domain as the ledger has it.
    """
    if stored is not None:
        return decide_held(request, source, survey, stored)
    if domain.at_source is None or traits is None:
        return _decide_absent(request, source, domain)
    watch = read_watch(domain)
    if watch and watch.is_moving:
        raise Conflict(
            f"Domain {request.label} is being moved on {source} for record {watch.record_id}, which this ledger does not have.",
            "Another ledger owns that move. Use the one it was started with. If it is lost, wait for the end of the move.",
        )
    _check_state(request, source, domain.at_source.view, domain.busy_with or "")
    if not domain.at_source.view.active and entry is not None:
        _check_not_left_over(request, source, survey, domain.at_source.undefine_options, entry)
    _check_traits(request, source, domain, traits)
    problems = {host: _find_problem(request, source, survey, domain, traits, host) for host in request.uris}
    return exclude_hosts(request, Start(list(request.uris)), {host: problem for host, problem in problems.items() if problem is not None})


def decide_held(request: ColdRequest, source: str, survey: Survey, stored: Stored) -> Adopt:
    """Return the decision about a domain that an unsettled record holds; it never starts a move. Raises L(Conflict) for another kind of record."""
    record = stored.record
    if record.type != s.COLD_MIGRATION or not record.source.may_be(host_ref_from_facts(None, source, encode(survey.source.host))):
        raise Conflict(
            f"Domain {request.label} is held by {record.type} record {record.id} ({record.status}) from {record.source.host} to {record.destination.label}.",
            f"Settle that record first. {settling_step(record)} {_NOTHING}",
        )
    return Adopt(stored)


def _decide_absent(request: ColdRequest, source: str, domain: SurveyedDomain) -> AlreadyThere:
    host = next((host for host, uri in request.uris.items() if uri in domain.there), None)
    if host is not None:
        return AlreadyThere(domain.there[request.uris[host]].uuid, host)
    where = request.destination or "any host of the group kvmfleet_hosts"
    raise NotFound(
        f"There is no domain {request.label!r} on {source}, and none that is known by that name at {where}.",
        f"Check the name and the host (virsh list --all). {_NOTHING}",
    )


def _check_not_left_over(request: ColdRequest, source: str, survey: Survey, options: str, entry: DomainEntry) -> None:
    """Raise L(Conflict) if the domain may be on other hosts according to the ledger. It may run there, and the move of an old definition would hide that."""
    own = host_ref_from_facts(None, source, encode(survey.source.host))
    names = ", ".join(host.label for host in entry.possible_hosts if not host.may_be(own))
    if not names or entry.is_missing:
        return
    raise Conflict(
        f"According to the ledger, domain {request.label} may be on {names}, so that the definition on {source} may be left over.",
        f"If it is, undefine it on {source} (virsh undefine {options}). If the domain belongs on {source}, protect {names}, which notes that it is missing "
        f"there, and run the task again. {_NOTHING}",
    )


def _check_state(request: ColdRequest, source: str, view: domain_states.DomainView, busy_with: str) -> None:
    """Raise L(InvalidState) or L(NotSupported) if the method cannot move a domain in that state.

    :arg busy_with: the job that occupies the domain, e.g. C(a backup), also one of a disk, which the state does not show; empty for none.
    """
    what = f"Domain {request.label} on {source} is {view.describe()}"
    if view.is_busy or busy_with:
        raise InvalidState(f"{what} and has a job in progress ({busy_with or view.job}).", f"Wait for its end. {_NOTHING}")
    if not view.persistent:
        raise NotSupported(f"{what} and transient: it has no definition that could move.", f"Move it live (live_migrate). {_NOTHING}")
    if request.method == OFFLINE and (view.active or view.state != domain_states.SHUTOFF):
        raise InvalidState(f"{what}: the method offline moves a domain that is shut off.", f"Use the method save or shutdown, or live_migrate. {_NOTHING}")
    if request.method == SAVE and view.state not in (domain_states.RUNNING, domain_states.PAUSED):
        raise InvalidState(f"{what}: the method save moves a domain that runs or is paused.", f"Use the method offline. {_NOTHING}")
    if request.method == SHUTDOWN and view.state not in (domain_states.RUNNING, domain_states.SHUTOFF):
        raise InvalidState(f"{what}, so its guest cannot shut down.", f"Resume it, or use the method save. {_NOTHING}")


def _check_traits(request: ColdRequest, source: str, domain: SurveyedDomain, traits: ColdTraits) -> None:
    """Raise L(InvalidState) or L(NotSupported) for what would be lost, or would prevent the move."""
    what = f"Domain {request.label} on {source}"
    if traits.managed_save and not request.saved:
        raise InvalidState(
            f"{what} has a managed-save image, which {_describe_unsaved(request, traits)}.",
            f"Start it paused (virsh start --paused {request.label}) and move it by the method save, which moves its memory, or discard the image "
            f"(virsh managedsave-remove). {_NOTHING}",
        )
    for number, kind in ((traits.snapshots, "snapshots"), (traits.checkpoints, "checkpoints")):
        if number:
            raise NotSupported(
                f"{what} has {number} {kind}, whose description would be lost.", f"Remove them (virsh {kind[:-1]}-delete --metadata). {_NOTHING}"
            )
    if traits.problem:
        raise NotSupported(f"{what} cannot move cold: {traits.problem}", _NOTHING)
    if request.method == SHUTDOWN and domain.source_info.view.active and traits.on_poweroff != "destroy":
        raise InvalidState(f"{what} has on_poweroff {traits.on_poweroff} and would not be off.", f"Set on_poweroff to destroy. {_NOTHING}")


def _describe_unsaved(request: ColdRequest, traits: ColdTraits) -> str:
    if traits.saved:
        return f"the method {request.method} does not move: the method offline does"
    return "a definition does not carry, and which cannot be read"


def _find_problem(request: ColdRequest, source: str, survey: Survey, domain: SurveyedDomain, traits: ColdTraits, host: str) -> KvmfleetError | None:
    """Return why that host cannot be the destination."""
    problem = find_destination_problem(request, source, survey, domain, host)
    if problem is not None:
        return problem
    return (
        _find_twin(request, source, domain, host)
        or _find_tpm_problem(request, source, survey, domain, host)
        or _find_folder_problem(request, source, traits, host)
        or _find_saving_problem(request, source, survey, domain, host)
    )


def _find_twin(request: ColdRequest, source: str, domain: SurveyedDomain, host: str) -> KvmfleetError | None:
    twin = domain.there.get(request.uris[host])
    if twin is None:
        return None
    if twin.active:
        return InvalidState(
            f"Domain {request.label} is defined on {source} and active under the same UUID on {host}.",
            "Find out immediately which copy is correct; nothing was touched.",
        )
    return Conflict(
        f"{host} has a definition of domain {request.label} already.",
        f"If it is left over from an earlier stay, remove it there (virsh undefine {domain.source_info.undefine_options}). {_NOTHING}",
    )


def _find_tpm_problem(request: ColdRequest, source: str, survey: Survey, domain: SurveyedDomain, host: str) -> KvmfleetError | None:
    """Return why a move to that host could not be undone: the definition would go with the state of the TPM, which the hosts may share."""
    known = survey.destinations[request.uris[host]].versions or {}
    if not domain.request or not deletes_tpm(domain.request, known.get("libvirt", 0)):
        return None
    return NotSupported(
        f"Domain {request.label} on {source} cannot move cold to {host}: if the move had to be undone, the libvirt of {host} would delete the state of the TPM "
        "with the definition (libvirt 8.9 keeps it).",
        f"Update libvirt on {host}, or choose another destination. {_NOTHING}",
    )


def _find_saving_problem(request: ColdRequest, source: str, survey: Survey, domain: SurveyedDomain, host: str) -> KvmfleetError | None:
    """Return why the memory of a managed-save image cannot be saved again at that host, or on the source if it comes back."""
    if not request.saved or all(disk.readonly for disk in domain.source_info.disks):
        return None
    versions = {source: survey.source.versions or {}, host: survey.destinations[request.uris[host]].versions or {}}
    older = [name for name, known in versions.items() if known.get("hypervisor", 0) < SAVES_PAUSED_DISKS_SINCE]
    if not older:
        return None
    return NotSupported(
        f"Domain {request.label} on {source} has a managed-save image and a disk. The QEMU of {' and '.join(older)} is older than 10.0, and cannot save the "
        "memory of such a guest again before it has run.",
        f"Start it paused (virsh start --paused {request.label}) and move it by the method save, which moves its memory. {_NOTHING}",
    )


def _find_folder_problem(request: ColdRequest, source: str, traits: ColdTraits, host: str) -> KvmfleetError | None:
    if request.save_folder is None:
        return None
    proofs: Mapping[str, object] = traits.folders
    proof = traits.folders.get(request.uris[host])
    if proof is not None and proof.verdict == SHARED:
        return None
    why = f": {proof.why}" if proof is not None and proof.why else " as another folder" if proofs else ""
    return Unsafe(
        f"{request.save_folder} is not proved to be one folder of {source} and {host}{why}. The memory of domain {request.label} was not saved there.",
        f"Name a folder on storage that both hosts mount. {_NOTHING}",
    )
