# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Migration policies: the values that a move was given, the limits that follow for a guest of its size, and the valid values.

A record keeps the given values. Limits are resolved from them once, see L(ResolvedPolicy).
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import Json, JsonObject
from .errors import InvalidArgument

ABORT, FORCE_COMPLETE = "abort", "force_complete"
STEPPED, ADAPTIVE = "stepped", "adaptive"
# The two features of which a move may use one. A domain may forbid each of them.
FEATURES = ("auto_converge", "post_copy")
OVERRIDE = "override_policy"
TIMEOUT = "timeout_seconds"
SOURCE_TASK, SOURCE_DOMAIN, SOURCE_PROFILE, SOURCE_HOST, SOURCE_DEFAULT = "task", "domain", "profile", "host", "default"

PolicyScalar = t.Union[None, bool, int, str]
# The seconds since the start, and the downtime in milliseconds that is allowed from then on.
DowntimeStep = t.Tuple[float, int]


@dataclass(frozen=True)
class GivenPolicy:
    """What a move was given: each option by the most important source that has it, or by its default.

    :arg timeout_given: the option C(timeout_seconds); 0 is no limit, null leaves the limit to the size of the guest and C(timeout_seconds_per_gib).
    :arg sources: the source of each option, by the name of the option; one that a record does not have has none.
    :arg is_override: whether the task overrules a veto of the domain.
    """

    timeout_given: t.Optional[int] = None
    timeout_seconds_per_gib: int = 800
    on_timeout: str = ABORT
    stall_seconds: int = 60
    downtime_ms: int = 500
    downtime_steps: int = 10
    downtime_delay_seconds_per_gib: int = 75
    downtime_strategy: str = ADAPTIVE
    force_suspend_seconds: int = 10
    force_pause_max_seconds: int = 30
    auto_converge: bool = False
    post_copy: bool = False
    sources: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_override: bool = False

    def value_of(self, option: str) -> PolicyScalar:
        """Return the value of an option by its name."""
        value: PolicyScalar = getattr(self, _field_of(option))
        return value

    def source_of(self, option: str) -> str:
        """Return the source of an option."""
        return self.sources.get(option, SOURCE_DEFAULT)

    @property
    def features(self) -> t.List[str]:
        """The features that are on."""
        return [feature for feature in FEATURES if self.value_of(feature)]

    @property
    def has_preference(self) -> bool:
        """Whether both features are on as defaults of the host: post-copy is used where both hosts can, else auto-converge."""
        return has_both_features(self.features) and all(self.source_of(feature) == SOURCE_HOST for feature in FEATURES)

    @property
    def required_features(self) -> t.List[str]:
        """The features that both hosts must have; a preference requires none."""
        return [] if self.has_preference else self.features

    def as_json(self) -> t.Dict[str, Json]:
        """Return C({option: {value, source}}), as records keep it."""
        written: t.Dict[str, Json] = {option: {"value": self.value_of(option), "source": source} for option, source in self.sources.items()}
        return {**written, OVERRIDE: {"value": True, "source": SOURCE_TASK}} if self.is_override else written


@dataclass(frozen=True)
class ResolvedPolicy:
    """The limits of a move of a guest of one size.

    :arg timeout_seconds: the limit of the whole move; 0 means no limit.
    :arg ramp: the downtime that is allowed, by the seconds since the start; the last step is the full downtime.
    """

    timeout_seconds: int
    on_timeout: str
    stall_seconds: int
    downtime_ms: int
    downtime_strategy: str
    ramp: t.Tuple[DowntimeStep, ...]

    @property
    def is_forced_on_timeout(self) -> bool:
        """Whether a move that reaches its limit is forced to its end, and not aborted."""
        return self.on_timeout == FORCE_COMPLETE

    @property
    def is_stepped(self) -> bool:
        """Whether the downtime follows the ramp; otherwise it follows what the guest's memory does."""
        return self.downtime_strategy == STEPPED

    @property
    def full_downtime_from_seconds(self) -> float:
        """The latest time at which the full downtime is allowed, in seconds since the start; 0 without a limit."""
        return self.timeout_seconds / 2


def _field_of(option: str) -> str:
    return "timeout_given" if option == TIMEOUT else option


def _option_of(field: str) -> str:
    return TIMEOUT if field == "timeout_given" else field


_FIELDS = tuple(field.name for field in dataclasses.fields(GivenPolicy) if field.name not in ("sources", "is_override"))
DEFAULTS: t.Dict[str, PolicyScalar] = {_option_of(name): getattr(GivenPolicy(), name) for name in _FIELDS}


def given_policy(values: t.Mapping[str, PolicyScalar], sources: t.Mapping[str, str], is_override: bool = False) -> GivenPolicy:
    """Return the policy with these values, by the names of the options; the others have their defaults."""
    fields: t.Dict[str, t.Any] = {_field_of(option): value for option, value in values.items()}
    return GivenPolicy(sources=sources, is_override=is_override, **fields)


