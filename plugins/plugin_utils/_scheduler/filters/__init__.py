# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The rules that say whether a host can take a domain. Each gives its reason in words that a person understands."""

from __future__ import annotations

import typing as t

from .base import Filter, Finding, concerned
from .boot_files import BootFiles
from .cpu_model import CpuModel
from .cpu_threads import CpuThreads
from .disk import Disk
from .groups import Affinity, AntiAffinity
from .host_devices import HostDevices
from .hugepages import Hugepages
from .inventory import Labels, MaxDomains, MaxMoves
from .migratable import Migratable
from .networks import Networks
from .numa import Numa
from .place import Enabled, NotSource, Up
from .room import Cpus, Memory
from .storage import Storage
from .traits import Traits
from .versions import Hypervisor, MachineType

DEFAULT: t.Final[tuple[Filter, ...]] = (
    NotSource(),
    Up(),
    Enabled(),
    Memory(),
    Cpus(),
    Disk(),
    Traits(),
    CpuModel(),
    CpuThreads(),
    MachineType(),
    Hypervisor(),
    Numa(),
    Hugepages(),
    HostDevices(),
    Storage(),
    BootFiles(),
    Networks(),
    Labels(),
    MaxDomains(),
    MaxMoves(),
    Affinity(),
    AntiAffinity(),
    Migratable(),
)

__all__ = ["DEFAULT", "Filter", "Finding", "concerned"]
