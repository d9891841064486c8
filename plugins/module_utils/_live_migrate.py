# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The two phases of a move on its source host: C(prepare) reads, C(start) hands over to a watcher."""

from __future__ import annotations

import typing as t

from ._hypervisor.storage_host import open_storage_host as open_host
from ._module import require_local, require_root
from ._patience import patient
from ._surveying import surveyed
from ._watcher.files import read_json, state_path
from ._watcher.order import order_from
from ._watcher.process import is_alive
from ._watcher.run import start_watcher

Work = t.Mapping[str, t.Any]


@patient
def prepare(uri: str, work: Work) -> t.Dict[str, t.Any]:
    """Survey both ends of the moves in C(work["wanted"]), with what a watcher has written about each. Leaves both hosts as they were."""
    require_root()
    found = surveyed(require_local(uri), work["wanted"], may_examine=True)
    for domain, wanted in zip(found["domains"], work["wanted"]):
        candidates = [domain["info"]["uuid"]] if domain["found"] else [uuid for uuid in (wanted.get("uuid"), *wanted.get("known_uuids", ())) if uuid]
        domain["watch"] = next(filter(None, (_watch(uuid) for uuid in candidates)), None)
    return {"changed": False, "survey": found}


def start(uri: str, work: Work) -> t.Dict[str, t.Any]:
    """Start one watcher for the orders in C(work["orders"]); return what it took and what it refused."""
    require_root()
    require_local(uri)
    orders = [order_from(document) for document in work["orders"]]
    return {"changed": True, **start_watcher(orders, work["run_id"], work["parallel"], open_host)}


def _watch(uuid: str) -> t.Optional[t.Dict[str, t.Any]]:
    state = read_json(state_path(uuid))
    if not isinstance(state, dict):
        return None
    return {"record": state, "alive": is_alive(state.get("watcher"))}


PHASES: t.Dict[str, t.Callable[[str, Work], t.Dict[str, t.Any]]] = {"prepare": prepare, "start": start}
