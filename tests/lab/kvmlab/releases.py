# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which Debian release a host runs: the machine's own, or another one from a root folder that was made for it."""

from __future__ import annotations

import pathlib
import re
import typing as t

from .errors import UsageError

OS_RELEASE = pathlib.Path("/etc/os-release")
SPELLING = re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?::(?P<numbers>[1-9](?:,[1-9])*))?")


def own(os_release: pathlib.Path = OS_RELEASE) -> str:
    """Return the code name of the machine's own release; C(machine) where it has none."""
    match = re.search(r'^VERSION_CODENAME="?([^"\n]+)"?$', os_release.read_text() if os_release.exists() else "", re.MULTILINE)
    return match[1] if match else "machine"


def wanted(values: t.Iterable[str], count: int) -> t.Dict[int, str]:
    """Return the release of each host that one was given for.

    :arg values: each a release for all hosts, e.g. C(trixie), or for some of them by number, e.g. C(trixie:1,3).
    :raises UsageError: a value is neither, or names a host that there is not, or one host has two releases.
    """
    found: t.Dict[int, str] = {}
    for value in values:
        name, numbers = _read(value, count)
        for number in numbers:
            if found.setdefault(number, name) != name:
                raise UsageError(f"The host {number} cannot run both {found[number]} and {name}.")
    return found


def checked(name: str) -> str:
    """Return the name of a release. Raises L(UsageError) for what cannot be one."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise UsageError(f"{name!r} is no release: give its code name, e.g. trixie.")
    return name


def _read(value: str, count: int) -> t.Tuple[str, t.List[int]]:
    match = SPELLING.fullmatch(value)
    if not match:
        raise UsageError(f"{value!r} is no release: give its code name for all hosts, e.g. trixie, or for some by number, e.g. trixie:1,3.")
    numbers = [int(number) for number in match["numbers"].split(",")] if match["numbers"] else list(range(1, count + 1))
    if max(numbers, default=0) > count:
        raise UsageError(f"{value!r} names the host {max(numbers)}, and the lab has {count}.")
    return match["name"], numbers
