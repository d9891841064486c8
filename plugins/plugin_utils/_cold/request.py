# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The request of a task of C(cold_migrate): its options, read into one request for each move before any host is queried."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import cold_move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import SavedImage
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import COLD_METHODS, OFFLINE, SAVE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyQuestion
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import (
    DestinationOptions,
    MoveRequest,
    list_moves,
    read_destinations,
    read_renamings,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

SHUTDOWN_WAIT_SECONDS = 300
MAX_WAIT_SECONDS = 86400


class OneColdMoveOptions(DestinationOptions, total=False):
    """The options of one move."""

    name: str | None
    uuid: str | None
    method: str | None
    start: bool | None
    shutdown_wait_seconds: int | None
    save_folder: str | None
    unsafe: bool | None
    force: bool | None


class ColdTaskOptions(OneColdMoveOptions, total=False):
    """The options of C(cold_migrate)."""

    uri: str
    ledger: str | None
    moves: t.Sequence[OneColdMoveOptions] | None
    progress: str
    _work: JsonObject | None


@dataclass
class ColdRequest(MoveRequest):
    """One domain to move cold.

    :arg start: whether a guest that was shut down is started at the destination.
    :arg save_folder: the folder for the memory; null unless the method saves it.
    :arg saved: the managed-save image of a domain that is off, once its source has reported one.
    """

    method: str = OFFLINE
    start: bool = False
    shutdown_wait_seconds: int = SHUTDOWN_WAIT_SECONDS
    save_folder: str | None = None
    saved: SavedImage | None = None

    def survey_question(self, saved: DomainRequest | None = None) -> SurveyQuestion:
        """Return the input of the survey on the source."""
        return replace(super().survey_question(saved), is_cold=True, save_folder=self.save_folder or ABSENT)

    @property
    def stays_off(self) -> bool:
        """Whether the guest is off after the move, and does not use the destination for its memory in between."""
        return (self.method == OFFLINE and self.saved is None) or (self.method == SHUTDOWN and not self.start)


def read_cold_requests(args: ColdTaskOptions, settings: Settings, source: str) -> list[ColdRequest]:
    """Return one request for each move of a task. Raises L(InvalidArgument) or L(NotSupported); no host was queried yet.

    :arg args: the validated options of C(cold_migrate).
    :arg source: inventory name of the host that the task runs on.
    """
    each = list_moves(t.cast(JsonObject, args), cold_move_spec())
    return [_read_request(t.cast(OneColdMoveOptions, options), settings, source) for options in each]


def _read_request(args: OneColdMoveOptions, settings: Settings, source: str) -> ColdRequest:
    if (args.get("name") is None) == (args.get("uuid") is None):
        raise InvalidArgument("Exactly one of name and uuid is needed for each move.")
    check_domain_name(args.get("name"))
    method = args.get("method")
    if method not in COLD_METHODS:
        raise InvalidArgument("A move has no method.", f"Give one of {', '.join(COLD_METHODS)}. Nothing was moved.")
    if args.get("force") and args.get("destination") is None:
        raise InvalidArgument("force is true, but no destination is given.", "Name the destination that the scheduler may refuse. Nothing was moved.")
    destination, uris = read_destinations(args, settings, source)
    return ColdRequest(
        name=args.get("name"),
        uuid=canonical_uuid(args.get("uuid")),
        destination=destination,
        uris=uris,
        migrate_uri=None,
        options=MoveOptions(unsafe=bool(args.get("unsafe"))),
        policy=GivenPolicy(),
        force=bool(args.get("force")),
        renamings=read_renamings(settings, source, uris),
        method=method,
        start=method == SHUTDOWN and bool(args.get("start")),
        shutdown_wait_seconds=_check_wait(args.get("shutdown_wait_seconds")),
        save_folder=_check_save_folder(args.get("save_folder")) if method == SAVE else None,
    )


def _check_wait(seconds: int | None) -> int:
    if seconds is not None and not 1 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidArgument(f"shutdown_wait_seconds is {seconds}.", f"Give a whole number from 1 to {MAX_WAIT_SECONDS}. Nothing was moved.")
    return SHUTDOWN_WAIT_SECONDS if seconds is None else seconds


def _check_save_folder(folder: str | None) -> str:
    if folder is None:
        raise InvalidArgument("The method save needs save_folder.", "Name a folder that both hosts share, for the memory of the guest. Nothing was moved.")
    if not os.path.isabs(folder) or os.path.normpath(folder) in ("/", "//") or not folder.isprintable():
        raise InvalidArgument(f"save_folder is {folder!r}.", "Give the absolute path of a folder that both hosts share. Nothing was moved.")
    return os.path.normpath(folder)
