# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a saved definition is the one that its document tells of. The ledger is a folder of files: anything may stand in one."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from .._errors import Unsafe
from .._facts.volumes import source_of
from .._xml import NotXml, parse_xml

Json = t.Mapping[str, t.Any]


def check_saved(order: Json, emulators: t.Collection[str]) -> None:
    """Raise L(Unsafe) unless the definition is one of this domain, with exactly the disks that were proved.

    :arg order: C(uuid), C(name), C(definition), C(sources) (target and source of each disk by the request), C(disks) (those of the document).
    :arg emulators: the programs that this host runs guests with.
    """
    root = _parsed(order)
    for what, found in (("UUID", (root.findtext("uuid") or "").strip().lower()), ("name", (root.findtext("name") or "").strip())):
        wanted = order[what.lower()]
        if found != wanted:
            raise _spoilt(order, f"it is of a domain with the {what} {found[:80]!r}")
    emulator = root.findtext("devices/emulator")
    if emulator is not None and emulator.strip() not in emulators:
        raise _spoilt(order, f"it is run by {emulator.strip()[:80]!r}, which is no emulator of this host ({', '.join(emulators)})")
    there = sorted((_target(disk), source_of(disk.find("source"))) for disk in root.findall("devices/disk"))
    if there != sorted((str(target), str(source)) for target, source in order["sources"]):
        raise _spoilt(order, f"its disks are {_named(there)}, and not those that were saved with it: {_named(order['sources'])}")
    proved = {disk["target"]: disk for disk in order["disks"]}
    strange = [target for target, source in there if target not in proved or not _is_of(proved[target], source)]
    if strange or len(proved) != len(there):
        raise _spoilt(order, f"what was proved of its disks is not about {', '.join(strange) or 'all of them'}")


def _parsed(order: Json) -> ElementTree.Element:
    text = order["definition"]
    if not isinstance(text, str) or not text.strip():
        raise _spoilt(order, "there is none")
    try:
        root = parse_xml(text)
    except NotXml as error:
        raise _spoilt(order, str(error)) from error
    if root.tag != "domain":
        raise _spoilt(order, f"it is no domain, but {root.tag[:80]!r}")
    return root


def _target(disk: ElementTree.Element) -> str:
    target = disk.find("target")
    return target.get("dev", "") if target is not None else ""


def _is_of(disk: Json, source: str) -> bool:
    # A volume was saved as what it is in its pool.
    return disk["path"] == source or not source.startswith("/")


def _named(disks: t.Iterable[t.Sequence[t.Any]]) -> str:
    return ", ".join(f"{target} on {str(source)[:200] or 'nothing'}" for target, source in disks) or "none"


def _spoilt(order: Json, why: str) -> Unsafe:
    return Unsafe(
        f"The saved definition of domain {order['name']} ({order['uuid']}) cannot be used: {why}. It was not started.",
        "See its document in the ledger; protect the host that has the domain again once it is back.",
    )
