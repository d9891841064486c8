# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The fencing of a host: the inventory variable kvmfleet_fencing and the options of its fence agent, read and checked.

Options are written to the standard input of the agent in the form of the ClusterLabs fence agent API (FenceAgentAPI.md).
"""

from __future__ import annotations

import os
import re
import typing as t
import unicodedata
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .._settings.options import read_text
from .sbd_disks import SbdDisks, parse_disks

MAX_OPTIONS_BYTES = 8 * 1024
_OPTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_SECRET_NAME = re.compile(r"pass|secret|token|key|community|credential", re.IGNORECASE)
_SWITCHES = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off"})
_RESERVED_OPTIONS = frozenset({"action", "option", "o"})
# With this option, an agent reports a missing plug as off.
_GUESSING_OPTIONS = frozenset({"missing_as_off"})
# Some agents split lines at all of these, not at newlines alone.
_LINE_BREAKERS = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True)
class AgentOption:
    """One option; a secret value is never shown."""

    name: str
    value: str
    secret: bool

    def __repr__(self) -> str:
        return f"Option({self.name})"


def parse_options(given: Json, where: str) -> tuple[AgentOption, ...]:
    """Return the options of an agent.

    :arg given: name to value; a value is text, a number, a boolean (1 or 0 for the agent), or C({value: ..., secret: true}).
    :arg where: the host of the options, for messages, which never show a value.
    :raises InvalidArgument: they are invalid, or one of them is reserved.
    """
    if not isinstance(given, t.Mapping):
        raise InvalidArgument(f"{where}: its options are not a dictionary.", "Give the agent's options as names and values.")
    options = tuple(_parse_option(name, value, where) for name, value in given.items())
    if len(format_options("status", options)) > MAX_OPTIONS_BYTES:
        raise InvalidArgument(f"{where}: its options are longer than {MAX_OPTIONS_BYTES} bytes.")
    return options


def _parse_option(name: Json, given: Json, where: str) -> AgentOption:
    if not isinstance(name, str) or not _OPTION_NAME.fullmatch(name):
        raise InvalidArgument(f"{where}: an option has a name that no agent knows.", "Names are letters, digits and any of _ . - after a letter.")
    _check_allowed(name, where)
    value, declared = given, False
    if isinstance(given, t.Mapping):
        secret = given.get("secret", False)
        if "value" not in given or set(given) - {"value", "secret"} or not isinstance(secret, bool):
            raise InvalidArgument(f"{where}: its option {name} is a dictionary, but not one of value and secret.")
        value, declared = given["value"], secret
    text = _option_text(value, name, where)
    guessed = bool(_SECRET_NAME.search(name)) and text.lower() not in _SWITCHES
    return AgentOption(name, text, declared or guessed)


def _check_allowed(name: str, where: str) -> None:
    plain = name.lower().replace("-", "_")
    if plain in _RESERVED_OPTIONS:
        raise InvalidArgument(f"{where}: its option {name} is not for the inventory.", "The action of an agent is always off or status. Remove the option.")
    if plain in _GUESSING_OPTIONS:
        raise InvalidArgument(f"{where}: its option {name} would report a host as off if the agent does not find it.", "Remove it.")


def _option_text(value: Json, name: str, where: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    if value is None:
        raise InvalidArgument(f"{where}: its option {name} has no value.", "Remove options that have no value.")
    try:
        # A vaulted value becomes a str only on conversion; an empty text is a value.
        text = read_text(value, name, where) or ""
    except InvalidArgument:
        raise InvalidArgument(f"{where}: its option {name} is neither text nor a number nor a boolean.") from None
    if any(unicodedata.category(character) in _LINE_BREAKERS for character in text):
        raise InvalidArgument(f"{where}: its option {name} holds a line break or another control character.", "An option is one line.")
    return text


def format_options(action: str, options: t.Iterable[AgentOption]) -> bytes:
    """Return the standard input of an agent."""
    return "".join([f"action={action}\n", *(f"{option.name}={option.value}\n" for option in options)]).encode()


VARIABLE = "kvmfleet_fencing"
_DEVICE_KEYS = ("agent", "options", "timeout_seconds", "status_timeout_seconds")
FENCING_KEYS = (*_DEVICE_KEYS, "ttl_seconds", "levels", "watchdog_seconds")
TIMEOUT_SECONDS = 60
STATUS_TIMEOUT_SECONDS = 20
TTL_SECONDS = 300
MAX_SECONDS = 3600
MAX_LEVELS = 9
MAX_DEVICES = 8
# The search path for an agent, and for the programs that it runs.
AGENT_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AGENT_NAME = re.compile(r"fence_[A-Za-z0-9_.-]+")
# These agents only observe: they switch no host off.
_OBSERVING_AGENTS = frozenset({"fence_heuristics_ping", "fence_kdump"})
# These agents report an outlet that the device does not have as off, unless they speak version 1 of SNMP, or look the outlet up by its name.
_GUESSING_AGENTS = frozenset({"fence_apc_snmp", "fence_tripplite_snmp"})
# The status of these agents is "off" as soon as a message is written, whether the host has read it or not.
_MESSAGE_AGENTS = frozenset({"fence_sbd"})


@dataclass(frozen=True)
class FenceDevice:
    """One device that can switch a host off, and its agent.

    :arg host: the inventory name of the host.
    :arg agent: the agent as the inventory names it.
    :arg label: the agent, with its place if the host has several levels.
    :arg program: the file that is run.
    :arg timeout_seconds: for all calls of one attempt to switch the host off together.
    :arg status_timeout_seconds: for one question for the status.
    :arg disks: for an agent that writes a message to shared disks; null for all others.
    """

    host: str
    agent: str
    label: str
    program: str
    timeout_seconds: int
    status_timeout_seconds: int
    options: tuple[AgentOption, ...] = field(repr=False)
    disks: SbdDisks | None = None

    @property
    def is_status_evidence(self) -> bool:
        """Whether the status "off" shows that the host is off. If not, an C(off) of this run must have succeeded too."""
        return self.disks is None

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values."""
        return tuple(option.value for option in self.options if option.secret)

    def is_same_device(self, other: FenceDevice) -> bool:
        """Whether it is the same device with the same plug."""
        return (self.program, frozenset(self.options)) == (other.program, frozenset(other.options))


