# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a fleet check asks hosts about processors, and their answers."""

from __future__ import annotations

import typing as t

from .._dataclass import dataclass
from .watched_moves import CpuVerdict


@dataclass(frozen=True)
class ComparedCpu:
    """The CPU of guests, and the platform that it is compared for."""

    arch: str
    virt_type: str
    machine: t.Optional[str]
    xml: str


@dataclass(frozen=True)
class CpuFeatures:
    """A CPU as libvirt computes it from others.

    :arg xml: the CPU for the definition of a guest.
    :arg features: every feature that it has; C(disabled) are those of its model that it lacks.
    """

    model: t.Optional[str]
    xml: str
    features: t.Tuple[str, ...]
    disabled: t.Tuple[str, ...]


@dataclass(frozen=True)
class BaselineQuestion:
    """What the hosts of a platform have in common, asked of one of them.

    :arg cpus: libvirt's description of the best CPU of each host.
    :arg guests: the CPUs of guests, whose features are computed too.
    """

    arch: str
    virt_type: str
    cpus: t.Tuple[str, ...]
    guests: t.Tuple[str, ...]


@dataclass(frozen=True)
class BaselineAnswer:
    """The answer to a L(BaselineQuestion).

    :arg common: null if libvirt found none; C(problem) is why.
    :arg guests: every feature of each guest's CPU, null where libvirt does not know.
    """

    arch: str
    virt_type: str
    common: t.Optional[CpuFeatures]
    problem: t.Optional[str]
    guests: t.Tuple[t.Optional[t.Tuple[str, ...]], ...]


@dataclass(frozen=True)
class FleetQuestions:
    """What one host is asked."""

    cpus: t.Tuple[ComparedCpu, ...]
    baselines: t.Tuple[BaselineQuestion, ...]


@dataclass(frozen=True)
class FleetAnswers:
    """The answer of one host.

    :arg seconds: the Unix time by its own clock.
    :arg verdicts: one for each CPU; null where libvirt cannot compare.
    """

    seconds: float
    verdicts: t.Tuple[t.Optional[CpuVerdict], ...]
    baselines: t.Tuple[BaselineAnswer, ...]
