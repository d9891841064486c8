# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The phases that survey hosts for the control node: C(scheduler_check) only reads, over any URI; C(live_migrate) prepares moves on their source host."""

from __future__ import annotations

import dataclasses
import functools
import os
import typing as t

from .._libvirt.host import LibvirtHost, open_host, open_reader
from .._libvirt.values import Image
from .._live_watchers import is_alive
from .._migration.shared_storage import inspect_images
from .._model.codec import ABSENT, Json, JsonObject, decode, encode
from .._model.libvirt_formats import check_uri, is_local
from .._model.watched_moves import (
    Survey,
    SurveyedDomain,
    SurveyQuestion,
    WatchReport,
    read_watcher,
)
from .._module import Result, is_root, require_local, require_root
from .._run_folder import read_json, state_path
from .._time_limits import limit_questions
from .gather import gather_facts
from .qemu_process import is_program_replaced, read_memory_lock
from .storage_queries import StorageQueries
from .survey import OpenSurveyedHost, survey_hosts


def survey_moves(uri: str, questions: t.Sequence[SurveyQuestion], may_examine: bool, open_host: OpenSurveyedHost[LibvirtHost]) -> Survey:
    """Return what L(survey_hosts) finds for these moves.

    :arg uri: of the host that the moves start from.
    :arg may_examine: whether the storage of both hosts may be tested if a move copies disks; this requires root and a local URI.
    :arg open_host: opens the hosts to act on them, or only to read them.
    """
    storage = StorageQueries() if is_local(uri) else None
    source = open_host(uri)
    try:
        return survey_hosts(
            source,
            questions,
            open_host,
            lambda path: storage is not None and storage.is_on_shared_mount(path),
            lambda host: gather_facts(host)[0],
            _inspect_images if may_examine else None,
        )
    finally:
        source.close()


def _inspect_images(uuid: str, source: LibvirtHost, destination: LibvirtHost) -> t.Sequence[JsonObject]:
    return inspect_images(count_images_below(source.list_images(uuid)), destination)


def count_images_below(images: t.Sequence[Image]) -> t.List[Image]:
    """Return the images of a domain of this host with the size of what they are built on: a full copy has the data of the whole chain."""
    below = {path for image in images for path in image.backing}
    sizes = StorageQueries().ask_each({path: functools.partial(_count_allocated, path) for path in below if path}) if below else {}
    return [dataclasses.replace(image, below_bytes=_sum_known([sizes.get(path) for path in image.backing])) for image in images]


def _count_allocated(path: str) -> int:
    return os.stat(path).st_blocks * 512


def _sum_known(sizes: t.Sequence[t.Optional[int]]) -> t.Optional[int]:
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


class _SurveyCandidates(t.TypedDict):
    """The input of L(survey_candidates)."""

    wanted: Json


@limit_questions
def survey_candidates(uri: str, work: _SurveyCandidates) -> t.Dict[str, Json]:
    """Return the C(survey) of what C(work["wanted"]) names."""
    may_examine = is_local(check_uri(uri, "uri")) and is_root()
    questions = [decode(SurveyQuestion, work["wanted"], "wanted")]
    return {"changed": False, "survey": encode(survey_moves(uri, questions, may_examine, open_reader))}


class _PrepareMoves(t.TypedDict):
    """The input of L(prepare_moves)."""

    wanted: t.Sequence[Json]


@limit_questions
def prepare_moves(uri: str, work: _PrepareMoves) -> Result:
    """Survey source and destinations of the moves in C(work["wanted"]), with what a watcher has written about each. Changes nothing."""
    require_root()
    questions = [decode(SurveyQuestion, question, "wanted") for question in work["wanted"]]
    return {"changed": False, "survey": encode(survey_watched_moves(uri, questions))}


def survey_watched_moves(uri: str, questions: t.Sequence[SurveyQuestion]) -> Survey:
    """Return the survey of these moves away from this host, with what a watcher has written about each."""
    found = survey_moves(require_local(uri), questions, may_examine=True, open_host=open_host)
    domains = tuple(add_watch(domain, question) for domain, question in zip(found.domains, questions))
    return dataclasses.replace(found, domains=domains)


def add_watch(domain: SurveyedDomain, question: SurveyQuestion) -> SurveyedDomain:
    """Return the domain with the state of its last move on this host, and with what matters of its QEMU process."""
    uuids = [domain.uuid] if domain.uuid else question.uuids
    memory_lock = read_memory_lock(domain.at_source.name) if domain.at_source else None
    return dataclasses.replace(
        domain,
        watch=next(filter(None, map(_read_watch, uuids)), None),
        memory_lock_bytes=ABSENT if memory_lock is None else memory_lock,
        qemu_replaced=ABSENT if domain.at_source is None else is_program_replaced(domain.at_source.name),
    )


def _read_watch(uuid: str) -> t.Optional[WatchReport]:
    state = read_json(state_path(uuid))
    if not isinstance(state, dict):
        return None
    return WatchReport(state, is_alive(read_watcher(state.get("watcher"))))


PHASES: t.Dict[str, t.Callable[..., t.Dict[str, Json]]] = {"survey": survey_candidates}
