# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The decision of an administrator whether tasks may use C(override_policy), which overrides the policies of domains."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden

from .._settings.variables import OVERRIDE_VARIABLE, Settings
from .documents import Document, LedgerSettings
from .ledger import Ledger


def decided_settings(ledger: Ledger, found: Document | None) -> LedgerSettings:
    """Return the settings that are in force. Tasks may use C(override_policy) by default, and not if the settings were damaged.

    :arg found: as the ledger has them.
    """
    if found is not None:
        return found.settings
    if ledger.has_damaged_settings():
        return LedgerSettings(ledger.ledger_id, False, reason="The settings of the ledger were damaged and set aside.")
    return LedgerSettings(ledger.ledger_id, True)


def decide_override(ledger: Ledger, is_allowed: bool, reason: str, by: str, write: bool = True) -> tuple[LedgerSettings, LedgerSettings]:
    """Decide whether tasks may use C(override_policy). Return the settings before and after; nothing is written if they are in force already.

    Raises L(Conflict) if another process decides at the same time.
    """
    found = ledger.read_settings()
    before = decided_settings(ledger, found)
    # Without a document, only damaged settings have a reason: a decision replaces them in any case.
    if before.override_policy_allowed == is_allowed and (found or not before.reason):
        return before, before
    note: JsonObject = {"at": utc_now(), "by": by, "override_policy_allowed": is_allowed, "reason": reason}
    decisions = (*((found.settings.decisions or ()) if found else ()), note)
    after = replace(before, override_policy_allowed=is_allowed, at=str(note["at"]), by=by, reason=reason, decisions=decisions)
    return before, ledger.put_settings(after, found.version if found else None).settings if write else after


def keep_override_decision(ledger: Ledger, settings: Settings, host: str, by: str) -> list[str]:
    """Keep in the ledger that C(kvmfleet_override_policy_allowed) is false, so that a later run with another value does not lift it.

    Return a warning if the ledger had allowed it.
    """
    if settings.allows_override(host):
        return []
    try:
        before, after = decide_override(ledger, False, f"{OVERRIDE_VARIABLE} was false", by)
    except Conflict:
        # Another task keeps it at the same time; this task goes by the variable.
        return []
    kept = f"{OVERRIDE_VARIABLE} is false: the ledger {ledger.name} keeps this from now on, for all tasks that use it, whatever the variable is."
    return [] if before == after else [f"{kept} kvmfleet.migration.ledger_settings changes it."]


def check_override(ledger: Ledger | None, settings: Settings, host: str, is_requested: bool) -> None:
    """Raise L(Forbidden) if a task requests C(override_policy) and an administrator has taken it away, in the inventory or in the ledger."""
    if not is_requested:
        return
    if not settings.allows_override(host):
        raise Forbidden(
            f"override_policy is true, but {OVERRIDE_VARIABLE} of {settings.owner(host, OVERRIDE_VARIABLE)} is false.",
            "Whoever maintains the inventory can change that. Without override_policy, what the policies of domains forbid is not used. Nothing was moved.",
        )
    decided = decided_settings(ledger, ledger.read_settings()) if ledger else None
    if ledger and decided and not decided.override_policy_allowed:
        who = f"{decided.by} has taken it away at {decided.at} ({decided.reason})" if decided.by else str(decided.reason).rstrip(".")
        raise Forbidden(
            f"override_policy is true, but the ledger {ledger.name} does not allow it: {who}.",
            "Ask the administrator of the ledger, who can allow it with kvmfleet.migration.ledger_settings (override_policy_allowed: true, and a reason). "
            "Without override_policy, what the policies of domains forbid is not used. Nothing was moved.",
        )
