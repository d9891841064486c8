# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of the module C(scheduler_check): asks this host and the candidates. Reads only, over any URI."""

from __future__ import annotations

import os
import typing as t

from ._hypervisor.uri import check_uri, is_local
from ._patience import patient
from ._surveying import surveyed

Work = t.Mapping[str, t.Any]


@patient
def look(uri: str, work: Work) -> t.Dict[str, t.Any]:
    """Return the C(survey) of what C(work["wanted"]) names."""
    may_examine = is_local(check_uri(uri, "uri")) and os.geteuid() == 0
    return {"changed": False, "survey": surveyed(uri, [work["wanted"]], may_examine)}


PHASES: t.Dict[str, t.Callable[[str, Work], t.Dict[str, t.Any]]] = {"survey": look}
