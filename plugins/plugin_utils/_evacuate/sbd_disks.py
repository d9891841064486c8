# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The shared disks over which C(fence_sbd) tells a host to end: which they are, and how long a message needs, by the headers of the disks (sbd(8)).

A host that does not read its message within the watchdog's time is reset by its watchdog. A message counts after C(msgwait).
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

PROGRAM = "/usr/sbin/sbd"
MOST_DISKS = 3
_TIMEOUT = re.compile(r"^Timeout \((watchdog|msgwait)\)\s*:\s*(\d{1,6})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class SbdDisks:
    """:arg program: the program C(sbd) of the control node.

    :arg paths: of the disks there.
    :arg plug: the name of the host on the disks.
    """

    program: str
    paths: tuple[str, ...]
    plug: str

    def dump_arguments(self, path: str) -> list[str]:
        """Return the arguments that print the header of a disk."""
        return ["-d", path, "dump"]

    def off_arguments(self) -> list[str]:
        """Return the arguments that write the message to all disks and wait until it counts on most of them."""
        return [*(word for path in self.paths for word in ("-d", path)), "message", self.plug, "off"]


@dataclass(frozen=True)
class DiskTimes:
    """The times in the header of a disk."""

    watchdog_seconds: int
    msgwait_seconds: int


def parse_disks(options: Mapping[str, str], where: str) -> SbdDisks:
    """Return the disks that the options of C(fence_sbd) name. Raises L(InvalidArgument)."""
    values = {name.replace("-", "_"): value for name, value in options.items()}
    paths = tuple(path.strip() for path in values.get("devices", "").split(",") if path.strip())
    if not 1 <= len(paths) <= MOST_DISKS or len(set(paths)) < len(paths) or not all(path.startswith("/") for path in paths):
        raise InvalidArgument(
            f"{where}: its option devices must name one to {MOST_DISKS} different disks.", "Give the paths of the disks on the control node, with commas."
        )
    plug = values.get("plug") or values.get("port") or ""
    if not plug or plug.startswith("-"):
        raise InvalidArgument(f"{where}: its option plug must be the name of the host on the disks.", "That is what 'uname -n' prints on the host.")
    program = values.get("sbd_path") or PROGRAM
    if not program.startswith("/"):
        raise InvalidArgument(f"{where}: its option sbd_path is not an absolute path.", f"Remove it if sbd is {PROGRAM}.")
    return SbdDisks(program, paths, plug)


def parse_times(text: str) -> t.Optional[DiskTimes]:
    """Return the times in what C(sbd dump) printed; null if it is not the header of a disk."""
    found = {name: int(seconds) for name, seconds in _TIMEOUT.findall(text)}
    if "NOT dumped" in text or len(found) < 2 or found["watchdog"] < 1:
        return None
    return DiskTimes(found["watchdog"], found["msgwait"])


def compute_wait(times: Mapping[str, t.Optional[DiskTimes]], where: str) -> int:
    """Return after how many seconds a message counts.

    :arg times: by disk; null for one that cannot be read.
    :raises InvalidArgument: most disks cannot be read, they differ, or a host could be told to end and still run when the message counts.
    """
    known = {path: one for path, one in times.items() if one}
    if len(known) <= len(times) // 2:
        unread = sorted(set(times) - set(known))
        raise InvalidArgument(
            f"{where}: {len(unread)} of its {len(times)} disks cannot be read as disks of sbd: {', '.join(unread)}.",
            "A message counts only on more than half of them. Look at: sbd -d DISK dump.",
        )
    short = next(((path, one) for path, one in known.items() if one.msgwait_seconds < 2 * one.watchdog_seconds), None)
    if short:
        path, one = short
        raise InvalidArgument(
            f"{where}: {path} has a msgwait of {one.msgwait_seconds} s and a watchdog of {one.watchdog_seconds} s:"
            " a host that reads its message late would still run when the message counts.",
            "Create the disk again with a msgwait of twice the watchdog at least: "
            f"sbd -d {path} -1 {one.watchdog_seconds} -4 {2 * one.watchdog_seconds} create.",
        )
    if len(set(known.values())) > 1:
        raise InvalidArgument(f"{where}: its disks have different times: {_list_times(known)}.", "Create all of them with the same ones.")
    return next(iter(known.values())).msgwait_seconds


def _list_times(times: Mapping[str, DiskTimes]) -> str:
    return ", ".join(f"{path} watchdog {one.watchdog_seconds} s, msgwait {one.msgwait_seconds} s" for path, one in times.items())
