# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a task wants of a domain's policy, worked into one definition of the domain. The same on both sides, so that check mode predicts."""

from __future__ import annotations

import dataclasses
import typing as t

from .._errors import Conflict
from .._migration.policy import uses_both
from .document import changed, parse

# A domain's two definitions: what runs, and what its next start uses.
LIVE = "live"
CONFIG = "config"

Definitions = t.Dict[str, str]


@dataclasses.dataclass(frozen=True)
class Change:
    """Fields to set, fields to take out; or, with C(absent), the whole policy goes."""

    setting: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)
    unset: t.Tuple[str, ...] = ()
    absent: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether there is anything to do; else the task only reads."""
        return self.absent or bool(self.setting) or bool(self.unset)

    def as_dict(self) -> t.Dict[str, t.Any]:
        """Return it as JSON carries it."""
        return {"setting": self.setting, "unset": list(self.unset), "absent": self.absent}


def change_from(document: t.Mapping[str, t.Any]) -> Change:
    """Return what L(Change.as_dict) made."""
    return Change(dict(document["setting"]), tuple(document["unset"]), bool(document["absent"]))


def apply(change: Change, definitions: Definitions, what: str) -> Definitions:
    """Return the definitions as they are to be.

    Each keeps what the task does not name. Raises L(InvalidArgument) where one would still be wrong, L(Conflict) where both features would be on.

    :arg what: the domain and its host, for messages.
    """
    if change.absent:
        return dict.fromkeys(definitions, "")
    after = {scope: changed(xml, change.setting, change.unset) for scope, xml in definitions.items()}
    for scope, xml in after.items():
        values = parse(xml).check(_definition(scope, what))
        if change.is_wanted and uses_both(values):
            raise Conflict(
                f"auto_converge and post_copy would both be on in {_definition(scope, what)}, and a move may use one of them.",
                "Switch one of them off. Nothing was changed.",
            )
    return after


def in_force(definitions: Definitions) -> str:
    """Return the policy that a move uses: that of the running domain, else that of its definition."""
    return definitions.get(LIVE, definitions.get(CONFIG, ""))


def _definition(scope: str, what: str) -> str:
    return f"the persistent definition of {what}" if scope == CONFIG else what
