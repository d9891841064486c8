# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the source reports about a domain that is to move cold, in addition to the survey of live moves. Nothing is changed."""

from __future__ import annotations

import contextlib
import typing as t

from .._facts.disks import find_other_image
from .._facts.survey_phases import survey_watched_moves
from .._libvirt.host import open_host
from .._libvirt.interface import Host, OpenHost
from .._model.clock import boot_moment
from .._model.codec import ABSENT, Json, decode, encode
from .._model.cold_moves import ColdSurvey, ColdTraits, FolderProof
from .._model.definition_files import UNPROVED, has_deletable_tpm, list_needed_files
from .._model.errors import KvmfleetError
from .._model.libvirt_formats import parse_libvirt_xml
from .._model.saved_domains import NVRAM, TPM, NeededFile
from .._model.watched_moves import SurveyedDomain, SurveyQuestion
from .._module import Result
from .._time_limits import limit_questions
from .saved_memory import find_managed_save, prove_shared_folder
from .state_files import MAX_BYTES, find_irregular, list_paths, size_of

_MIB = 1024**2


class _PrepareMoves(t.TypedDict):
    """The input of L(prepare_cold_moves)."""

    wanted: t.Sequence[Json]


@limit_questions
def prepare_cold_moves(uri: str, work: _PrepareMoves) -> Result:
    """Return the C(survey) of the moves in C(work["wanted"]), as L(ColdSurvey). Changes nothing."""
    questions = [decode(SurveyQuestion, question, "wanted") for question in work["wanted"]]
    survey = survey_watched_moves(uri, questions)
    host = open_host(uri)
    try:
        traits = tuple(read_traits(host, domain, question, open_host) for domain, question in zip(survey.domains, questions))
    finally:
        host.close()
    return {"changed": False, "survey": encode(ColdSurvey(survey, traits, boot_moment()))}


def read_traits(host: Host, domain: SurveyedDomain, question: SurveyQuestion, open_other: OpenHost) -> t.Optional[ColdTraits]:
    """Return what the source reports about a surveyed domain; null if it does not have the domain.

    :arg open_other: opens a destination.
    """
    info = domain.at_source
    if info is None:
        return None
    snapshots, checkpoints = host.count_snapshots(info.uuid)
    root = parse_libvirt_xml(host.read_definition(info.uuid), "a domain definition")
    files = tuple(file for file in list_needed_files(root) if file.what in (NVRAM, TPM))
    folder = question.save_folder
    return ColdTraits(
        managed_save=host.has_managed_save(info.uuid),
        snapshots=snapshots,
        checkpoints=checkpoints,
        on_poweroff=host.on_poweroff(info.uuid),
        files=files,
        file_bytes=_total_size(files),
        problem=_find_other_image(host, domain, question) or find_problem(files, loses_tpm=has_deletable_tpm(root) and not host.keeps_tpm()),
        saved=find_managed_save(info.name, info.uuid, host) or ABSENT,
        folders={uri: prove_folder(folder, uri, open_other) for uri in question.destination_uris} if folder else {},
    )


def _find_other_image(host: Host, domain: SurveyedDomain, question: SurveyQuestion) -> str:
    """Return why a guest that is shut down would start from other images than it runs on; empty for one that keeps its memory."""
    view = domain.source_info.view
    is_asked = question.gives_up_memory and view.active and view.persistent
    return find_other_image(host, domain.source_info.uuid) if is_asked else ""


def _total_size(files: t.Sequence[NeededFile]) -> int:
    return sum(size_of(path) for file in files for path in list_paths(file))


def find_problem(files: t.Sequence[NeededFile], loses_tpm: bool) -> str:
    """Return why these files cannot be copied to another host; empty if they can.

    :arg loses_tpm: whether this host's libvirt would delete the state of a TPM with the definition.
    """
    for file in files:
        if file.what == TPM and file.kind == "device":
            return f"its TPM is the device {file.path} of this host."
        if file.kind == "block":
            return f"its firmware variables are on the device {file.path}."
        if file.what == TPM and loses_tpm:
            return "this host's libvirt would delete the state of its TPM when it is undefined (libvirt 8.9 keeps it)."
        problem = find_irregular(file)
        if problem:
            return problem
    size = _total_size(files)
    if size > MAX_BYTES:
        return f"its firmware variables and TPM state have {-(-size // _MIB)} MiB, more than {MAX_BYTES // _MIB} MiB."
    return ""


def prove_folder(folder: str, uri: str, open_other: OpenHost) -> FolderProof:
    """Return whether this host and the one of that URI see one folder, see L(prove_shared_folder)."""
    try:
        with contextlib.closing(open_other(uri)) as other:
            return prove_shared_folder(folder, other)
    except KvmfleetError as error:
        return FolderProof(UNPROVED, error.message)