FenceLevel = tuple[FenceDevice, ...]


@dataclass(frozen=True)
class FencingConfig:
    """How one host is fenced.

    :arg host: its inventory name.
    :arg levels: are tried in order. The devices of a level must all succeed. A host that has a watchdog alone has none.
    :arg ttl_seconds: how long the evidence counts.
    :arg has_levels: whether the inventory names levels, and not a single device.
    :arg watchdog_seconds: how long its watchdog may take to reset the host after its lease; None if that is no evidence.
    """

    host: str
    levels: tuple[FenceLevel, ...]
    ttl_seconds: int
    has_levels: bool = False
    watchdog_seconds: int | None = None

    @property
    def devices(self) -> FenceLevel:
        """The devices of all levels."""
        return tuple(device for level in self.levels for device in level)

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values of all devices."""
        return tuple(secret for device in self.devices for secret in device.secrets())


def name_agents(level: FenceLevel) -> str:
    """Return the agents of a level, e.g. C(fence_apc_snmp, fence_apc_snmp)."""
    return ", ".join(device.agent for device in level)


def parse_fencing(given: Json, host: str) -> FencingConfig | None:
    """Return how the host is fenced; None if its C(kvmfleet_fencing) is null, so that it has no agent.

    Raises L(InvalidArgument), which names variable and host and shows no option's value. Nothing is run.
    """
    if given is None:
        return None
    where = f"{VARIABLE} of {host}"
    given = _check_keys(given, FENCING_KEYS, where)
    has_levels = "levels" in given
    if has_levels and not set(given).isdisjoint({"agent", "options"}):
        raise InvalidArgument(f"{where} has both levels and an agent.", "Put the agent and its options into a device of a level.")
    only = {key: value for key, value in given.items() if key in _DEVICE_KEYS}
    watchdog = _read_seconds(given, "watchdog_seconds", 0, where) if "watchdog_seconds" in given else None
    if has_levels:
        levels = _parse_levels(given, host, where)
    else:
        levels = () if watchdog and not only else ((_parse_device(only, {}, host, where, ""),),)
    return FencingConfig(host, levels, _read_seconds(given, "ttl_seconds", TTL_SECONDS, where), has_levels, watchdog)


def _check_keys(given: Json, keys: t.Iterable[str], where: str) -> JsonObject:
    if not isinstance(given, t.Mapping):
        raise InvalidArgument(f"{where} is not a dictionary.", f"Its keys are: {', '.join(keys)}.")
    unknown = [str(key)[:64] for key in given if key not in keys]
    if unknown:
        raise InvalidArgument(
            f"{where} has unknown keys: {', '.join(unknown)}.", f"Valid names are: {', '.join(keys)}; put the options of the agent into 'options'."
        )
    return given


def _parse_levels(given: JsonObject, host: str, where: str) -> tuple[FenceLevel, ...]:
    """Return the levels. The time limits beside C(levels) are the defaults of all devices."""
    listed = _read_list(given["levels"], MAX_LEVELS, f"{where}: its levels")
    levels = tuple(_parse_level(level, given, host, where, number) for number, level in enumerate(listed, 1))
    known: list[FenceDevice] = []
    for device in (device for level in levels for device in level):
        twin = next((one for one in known if one.is_same_device(device)), None)
        if twin:
            raise InvalidArgument(f"{where}: {device.label} is the same device as {twin.label}.", "List each device and plug once.")
        known.append(device)
    return levels


def _parse_level(level: Json, given: JsonObject, host: str, where: str, number: int) -> FenceLevel:
    listed = _read_list(level, MAX_DEVICES, f"{where}: level {number}")
    places = [f"level {number}" + (f" device {place}" if len(listed) > 1 else "") for place in range(1, len(listed) + 1)]
    return tuple(_parse_device(one, given, host, f"{where}: {place}", f" ({place})") for one, place in zip(listed, places, strict=True))


def _read_list(given: Json, most: int, what: str) -> t.Sequence[Json]:
    if not isinstance(given, t.Sequence) or isinstance(given, str) or not 1 <= len(given) <= most:
        raise InvalidArgument(
            f"{what} must be a list of 1 to {most} entries.", "levels is a list of levels, and a level a list of devices, each with agent and options."
        )
    return given


def _parse_device(given: Json, defaults: JsonObject, host: str, where: str, place: str) -> FenceDevice:
    """Return the device. C(place) is added to its label."""
    if isinstance(given, t.Mapping) and "action" in given:
        raise InvalidArgument(f"{where} has an action.", "A device always switches the host off: a status alone is never evidence. Remove the action.")
    device = _check_keys(given, _DEVICE_KEYS, where)
    agent, program = _find_agent(device.get("agent"), where)
    if os.path.basename(agent) in _OBSERVING_AGENTS:
        raise InvalidArgument(f"{where}: {agent} only observes, and switches no host off.", "Name an agent that does.")
    options = parse_options(device.get("options", {}), where)
    _check_plug(agent, options, where)
    timeout = _read_seconds(device, "timeout_seconds", _read_seconds(defaults, "timeout_seconds", TIMEOUT_SECONDS, where), where)
    status_default = min(_read_seconds(defaults, "status_timeout_seconds", STATUS_TIMEOUT_SECONDS, where), timeout)
    return FenceDevice(
        host=host,
        agent=agent,
        label=f"{agent}{place}",
        program=program,
        timeout_seconds=timeout,
        status_timeout_seconds=_read_seconds(device, "status_timeout_seconds", status_default, where, timeout),
        options=options,
        disks=_parse_disks(agent, options, where),
    )


def _parse_disks(agent: str, options: tuple[AgentOption, ...], where: str) -> SbdDisks | None:
    return parse_disks({option.name: option.value for option in options}, where) if os.path.basename(agent) in _MESSAGE_AGENTS else None


def _check_plug(agent: str, options: tuple[AgentOption, ...], where: str) -> None:
    values = {option.name.replace("-", "_"): option.value for option in options}
    is_number = any(values.get(name, "").replace(":", "").isdigit() for name in ("plug", "port"))
    if os.path.basename(agent) in _GUESSING_AGENTS and is_number and values.get("snmp_version", "1") != "1":
        raise InvalidArgument(
            f"{where}: {agent} would report a host as off if there is no outlet with that number.", "Give the name of the outlet, or set snmp_version to 1."
        )


def _find_agent(agent: Json, where: str) -> tuple[str, str]:
    """Return the agent's name and file. Text after a blank in it may be a password, and is not shown."""
    if not isinstance(agent, str) or not agent:
        raise InvalidArgument(
            f"{where} names no agent.", "Give agent: the name of a fence agent such as fence_ipmilan, or an absolute path; or watchdog_seconds."
        )
    if os.path.isabs(agent):
        if not _is_program(agent):
            raise InvalidArgument(f"{where}: there is no program {agent.split()[0]!r} on the control node.", "Put its options into 'options'.")
        return agent, agent
    if not _AGENT_NAME.fullmatch(agent):
        raise InvalidArgument(f"{where}: its agent is neither a name such as fence_ipmilan nor an absolute path.", "Put its options into 'options'.")
    for folder in AGENT_SEARCH_PATH.split(":"):
        if _is_program(os.path.join(folder, agent)):
            return agent, os.path.join(folder, agent)
    raise InvalidArgument(f"{where}: the agent {agent} is not on the control node ({AGENT_SEARCH_PATH}).", "Install the distribution's fence agents there.")


def _is_program(path: str) -> bool:
    return "\0" not in path and os.path.isfile(path) and os.access(path, os.X_OK)


def _read_seconds(given: JsonObject, key: str, default: int, where: str, most: int = MAX_SECONDS) -> int:
    value = given.get(key, default)
    # ansible-core 2.18 makes text of a template with a number.
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(most)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(f"{where}: its {key} is not a number of seconds from 1 to {most}.")
    return int(value)