def read_given_policy(document: JsonObject) -> GivenPolicy:
    """Return the policy that a record keeps. An option that it does not have, or that cannot be its value, has its default."""
    values, sources = {}, {}
    for option, default in DEFAULTS.items():
        entry = document.get(option)
        if isinstance(entry, t.Mapping) and _is_like(entry.get("value", default), default):
            values[option] = t.cast(PolicyScalar, entry.get("value", default))
            sources[option] = str(entry.get("source", SOURCE_DEFAULT))
    return given_policy(values, sources, OVERRIDE in document)


def _is_like(value: Json, default: PolicyScalar) -> bool:
    """Whether a value has the type of the option's default. If the default is null, it is a number."""
    if default is None:
        return value is None or (isinstance(value, int) and not isinstance(value, bool))
    return type(value) is type(default)


STRATEGIES = (STEPPED, ADAPTIVE)
STRATEGY = "downtime_strategy"

# The trait that a host must have for each feature; the names are those of OpenStack.
TRAITS = {"auto_converge": "COMPUTE_MIGRATE_AUTO_CONVERGE", "post_copy": "COMPUTE_MIGRATE_POST_COPY"}

# Lowest and highest value. Libvirt refuses a downtime of more than 2,000,000 ms.
WEEK_SECONDS = 7 * 24 * 3600
_VALUE_LIMITS: t.Dict[str, t.Tuple[int, int]] = {
    "timeout_seconds": (0, WEEK_SECONDS),
    "timeout_seconds_per_gib": (1, WEEK_SECONDS),
    "stall_seconds": (0, WEEK_SECONDS),
    "downtime_ms": (1, 2_000_000),
    "downtime_steps": (1, 1000),
    "downtime_delay_seconds_per_gib": (0, WEEK_SECONDS),
    "force_suspend_seconds": (0, WEEK_SECONDS),
    "force_pause_max_seconds": (1, WEEK_SECONDS),
}
_VALUE_CHOICES = {"on_timeout": (ABORT, FORCE_COMPLETE), STRATEGY: STRATEGIES}


def features_in(values: JsonObject) -> t.List[str]:
    """Return the features that plain values switch on, e.g. those of a domain."""
    return [feature for feature in FEATURES if values.get(feature) is True]


def has_both_features(features: t.Collection[str]) -> bool:
    """Whether both features are on."""
    return len(features) == len(FEATURES)


def required_traits(features: t.Collection[str]) -> t.List[str]:
    """Return the traits that both hosts need for these features."""
    return [trait for feature, trait in TRAITS.items() if feature in features]


def check_policy_value(field: str, given: Json, source: str) -> None:
    """Raise L(InvalidArgument) if that cannot be the field's value."""
    if field in _VALUE_CHOICES and given not in _VALUE_CHOICES[field]:
        raise InvalidArgument(f"{field} is {given!r} ({source}).", f"Give one of: {', '.join(_VALUE_CHOICES[field])}.")
    if isinstance(DEFAULTS.get(field), bool) and not isinstance(given, bool):
        raise InvalidArgument(f"{field} is {given!r} ({source}), which is neither true nor false.")
    if field not in _VALUE_LIMITS or given is None:
        return
    low, high = _VALUE_LIMITS[field]
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise InvalidArgument(f"{field} is {given!r} ({source}).", f"Give a whole number from {low} to {high}.")


# The fields about the moves of a domain; the names are those of C(_migration/policy.py).
MOVE_FIELDS = ("auto_converge", "post_copy", "timeout_seconds", "on_timeout", "downtime_ms", "force_pause_max_seconds")

# What a drain can do with a domain.
MIGRATE, SAVE, SHUTDOWN, LEAVE = "migrate", "save", "shutdown", "leave"
DRAIN_STRATEGIES = (MIGRATE, SAVE, SHUTDOWN, LEAVE)

# The fields about the placement of a domain, with their defaults.
PLACEMENT_DEFAULTS: t.Dict[str, Json] = {"priority": 0, "drain": MIGRATE, "group": None, "labels": []}

PROFILE = "profile"
POLICY_FIELDS = (*MOVE_FIELDS, *PLACEMENT_DEFAULTS, PROFILE)
# A profile has the same fields, and names no further profile.
PROFILE_FIELDS = (*MOVE_FIELDS, *PLACEMENT_DEFAULTS)

BOOLEAN_FIELDS = ("auto_converge", "post_copy")
NUMBER_FIELDS = ("timeout_seconds", "downtime_ms", "force_pause_max_seconds", "priority")

TIMEOUT_ACTIONS = (ABORT, FORCE_COMPLETE)
ANTI_AFFINITY = ("anti-affinity", "soft-anti-affinity")
GROUP_POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")

