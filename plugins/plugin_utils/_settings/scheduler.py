# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The inventory variable kvmfleet_scheduler of a host: what the scheduler may use of the host, its labels, limits and weights, and which filters judge it."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, field, replace

from ansible.module_utils.common.validation import check_type_bool

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

SCHEDULER_VARIABLE = "kvmfleet_scheduler"
DEFAULT_WEIGHTS: t.Final[Mapping[str, float]] = {"free_memory": 1.0, "free_cpu": 1.0, "soft_groups": 1.0, "moves": -1.0}

MAX_MOVES = "max_moves"
# Every filter of the scheduler, in its order, with the reason why it cannot be switched off; empty for one that can be.
FILTERS: t.Final[Mapping[str, str]] = {
    "not_source": "a guest cannot move to the host that it runs on",
    "up": "nothing is known of a host that does not answer, and the guest may be running there",
    "enabled": "a host that is fenced or in maintenance may be switched off at any time, with its guests; enable the host instead (kvmfleet.migration.host)",
    "memory": "a host without memory kills guests; set ram_allocation_ratio and reserved_memory_mib instead",
    "cpus": "",
    "disk": "a file system that runs full stops the guests that write to it; set disk_allocation_ratio instead",
    "traits": "",
    "cpu_model": "a guest crashes on a processor that lacks what it uses",
    "cpu_threads": "libvirt refuses such a guest on arrival",
    "machine_type": "a guest cannot run on a machine type that its host does not have",
    "hypervisor": "an older QEMU may misread the state of a guest; use force for a single move",
    "one_way": "",
    "numa": "a guest that is bound to a cell without memory is killed",
    "hugepages": "a guest is killed when its host has no huge page left",
    "host_devices": "another device at the same address may belong to another guest, or have its data",
    "storage": "without its own disks a guest writes to other data, or to none",
    "boot_files": "a guest without its firmware or its variables does not start again",
    "firmware": "a guest without its firmware or its variables does not start again",
    "tpm": "a guest without its TPM does not start, and loses what is sealed in it",
    "secrets": "",
    "resource_maps": "what has no name there would be replaced by something else; complete the maps of both hosts instead",
    "networks": "",
    "labels": "",
    "max_domains": "",
    MAX_MOVES: "",
    "affinity": "",
    "anti_affinity": "",
    "migratable": "what libvirt and QEMU cannot move is lost or damaged",
}

_MAX_NUMBER = 1e9
# The loss of more hosts at the same time is not judged: the number of sets of hosts grows too steeply.
MOST_FAILOVER_HOSTS: t.Final = 4


@dataclass(frozen=True)
class Limits:
    """The maximum number of active domains of a host, of its simultaneous moves, and of those of the whole fleet; None means no limit."""

    domains: t.Optional[int] = None
    moves_in: t.Optional[int] = None
    moves_out: t.Optional[int] = None
    moves_total: t.Optional[int] = None


@dataclass(frozen=True)
class SchedulerSettings:
    """The share of a host that guests may use, its labels, and its weights. Ratios as in Nova.

    :arg reserved_memory_mib: for the host itself, beside huge pages.
    :arg filters_off: names of the filters that do not judge the host.
    :arg failover_hosts: how many hosts the fleet has to be able to lose, see L(count_failover_hosts).
    """

    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_memory_mib: int = 512
    reserved_cpus: int = 0
    labels: frozenset[str] = frozenset()
    limits: Limits = Limits()
    weights: Mapping[str, float] = field(default_factory=lambda: DEFAULT_WEIGHTS, hash=False)
    filters_off: frozenset[str] = frozenset()
    failover_hosts: int = 0

    @classmethod
    def from_variable(cls, value: Json, host: str) -> SchedulerSettings:
        """Return the settings of a host. Raises L(InvalidArgument) naming variable, host, value and what is allowed."""
        return _merge_settings(cls(), value, SCHEDULER_VARIABLE, f" of {host}")

    def with_task(self, value: Json) -> SchedulerSettings:
        """Return these settings with those of a task's C(scheduler) over them, limits, weights and filters one by one. Raises L(InvalidArgument)."""
        return _merge_settings(self, value, "scheduler", "")

    def as_json(self) -> JsonObject:
        """Return the settings as a plan keeps them; only those filters that are switched off, and C(failover_hosts) only if it is set."""
        found = {**asdict(self), "labels": sorted(self.labels), "weights": dict(self.weights)}
        del found["filters_off"]
        if not self.failover_hosts:
            del found["failover_hosts"]
        return {**found, "filters": dict.fromkeys(sorted(self.filters_off), False)} if self.filters_off else found

    @property
    def move_limits(self) -> Limits:
        """The limits, without those of its own moves if the filter of these is switched off."""
        return replace(self.limits, moves_in=None, moves_out=None) if MAX_MOVES in self.filters_off else self.limits


def count_failover_hosts(settings: Iterable[SchedulerSettings]) -> int:
    """Return how many hosts the fleet has to be able to lose: the largest number that one of its hosts has."""
    return max((one.failover_hosts for one in settings), default=0)


