# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a person decides of a host that cannot be asked: its clean-shutdown token does not count, or it will not return."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._ledger.store import Body
from .grants import as_recorded, recorded

FENCED = "fenced"


def without_token(entry: Body, reason: str, by: str, **more: t.Any) -> Body | None:
    """Return the entry of a host whose clean-shutdown token is revoked, None where it holds none.

    :arg more: what else is kept with the decision.
    """
    grant = recorded(entry)
    if grant is None:
        return None
    after = {**entry, "protected": {**entry["protected"], **as_recorded(None)}}
    return _decided(after, "revoke_token", reason, by, token_id=grant.id, **more)


def check_not_granted(entry: Body) -> None:
    """Raise L(Unsafe) for a host that may hold a clean-shutdown token, unless a person said that the host will not return."""
    if recorded(entry) is None or entry.get("discarded"):
        return
    raise Unsafe(
        f"{entry['name']} may hold a clean-shutdown token, with which it would start its guests by itself when it returns. Nothing was started.",
        "Revoke the token on a host that sees its shared storage: kvmfleet.migration.host with name, revoke_token and reason. If the host will never return, "
        "set source_discarded instead.",
    )


def scrapped(entry: Body, reason: str, by: str) -> Body | None:
    """Return the entry of a host that will not return, None where it says so already. It stays nobody's destination."""
    if entry.get("discarded"):
        return None
    after = _decided(entry, "source_discarded", reason, by)
    is_new = after["state"] != FENCED
    told = {"state": FENCED, "reason": reason, "by": by, "since": utc_now() if is_new else after.get("since")}
    return {**after, **told, "discarded": {"at": utc_now(), "by": by, "reason": reason}}


def check_not_discarded(entry: Body) -> None:
    """Raise L(Unsafe) for a host of which a person said that it will not return: what it still has defined is in no record any more."""
    discarded = entry.get("discarded")
    if discarded:
        raise Unsafe(
            f"{entry['name']} was discarded at {discarded['at']} by {discarded['by']} ({discarded['reason']}): the records of what was evacuated from it are "
            "closed, so that nothing says any more which of its guests are leftovers.",
            "Undefine there what runs elsewhere now, then say that the host belongs to the fleet again: kvmfleet.migration.host with adopt_identity and a "
            "reason. Nothing was changed.",
        )


def _decided(entry: Body, decision: str, reason: str, by: str, **more: t.Any) -> Body:
    note = {"at": utc_now(), "by": by, "decision": decision, "reason": reason, **more}
    return {**entry, "decisions": [*(entry.get("decisions") or []), note]}
