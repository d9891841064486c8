# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The options of a drain about domains that are not simply moved live: strategies, domains that are off, and the folder for saved memory."""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import MIGRATE, SAVE, check_strategies, list_strategies

from .plan_entries import PlanOptions
from .saved_plan import short_text

# What a drain does with domains that are off.
STAY, MOVE = "leave", "move"
SHUT_OFF_CHOICES = (STAY, MOVE)


@dataclass(frozen=True)
class GivenStrategies:
    """The options as a task gives them; absent or null for one that it does not give."""

    strategies: t.Optional[Json] = None
    shut_off: t.Optional[Json] = None
    restart: t.Optional[Json] = None
    save_folder: t.Optional[Json] = None


@dataclass(frozen=True)
class StrategyOptions:
    """The options.

    :arg strategies: of domains whose policy says nothing, the preferred one first.
    :arg shut_off: C(leave) or C(move), for domains that are off, and for the definitions of those that are shut down.
    :arg restart: whether domains that are shut down are started on another host.
    :arg save_folder: where the memory of domains is saved, on storage that source and destination share; empty for none.
    """

    strategies: tuple[str, ...] = (MIGRATE,)
    shut_off: str = STAY
    restart: bool = False
    save_folder: str = ""

    @classmethod
    def from_given(cls, given: GivenStrategies) -> StrategyOptions:
        """Return the options. Raises L(InvalidArgument) for an invalid one, and for C(save) without a folder."""
        own = cls()
        strategies = own.strategies if given.strategies is None else _read_strategies(given.strategies)
        shut_off = own.shut_off if given.shut_off is None else given.shut_off
        if shut_off not in SHUT_OFF_CHOICES:
            raise InvalidArgument(f"shut_off is {short_text(shut_off)}.", f"Give one of: {', '.join(SHUT_OFF_CHOICES)}. Nothing was changed.")
        if not isinstance(given.restart, (bool, type(None))):
            raise InvalidArgument(f"restart is {short_text(given.restart)}, which is neither true nor false.", "Nothing was changed.")
        found = cls(strategies, str(shut_off), bool(given.restart), _read_folder(given.save_folder))
        if SAVE in found.strategies and not found.save_folder:
            raise InvalidArgument(
                "The strategies of the drain include save, but no folder for the memory of domains is given.",
                "Set drain_host_save_folder to a folder on storage that the hosts share. Nothing was changed.",
            )
        return found

    @classmethod
    def from_plan(cls, options: PlanOptions) -> StrategyOptions:
        """Return the options of a saved plan. One of an earlier version has none of them."""
        own = cls()
        return cls(
            options.strategies or own.strategies, options.shut_off or own.shut_off, options.restart or own.restart, options.save_folder or own.save_folder
        )

    @property
    def moves_shut_off(self) -> bool:
        """Whether the definitions of domains that are off move too."""
        return self.shut_off == MOVE

    @property
    def moves_stopped(self) -> bool:
        """Whether domains that are shut down leave their host."""
        return self.restart or self.moves_shut_off

    def for_plan(self, options: PlanOptions) -> PlanOptions:
        """Return the options of a plan with these. What has its default is not written, as in plans of earlier versions."""
        own = type(self)()
        return replace(
            options,
            strategies=_unless_default(self.strategies, own.strategies),
            shut_off=_unless_default(self.shut_off, own.shut_off),
            restart=_unless_default(self.restart, own.restart),
            save_folder=_unless_default(self.save_folder, own.save_folder),
        )


T = t.TypeVar("T")


def _unless_default(value: T, default: T) -> t.Any:
    return ABSENT if value == default else value


def _read_strategies(given: Json) -> tuple[str, ...]:
    """Return the strategies. A list on the command line of ansible-playbook is text."""
    value = given.split(",") if isinstance(given, str) else given
    try:
        check_strategies("drain_host_strategies", value)
    except InvalidArgument as error:
        raise InvalidArgument(error.message, f"{error.next_step} Nothing was changed.") from error
    return list_strategies(value)


def _read_folder(value: t.Optional[Json]) -> str:
    if not value:
        return ""
    if not isinstance(value, str) or not posixpath.isabs(value) or not value.isprintable() or posixpath.normpath(value) == "/":
        raise InvalidArgument(
            f"drain_host_save_folder is {short_text(value)}.", "Give the absolute path of a folder on storage that the hosts share. Nothing was changed."
        )
    return posixpath.normpath(value)