def check_failover_hosts(count: int, hosts: int) -> None:
    """Raise L(InvalidArgument) unless hosts would be left.

    :arg hosts: the number of hosts of the fleet.
    """
    if count and count >= hosts:
        raise InvalidArgument(
            f"{SCHEDULER_VARIABLE}.failover_hosts is {count}, and the fleet has {hosts} {'host' if hosts == 1 else 'hosts'}.",
            "Give the number of hosts that the fleet has to be able to lose at the same time, less than it has. Nothing was moved.",
        )


def _merge_settings(base: SchedulerSettings, value: Json, variable: str, whose: str) -> SchedulerSettings:
    if value is None:
        return base
    changes: dict[str, t.Any] = {}
    for key, given in _checked_keys(value, _VALUE_READERS, variable, whose).items():
        name = f"{variable}.{key}"
        if key == "limits":
            limits: dict[str, t.Any] = {**_read_members(given, dict.fromkeys(asdict(Limits()), _read_limit), name, whose)}
            changes[key] = replace(base.limits, **limits)
        elif key == "weights":
            changes[key] = {**base.weights, **_read_members(given, dict.fromkeys(DEFAULT_WEIGHTS, _read_weight), name, whose)}
        elif key == "filters":
            switches = _read_filters(given, name, whose)
            changes["filters_off"] = frozenset(one for one in FILTERS if not switches.get(one, one not in base.filters_off))
        else:
            changes[key] = _VALUE_READERS[key](given, name, whose)
    return replace(base, **changes)


def _read_members(value: Json, readers: Mapping[str, Reader], variable: str, whose: str) -> dict[str, Setting]:
    given = {} if value is None else _checked_keys(value, readers, variable, whose)
    return {key: readers[key](item, f"{variable}.{key}", whose) for key, item in given.items()}


def _read_filters(value: Json, variable: str, whose: str) -> dict[str, bool]:
    """Return which filters are on. Raises L(InvalidArgument) for an unknown filter, and for one that cannot be switched off, with the reason."""
    switches = {name: bool(on) for name, on in _read_members(value, dict.fromkeys(FILTERS, _read_switch), variable, whose).items()}
    kept = [f"{name} ({FILTERS[name]})" for name, on in switches.items() if not on and FILTERS[name]]
    if kept:
        optional = ", ".join(name for name, why in FILTERS.items() if not why)
        raise InvalidArgument(
            f"{variable}{whose} switches off what protects data or the life of a guest: {', '.join(kept)}.",
            f"Leave these filters on. Filters that can be switched off are: {optional}.",
        )
    return switches


def _checked_keys(value: Json, known: Mapping[str, Reader], variable: str, whose: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise _invalid_value(variable, whose, value, "a dictionary")
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise InvalidArgument(f"{variable}{whose} has unknown keys: {', '.join(unknown)}.", f"Valid names are: {', '.join(known)}.")
    return value


def _invalid_value(variable: str, whose: str, value: Json, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{variable}{whose} is {value!r}.", f"Give {allowed}.")


def _read_number(value: Json) -> float:
    """Return the number, or not-a-number; a templated value may be text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if abs(number) <= _MAX_NUMBER else math.nan


def _read_ratio(value: Json, variable: str, whose: str) -> float:
    number = _read_number(value)
    if not number > 0:
        raise _invalid_value(variable, whose, value, "a number above 0, such as 1.0")
    return number


def _read_weight(value: Json, variable: str, whose: str) -> float:
    number = _read_number(value)
    if math.isnan(number):
        raise _invalid_value(variable, whose, value, "a number; 0 ignores the weigher, a negative number reverses it")
    return number


def _read_whole(value: Json, variable: str, whose: str) -> int:
    number = _read_number(value)
    if not number >= 0 or number != int(number):
        raise _invalid_value(variable, whose, value, "a whole number that is not negative")
    return int(number)


def _read_failover_hosts(value: Json, variable: str, whose: str) -> int:
    number = _read_number(value)
    if not 0 <= number <= MOST_FAILOVER_HOSTS or number != int(number):
        raise _invalid_value(variable, whose, value, f"a whole number from 0 to {MOST_FAILOVER_HOSTS}: how many hosts the fleet has to be able to lose")
    return int(number)


def _read_limit(value: Json, variable: str, whose: str) -> t.Optional[int]:
    return None if value is None else _read_whole(value, variable, whose)


def _read_switch(value: Json, variable: str, whose: str) -> bool:
    try:
        return bool(check_type_bool(value))
    except (TypeError, ValueError):
        raise _invalid_value(variable, whose, value, "true or false") from None


def _read_labels(value: Json, variable: str, whose: str) -> frozenset[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(label, str) and label for label in value):
        raise _invalid_value(variable, whose, value, "a list of labels")
    return frozenset(value)


Setting = t.Union[float, frozenset[str], None]
Reader = Callable[[Json, str, str], Setting]

_VALUE_READERS: t.Final[Mapping[str, Reader]] = {
    "cpu_allocation_ratio": _read_ratio,
    "ram_allocation_ratio": _read_ratio,
    "disk_allocation_ratio": _read_ratio,
    "reserved_memory_mib": _read_whole,
    "reserved_cpus": _read_whole,
    "labels": _read_labels,
    "limits": _read_limit,
    "weights": _read_weight,
    "filters": _read_switch,
    "failover_hosts": _read_failover_hosts,
}