MAX_PRIORITY = 1000
_MAX_GROUP_SIZE = 10000
_MAX_NAME = 64
_MAX_LABELS = 64


def check_field(name: str, value: Json) -> None:
    """Raise L(InvalidArgument) if that cannot be the field's value."""
    if name in MOVE_FIELDS:
        check_policy_value(name, value, "the domain's policy")
    elif name == "priority":
        _check_number(name, value, -MAX_PRIORITY, MAX_PRIORITY)
    elif name == "drain":
        check_strategies(name, value)
    elif name == "group":
        _check_domain_group(value)
    elif name == "labels":
        _check_labels(value)
    else:
        _check_name(name, value)


def check_fields(values: JsonObject, known: t.Sequence[str], where: str) -> None:
    """Raise L(InvalidArgument), which names C(where), for an unknown field or an invalid value. Null values are ignored."""
    for name, value in values.items():
        if name not in known:
            raise InvalidArgument(f"{where} has {name!r}, which is not a field of a policy.", f"Valid names are: {', '.join(known)}.")
        if value is None:
            continue
        try:
            check_field(name, value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error.message}", error.next_step) from error


def list_strategies(drain: Json) -> t.Tuple[str, ...]:
    """Return the strategies of a valid value of the field C(drain), the preferred one first."""
    return (drain,) if isinstance(drain, str) else tuple(str(strategy) for strategy in t.cast(t.Sequence[Json], drain))


def strategies_value(strategies: t.Sequence[str]) -> Json:
    """Return the value of the field C(drain) with these strategies: a single one is text, as it was before the field took several."""
    return strategies[0] if len(strategies) == 1 else list(strategies)


def check_strategies(name: str, value: Json) -> None:
    """Raise L(InvalidArgument) if that is neither a strategy nor a list of them. A strategy after C(leave) could never be used."""
    given = value if isinstance(value, (list, tuple)) else [value]
    known = ", ".join(DRAIN_STRATEGIES)
    if not given:
        raise InvalidArgument(f"{name} is an empty list.", f"Give at least one of: {known}.")
    for strategy in given:
        _check_choice(name, strategy, DRAIN_STRATEGIES)
    if len(set(given)) < len(given):
        raise InvalidArgument(f"{name} is {value!r}, which has a strategy twice.", "Give each strategy once, the preferred one first.")
    if LEAVE in given[:-1]:
        raise InvalidArgument(f"{name} is {value!r}.", f"Give {LEAVE} last: it is always possible, so nothing after it would be used.")


def _check_number(name: str, value: Json, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(f"{name} is {value!r}.", f"Give a whole number from {low} to {high}.")


def _check_choice(name: str, value: Json, choices: t.Sequence[str]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{name} is {value!r}.", f"Give one of: {', '.join(choices)}.")


def _check_name(what: str, value: Json) -> None:
    if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable() or len(value) > _MAX_NAME:
        raise InvalidArgument(f"{what} is {value!r}, which cannot be a name.", f"Give at most {_MAX_NAME} printable characters.")


def _check_domain_group(value: Json) -> None:
    if not isinstance(value, dict) or not {"name", "policy"} <= set(value) <= {"name", "policy", "max_per_host"}:
        raise InvalidArgument(f"group is {value!r}.", "Give it a name and a policy; max_per_host is optional.")
    _check_name("The group's name", value["name"])
    _check_choice("The group's policy", value["policy"], GROUP_POLICIES)
    if value.get("max_per_host") is None:
        return
    _check_number("The group's max_per_host", value["max_per_host"], 1, _MAX_GROUP_SIZE)
    if value["policy"] not in ANTI_AFFINITY:
        raise InvalidArgument(f"max_per_host is set with the group policy {value['policy']}.", f"Only {' and '.join(ANTI_AFFINITY)} have it.")


def _check_labels(value: Json) -> None:
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_LABELS:
        raise InvalidArgument(f"labels is {value!r}.", f"Give a list of at most {_MAX_LABELS} labels.")
    for label in value:
        _check_name("A label", label)


NO_COPY = "none"
INCREMENTAL = "incremental"
COPY_MODES = (NO_COPY, "auto", "full", INCREMENTAL)
# The words of virsh migrate (--copy-storage-all, --copy-storage-inc).
_COPY_MODES_OF_VIRSH: t.Final = {"all": "full", "inc": "incremental"}
COPY_CHOICES = (*COPY_MODES, *_COPY_MODES_OF_VIRSH)
COMPRESSIONS = ("xbzrle", "zlib", "zstd")


def read_copy_mode(choice: t.Optional[str]) -> str:
    """Return the mode of C(COPY_MODES) that a choice of the option C(copy_storage) means."""
    return _COPY_MODES_OF_VIRSH.get(choice, choice) if choice else NO_COPY
