# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The model of pressure: how much work waits on a host for a resource that is used to a certain share.

The pressure is 0 up to the knee of the resource, and rises with the square of what exceeds it, to 1 where all of the resource is used. It rises further for
demand that exceeds the resource. The measured pressure of a host decides what its use is worth in this model: see L(effective_share).
"""

from __future__ import annotations

import math
import typing as t

CPU, MEMORY, IO, VCPUS = 0, 1, 2, 3
# The names of the resources. Only use that can be measured causes pressure: how many vCPUs are promised to guests counts for evenness alone.
RESOURCES: t.Final = ("cpu", "memory", "io", "vcpus")
SIGNALS: t.Final = RESOURCES[:3]

# The share of each resource from which on work waits for it.
KNEES: t.Final = (0.7, 0.9, 0.7, 1.0)
# Pressure as high as this is what the host suffers from, whatever share of the resource is in use. Lower pressure occurs on idle hosts, too.
CERTAIN_PRESSURE: t.Final = 0.1

# A value for each of L(RESOURCES).
Vector = tuple[float, float, float, float]
NOTHING: t.Final[Vector] = (0.0, 0.0, 0.0, 0.0)


def pressure_at(share: float, resource: int) -> float:
    """Return the pressure on a host that uses this share of the resource. Never falls with the share."""
    knee = KNEES[resource]
    return ((share - knee) / (1.0 - knee)) ** 2 if share > knee else 0.0


def share_at(pressure: float, resource: int) -> float:
    """Return the share at which the model expects this pressure; the knee for none."""
    knee = KNEES[resource]
    return knee + (1.0 - knee) * math.sqrt(max(0.0, pressure))


def effective_share(used: float, pressure: t.Optional[float], resource: int) -> float:
    """Return the share at which the model has a host whose used share and pressure were measured.

    With a certain pressure, only the pressure counts: it shows limits and peaks that a mean use hides. The lower it is, the more the use counts, but at most
    as far as the pressure permits.

    :arg used: 0 to 1.
    :arg pressure: 0 to 1; None on a host without pressure stall information, which is judged by its use.
    """
    if pressure is None:
        return used
    felt, certainty = share_at(pressure, resource), min(1.0, pressure / CERTAIN_PRESSURE)
    return felt * certainty + min(used, felt) * (1.0 - certainty)
