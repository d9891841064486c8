# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The processors of a fleet: which CPUs of guests are compared with each host, what the hosts have in common, and which guests use more than that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import (
    BaselineAnswer,
    BaselineQuestion,
    ComparedCpu,
    CpuFeatures,
    FleetAnswers,
    FleetQuestions,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict

from .._scheduler.fleet import HostState
from .._scheduler.fleet_guests import FleetGuests
from .._scheduler.hardware import PlatformKey
from .._scheduler.request import Request

# libvirt compares these, and no CPU that is passed through from the host.
_COMPARED_MODE = "custom"


@dataclass(frozen=True)
class ExceedingGuests:
    """Guests with CPU features that not all hosts have."""

    guests: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True)
class FleetCpu:
    """The best CPU that every host of a platform can give a guest.

    :arg hosts: those that were compared; C(unknown) are those of which libvirt's description is not known.
    :arg computed_by: the host whose libvirt has computed it.
    :arg problem: why there is none.
    """

    arch: str
    virt_type: str
    model: str | None
    xml: str | None
    hosts: tuple[str, ...]
    unknown: tuple[str, ...]
    computed_by: str | None
    exceeded_by: tuple[ExceedingGuests, ...]
    problem: str | None


def make_questions(view: FleetGuests) -> dict[str, FleetQuestions]:
    """Return what each host that answered is asked; one of them also computes what they have in common."""
    cpus = tuple(_list_cpus(view.requests))
    baselines: dict[str, list[BaselineQuestion]] = {}
    for key in _platforms_in_use(view):
        able = _hosts_with(view, key)
        if able:
            described = tuple(dict.fromkeys(text for name in able if (text := _description(view.fleet.states[name], key))))
            guests = tuple(dict.fromkeys(cpu.xml for cpu in cpus if (cpu.arch, cpu.virt_type) == key))
            baselines.setdefault(_choose_host(view, able), []).append(BaselineQuestion(*key, described, guests))
    answered = [name for name, state in view.fleet.states.items() if state.unanswered is None]
    return {name: FleetQuestions(cpus, tuple(baselines.get(name, ()))) for name in answered}


def _list_cpus(requests: Iterable[Request]) -> list[ComparedCpu]:
    return list(dict.fromkeys(cpu for cpu in map(_cpu_of, requests) if cpu))


def _cpu_of(request: Request) -> ComparedCpu | None:
    cpu = request.cpu
    if not (cpu and cpu.mode == _COMPARED_MODE and cpu.xml and request.arch and request.virt_type):
        return None
    return ComparedCpu(request.arch, request.virt_type, request.machine, cpu.xml)


def _platforms_in_use(view: FleetGuests) -> list[PlatformKey]:
    return sorted({(request.arch, request.virt_type) for request in view.requests if request.arch and request.virt_type})


def _description(state: HostState, key: PlatformKey) -> str | None:
    platform = (state.hardware.platforms or {}).get(key)
    return (platform.cpu.description or None) if platform and platform.cpu else None


def _hosts_with(view: FleetGuests, key: PlatformKey) -> list[str]:
    """Return the hosts that answered and have the platform, if libvirt has described its CPU there."""
    return sorted(name for name, state in view.fleet.states.items() if _description(state, key))


def _choose_host(view: FleetGuests, names: Sequence[str]) -> str:
    """Return the host with the oldest libvirt: a newer one may know models that it does not."""
    return min(names, key=lambda name: (view.fleet.states[name].hardware.libvirt or 0, name))


def read_comparisons(view: FleetGuests, answers: Mapping[str, FleetAnswers]) -> dict[str, dict[str, CpuVerdict]]:
    """Return the verdicts of each host, by the UUID of the guest."""
    numbers = {cpu: number for number, cpu in enumerate(_list_cpus(view.requests))}
    by_uuid = {request.uuid: numbers[cpu] for request in view.requests if (cpu := _cpu_of(request))}
    return {
        host: {uuid: verdict for uuid, number in by_uuid.items() if number < len(answer.verdicts) and (verdict := answer.verdicts[number])}
        for host, answer in answers.items()
    }


def describe_cpus(view: FleetGuests, answers: Mapping[str, FleetAnswers]) -> list[FleetCpu]:
    """Return the CPU that all hosts have in common, for each platform that guests use."""
    found = {(answer.arch, answer.virt_type): (host, answer) for host, given in answers.items() for answer in given.baselines}
    return [_describe_cpu(view, key, found.get(key)) for key in _platforms_in_use(view)]


def _describe_cpu(view: FleetGuests, key: PlatformKey, found: tuple[str, BaselineAnswer] | None) -> FleetCpu:
    hosts = _hosts_with(view, key)
    has_platform = [name for name, state in view.fleet.states.items() if state.unanswered is None and key in (state.hardware.platforms or {})]
    host, answer = found or (None, None)
    common = answer.common if answer else None
    problem = None if common else (answer.problem if answer else None) or "libvirt describes the CPU of no host that answered."
    exceeding = _find_exceeding(view, key, common, answer) if common and answer else ()
    unknown = tuple(sorted(set(has_platform) - set(hosts)))
    return FleetCpu(*key, common.model if common else None, common.xml if common else None, tuple(hosts), unknown, host, exceeding, problem)


def _find_exceeding(view: FleetGuests, key: PlatformKey, common: CpuFeatures, answer: BaselineAnswer) -> tuple[ExceedingGuests, ...]:
    """Return the guests with more features than all hosts have, those with the same features together."""
    texts = tuple(dict.fromkeys(cpu.xml for cpu in _list_cpus(view.requests) if (cpu.arch, cpu.virt_type) == key))
    features = dict(zip(texts, answer.guests, strict=False))
    groups: dict[tuple[str, ...], list[str]] = {}
    for request in view.requests:
        if (request.arch, request.virt_type) != key:
            continue
        beyond = set(_features_of(request, view, key, features)) - set(common.features)
        if beyond:
            groups.setdefault(tuple(sorted(beyond)), []).append(request.name)
    return tuple(ExceedingGuests(tuple(sorted(names)), beyond) for beyond, names in sorted(groups.items()))


def _features_of(request: Request, view: FleetGuests, key: PlatformKey, features: Mapping[str, tuple[str, ...] | None]) -> Iterable[str]:
    cpu = _cpu_of(request)
    if cpu:
        return features.get(cpu.xml) or ()
    # The CPU of the host was given to the guest.
    source = view.fleet.source_of(request)
    return source.hardware.cpu_features.get(key, ()) if source and request.cpu and request.cpu.mode else ()
