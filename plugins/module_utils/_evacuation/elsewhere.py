# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""On which other hosts the domains of an evacuation are active, and for how long those answers hold."""

from __future__ import annotations

import time
import typing as t

from .ask import AskedHost, ask_fleet

# Slow hosts may take longer to answer than the proof holds that the source is off. So the answers hold longer: the ledger's records keep every other task
# from starting these domains meanwhile.
ANSWERS_SECONDS = 120.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

Json = t.Dict[str, t.Any]
Uuids = t.AbstractSet[str]


def ask_elsewhere(uris: t.Mapping[str, str], uuids: Uuids, open_host: t.Callable[[str], AskedHost]) -> Json:
    """Return C(active) (UUID to the host on which it is active), C(silent) (a sentence for each host that did not answer), C(uuids), and C(moment).

    :arg uris: name of each host to its URI.
    """
    asked_at = moment()
    answers = ask_fleet(uris, open_host, uuids, identify=False)
    active = {uuid: name for name, answer in answers.items() if answer["answered"] for uuid, domain in answer["domains"].items() if domain["active"]}
    silent = [f"{name}: {answer['msg']}" for name, answer in answers.items() if not answer["answered"]]
    return {"active": active, "silent": silent, "uuids": sorted(uuids), "moment": asked_at}


def still_holds(elsewhere: t.Optional[Json], uuids: Uuids, now: Json) -> bool:
    """Whether answers of an earlier call still hold for these domains: every host had answered, in this boot and not too long ago."""
    if elsewhere is None or elsewhere["silent"] or not uuids <= set(elsewhere["uuids"]) or elsewhere["moment"]["boot_id"] != now["boot_id"]:
        return False
    return bool(0 <= now["seconds"] - elsewhere["moment"]["seconds"] < ANSWERS_SECONDS)


def moment() -> Json:
    """Return now on a clock of this host that nobody sets, and that goes on while the host is suspended: C(boot_id) and C(seconds) since that boot."""
    with open(_BOOT_ID, encoding="ascii") as stream:
        return {"boot_id": stream.read().strip(), "seconds": time.clock_gettime(time.CLOCK_BOOTTIME)}
