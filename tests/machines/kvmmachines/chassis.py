# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine's BMC does when it is asked for the power state or told to change it: the C(chassis_control) program of ipmi_sim."""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import typing as t

from ...lab.kvmlab.errors import UsageError

SLOW_SECONDS = 75
BEHAVIOUR_FILE = "behaviour.json"


class Kind(str, enum.Enum):
    """How a BMC behaves."""

    HONEST = "honest"
    SLOW = "slow"
    """It accepts a command and carries it out only after L(Behaviour.seconds); until then it reports the old state."""
    DEAD = "dead"
    """It does not answer, as one that has lost its own power."""
    LYING = "lying"
    """It accepts a command, does nothing, and reports the state that it was told to reach."""


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """How one BMC behaves.

    :arg seconds: after which a slow one carries out a command.
    :arg claimed: the power state that a lying one was last told to reach; null before its first command.
    """

    kind: Kind = Kind.HONEST
    seconds: int = SLOW_SECONDS
    claimed: t.Optional[bool] = None


class Power(t.Protocol):
    """A machine's power switch."""

    def is_on(self) -> bool:
        """Whether the machine has power."""

    def switch(self, on: bool) -> None:
        """Give the machine power, or take it away at once."""

    def switch_later(self, on: bool, seconds: int) -> None:
        """Do the same after so many seconds, and return at once."""


def read_behaviour(folder: pathlib.Path) -> Behaviour:
    """Return how the BMC with that folder behaves; an honest one where nothing was said."""
    try:
        found = json.loads((folder / BEHAVIOUR_FILE).read_text())
    except FileNotFoundError:
        return Behaviour()
    return Behaviour(Kind(found["kind"]), found["seconds"], found["claimed"])


def write_behaviour(folder: pathlib.Path, behaviour: Behaviour) -> None:
    """Make the BMC with that folder behave so from its next command on."""
    folder.mkdir(exist_ok=True)
    new = folder / f"{BEHAVIOUR_FILE}.new"
    new.write_text(json.dumps(dataclasses.asdict(behaviour)))
    new.rename(folder / BEHAVIOUR_FILE)


def answer(folder: pathlib.Path, arguments: t.Sequence[str], power: Power) -> str:
    """Carry out one request of ipmi_sim, C(get power), C(set power 0|1) or C(set reset 1), and return what the simulator reads.

    :raises UsageError: the request is none of these.
    """
    request = tuple(arguments)
    behaviour = read_behaviour(folder)
    if request == ("get", "power"):
        return f"power:{int(_reported(behaviour, power))}\n"
    if request[:2] == ("set", "power") and request[2:] in (("0",), ("1",)):
        _command(folder, behaviour, power, request[2] == "1")
    elif request[:2] == ("set", "reset"):
        _reset(behaviour, power)
    else:
        raise UsageError(f"A BMC's power is not controlled by {' '.join(arguments)!r}: it knows 'get power', 'set power 0|1' and 'set reset 1'.")
    return ""


def _reported(behaviour: Behaviour, power: Power) -> bool:
    if behaviour.kind is Kind.LYING and behaviour.claimed is not None:
        return behaviour.claimed
    return power.is_on()


def _command(folder: pathlib.Path, behaviour: Behaviour, power: Power, on: bool) -> None:
    if behaviour.kind is Kind.LYING:
        write_behaviour(folder, dataclasses.replace(behaviour, claimed=on))
    elif behaviour.kind is Kind.SLOW:
        power.switch_later(on, behaviour.seconds)
    elif power.is_on() != on:
        power.switch(on)


def _reset(behaviour: Behaviour, power: Power) -> None:
    if behaviour.kind is not Kind.LYING and power.is_on():
        power.switch(False)
        power.switch(True)
