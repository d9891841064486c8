# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A cold move on the wire between the halves: what both hosts report before it, the order of the control node, and its result."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .clock import BootMoment
from .codec import ABSENT, Absent, JsonObject
from .records import MoveRecord
from .saved_domains import NeededFile
from .watched_moves import Survey


@dataclass(frozen=True)
class FolderProof:
    """Whether the source and a destination see one folder.

    :arg verdict: C(shared), C(separate) or C(unproved); C(why) states why nothing was proved.
    """

    verdict: str
    why: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class SavedImage:
    """A managed-save image that its host can restore.

    :arg path: of its file.
    :arg resumes_as: the state in which the guest resumes, C(running) or C(paused).
    """

    path: str
    resumes_as: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ColdTraits:
    """What the source reports about a domain that is to move cold.

    :arg on_poweroff: what libvirt does when the guest has switched itself off.
    :arg files: the files beside its disks that hold state of the guest; C(file_bytes) is their size together.
    :arg problem: why these files cannot be copied; empty if they can.
    :arg folders: by URI of a destination, whether both see the folder for the memory.
    :arg saved: the managed-save image; absent for none, and for one that the host cannot read.
    """

    managed_save: bool
    snapshots: int
    checkpoints: int
    on_poweroff: str
    files: t.Tuple[NeededFile, ...]
    file_bytes: int
    problem: str
    folders: t.Mapping[str, FolderProof]
    saved: t.Union[SavedImage, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ColdSurvey:
    """The answers of all hosts.

    :arg traits: for each question, what the source reports about the domain; null if it does not have the domain.
    :arg at: the moment of the answer on the source.
    """

    survey: Survey
    traits: t.Tuple[t.Optional[ColdTraits], ...]
    at: BootMoment


@dataclass(frozen=True)
class ColdOrder:
    """One cold move.

    :arg adopt: an earlier run may have begun it: it is finished, or undone, as both hosts show.
    :arg flags: libvirt's, by their names, with which the memory of a managed-save image crosses; C(parameters) likewise.
    :arg begin_until: until when the order may arrive, on the clock of the source in the boot of its survey; absent if C(adopt) is set.
    """

    record: MoveRecord
    destination_uri: str
    adopt: bool
    flags: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    parameters: t.Union[JsonObject, Absent] = ABSENT
    begin_until: t.Union[BootMoment, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.record.domain.uuid

    @property
    def name(self) -> str:
        """The domain's name, for messages."""
        return str(self.record.domain.name)


@dataclass(frozen=True)
class ColdAnswer:
    """How a cold move ended on its hosts.

    :arg record: in its last status, as the source wrote it; null if the source refused the order, and has done nothing.
    :arg error_code: of the error that ended the move; null for a move that completed.
    :arg msg: of that error.
    """

    uuid: str
    record: t.Optional[MoveRecord]
    error_code: t.Optional[str]
    msg: str
    extra: JsonObject = dataclasses.field(default_factory=dict)
