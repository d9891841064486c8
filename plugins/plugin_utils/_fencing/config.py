# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How a host is fenced: the inventory variable C(kvmfleet_fencing), read and checked."""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from .options import Option, parse_options

VARIABLE = "kvmfleet_fencing"
KEYS = ("agent", "options", "timeout_seconds", "status_timeout_seconds", "ttl_seconds")
TIMEOUT_SECONDS = 60
STATUS_TIMEOUT_SECONDS = 20
TTL_SECONDS = 300
MAX_SECONDS = 3600
# Where an agent is looked for by its name, and what it finds its own programs in.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AGENT_NAME = re.compile(r"fence_[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Fencing:
    """How one host is fenced.

    :arg host: its inventory name.
    :arg agent: the agent as the inventory names it.
    :arg program: the file that is run.
    :arg timeout_seconds: for all calls of one fencing together.
    :arg status_timeout_seconds: for one question for the status.
    :arg ttl_seconds: how long the evidence counts.
    """

    host: str
    agent: str
    program: str
    timeout_seconds: int
    status_timeout_seconds: int
    ttl_seconds: int
    options: tuple[Option, ...] = field(repr=False)

    def secrets(self) -> tuple[str, ...]:
        """Return the values that nobody may read."""
        return tuple(option.value for option in self.options if option.secret)


def parse_fencing(given: t.Any, host: str) -> Fencing | None:
    """Return how the host is fenced; None where its C(kvmfleet_fencing) is null: there is no agent.

    Raises L(InvalidArgument), which names variable and host and shows no option's value. Nothing is run.
    """
    if given is None:
        return None
    where = f"{VARIABLE} of {host}"
    if not isinstance(given, t.Mapping):
        raise InvalidArgument(f"{where} is no dictionary.", f"Its keys are: {', '.join(KEYS)}.")
    unknown = [str(key)[:64] for key in given if key not in KEYS]
    if unknown:
        raise InvalidArgument(f"{where} has the unknown {', '.join(unknown)}.", f"Known are: {', '.join(KEYS)}; what the agent needs belongs into options.")
    agent, program = _find_agent(given.get("agent"), where)
    timeout = _seconds(given, "timeout_seconds", TIMEOUT_SECONDS, where)
    return Fencing(
        host=host,
        agent=agent,
        program=program,
        timeout_seconds=timeout,
        status_timeout_seconds=_seconds(given, "status_timeout_seconds", min(STATUS_TIMEOUT_SECONDS, timeout), where, timeout),
        ttl_seconds=_seconds(given, "ttl_seconds", TTL_SECONDS, where),
        options=parse_options(given.get("options", {}), where),
    )


def _find_agent(agent: t.Any, where: str) -> tuple[str, str]:
    """Return the agent's name and file. What stands behind a blank in it may be a password: it is not shown."""
    if not isinstance(agent, str) or not agent:
        raise InvalidArgument(f"{where} names no agent.", "Give agent: the name of a fence agent such as fence_ipmilan, or an absolute path.")
    if os.path.isabs(agent):
        if not _is_program(agent):
            raise InvalidArgument(f"{where}: there is no program {agent.split()[0]!r} on the control node.", "Its options belong into options.")
        return agent, agent
    if not _AGENT_NAME.fullmatch(agent):
        raise InvalidArgument(f"{where}: its agent is neither a name such as fence_ipmilan nor an absolute path.", "Its options belong into options.")
    for folder in SEARCH_PATH.split(":"):
        if _is_program(os.path.join(folder, agent)):
            return agent, os.path.join(folder, agent)
    raise InvalidArgument(f"{where}: the agent {agent} is not on the control node ({SEARCH_PATH}).", "Install the distribution's fence agents there.")


def _is_program(path: str) -> bool:
    return "\0" not in path and os.path.isfile(path) and os.access(path, os.X_OK)


def _seconds(given: t.Mapping[str, t.Any], key: str, default: int, where: str, most: int = MAX_SECONDS) -> int:
    value = given.get(key, default)
    # ansible-core 2.18 makes text of a template with a number.
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(most)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(f"{where}: its {key} is no number of seconds from 1 to {most}.")
    return int(value)
