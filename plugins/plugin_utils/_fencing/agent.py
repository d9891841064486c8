# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One call of a fence agent, and what its answer means by the ClusterLabs fence agent API (FenceAgentAPI.md)."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from . import process
from .config import VARIABLE, Fencing
from .options import as_lines
from .redact import plain_text, redact

_DONE, _IS_ON, _IS_OFF = 0, 0, 2
# "Status: OFF", "Chassis Power is off", {"PowerState": "Off"}; a list of actions in a usage text has no colon before its "off".
_SAYS = re.compile(r"""(?:status|power|state)["']?(?: +is +| *[:=] *)["'\[(]?(on|off)\b\W*$""", re.IGNORECASE | re.MULTILINE)


class Action(enum.StrEnum):
    """What an agent is asked for. There is no reboot: a host that comes back is not off."""

    OFF = "off"
    STATUS = "status"


class Power(enum.Enum):
    """Whether a host has power, as far as an agent can tell."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reply:
    """What came of a call; no secret is in it.

    :arg exit_code: None when the agent was killed at its limit.
    :arg power: what a status says; unknown after any other action.
    """

    action: Action
    exit_code: int | None
    output: str
    power: Power = Power.UNKNOWN

    @property
    def done(self) -> bool:
        """Whether the agent says that it did what it was asked for."""
        return self.exit_code == _DONE

    def __str__(self) -> str:
        how = "was killed at its time limit" if self.exit_code is None else f"ended with {self.exit_code}"
        return f"{self.action.value} {how}" + (f" ({_one_line(self.output)})" if self.output else "")


def call(config: Fencing, action: Action, limit_seconds: float) -> Reply:
    """Ask the agent for an action. Options go to its standard input only.

    Raises L(InvalidArgument) when it cannot be run at all.
    """
    try:
        finished = process.run(config.program, as_lines(action.value, config.options), limit_seconds)
    except OSError as error:
        raise InvalidArgument(
            f"{VARIABLE} of {config.host}: {config.agent} cannot be run on the control node: {error.strerror}.",
            f"{config.host} was not fenced and nothing was started.",
        ) from error
    text = plain_text(finished.output)
    power = power_of(finished.exit_code, text) if action is Action.STATUS else Power.UNKNOWN
    return Reply(action, finished.exit_code, redact(text, config.secrets(), finished.torn, finished.exit_code is None), power)


def power_of(exit_code: int | None, text: str) -> Power:
    """Return what a status means.

    Exit code 2 is "off", but also what shells and parsers of options end with on a mistake: only with the words (C(Status: OFF)) does it count.
    """
    says = {found.lower() for found in _SAYS.findall(text)}
    if exit_code == _IS_OFF and says == {"off"}:
        return Power.OFF
    if exit_code == _IS_ON and "off" not in says:
        return Power.ON
    return Power.UNKNOWN


def _one_line(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"... {line[-most:]}"
