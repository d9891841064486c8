# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of C(fleet_check): compares the CPUs of guests with the host, and computes the CPU that several hosts have in common."""

from __future__ import annotations

import time
import typing as t

from .._libvirt.host import open_reader
from .._libvirt.interface import Host
from .._model.codec import Json, JsonObject, decode, encode
from .._model.errors import KvmfleetError
from .._model.facts import GuestPlatform
from .._model.fleet_cpus import BaselineAnswer, BaselineQuestion, ComparedCpu, FleetAnswers, FleetQuestions
from .._model.libvirt_formats import check_uri
from .._model.watched_moves import CpuVerdict
from .._module import Phase
from .._time_limits import limit_questions


@limit_questions
def answer_questions(uri: str, work: JsonObject) -> t.Dict[str, Json]:
    """Return C(answers) to the C(questions), a L(FleetQuestions). Changes nothing."""
    questions = decode(FleetQuestions, work["questions"])
    host = open_reader(check_uri(uri, "uri"))
    try:
        verdicts = tuple(_compare(host, cpu) for cpu in questions.cpus)
        baselines = tuple(find_baseline(host, question) for question in questions.baselines)
    finally:
        host.close()
    return {"changed": False, "answers": encode(FleetAnswers(time.time(), verdicts, baselines))}


def _compare(host: Host, cpu: ComparedCpu) -> t.Optional[CpuVerdict]:
    try:
        return host.compare_cpu(GuestPlatform(cpu.arch, cpu.virt_type, cpu.machine), cpu.xml)
    except KvmfleetError:
        return None


def find_baseline(host: Host, question: BaselineQuestion) -> BaselineAnswer:
    """Return what the hosts have in common, according to this one, and the features of the guests."""
    platform = GuestPlatform(question.arch, question.virt_type, None)
    guests = tuple(_list_guest_features(host, platform, cpu) for cpu in question.guests)
    try:
        return BaselineAnswer(question.arch, question.virt_type, host.baseline_cpu(platform, question.cpus), None, guests)
    except KvmfleetError as error:
        return BaselineAnswer(question.arch, question.virt_type, None, error.message, guests)


def _list_guest_features(host: Host, platform: GuestPlatform, xml: str) -> t.Optional[t.Tuple[str, ...]]:
    """Return every feature of a guest's CPU, also those that the host itself lacks, which libvirt disables when it computes the features."""
    try:
        cpu = host.baseline_cpu(platform, [xml])
    except KvmfleetError:
        return None
    return tuple(sorted({*cpu.features, *cpu.disabled}))


FLEET_PHASES: t.Dict[str, Phase] = {"answer": answer_questions}
