# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The disks of a domain as the survey of a move finds them on both hosts."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject, Maybe


@dataclass(frozen=True)
class SurveyedImage:
    """The image behind a disk. Sizes in bytes: what the guest sees, and what is allocated of it.

    :arg backing: the paths of the images below it, the next one first; empty for one that is not a file.
    :arg below_bytes: what is allocated of them; null if that is not known.
    :arg encrypted: whether QEMU decrypts the image for the guest.
    """

    target: str
    kind: str
    path: str
    format: str
    capacity_bytes: int
    allocation_bytes: int
    shareable: bool
    has_backing: bool
    backing: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    below_bytes: Maybe[int] = ABSENT
    encrypted: t.Union[bool, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ExistingImage:
    """A file that a destination has at the path of an image."""

    format: str
    capacity_bytes: int
    allocation_bytes: int
    backing_path: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class SurveyedDisk:
    """A disk of a domain as both hosts see it.

    :arg verdict: whether both hosts have its image in one store; C(why) is the reason if that is not proved.
    :arg used_by: the domains and images of the destination that use the path of the image.
    :arg available_bytes: the free space in the folder of that path.
    :arg same_file: why the file there may be the image itself; C(other_base) why a backing file there is a different one.
    """

    image: SurveyedImage
    verdict: str
    why: str
    existing: t.Optional[ExistingImage]
    used_by: t.Tuple[str, ...]
    available_bytes: int
    same_file: str
    other_base: t.Union[str, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)
