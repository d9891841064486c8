# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether this host can ask other hosts, as it does in an evacuation: their SSH host keys, certificates and logins are right."""

from __future__ import annotations

import typing as t

from .._libvirt.host import open_host
from .._model.codec import JsonObject
from .._model.libvirt_formats import is_local
from .._module import Phase, Result, is_root
from .peers import ask_fleet

# Without an evacuation, nobody waits for a busy host. The task has 300 s.
_PATIENCE_SECONDS = 60.0


def try_peers(uri: str, work: JsonObject) -> Result:
    """Return C(asked), the names of the hosts that were asked, and C(silent): by name, why a host cannot be asked from here. It changes nothing.

    Only root has what libvirt logs in with: for another user, none is asked.

    :arg work: C(peers), the URIs of other hosts by name.
    """
    if not (is_root() and is_local(uri)):
        return {"changed": False, "asked": [], "silent": {}}
    peers = t.cast(t.Dict[str, str], work["peers"])
    answers = ask_fleet(peers, open_host, (), _PATIENCE_SECONDS, identify=False, spread=True)
    silent = {name: answer.msg or "no reason is known" for name, answer in answers.items() if not answer.answered}
    return {"changed": False, "asked": sorted(answers), "silent": silent}


PEER_PHASES: t.Dict[str, Phase] = {"try": try_peers}
