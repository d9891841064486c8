# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the images of the disks that are not copied are there, and are the same ones."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.image_files import BACKING, DATA

from ..fleet import Fleet
from ..hardware import Body
from ..host_state import HostState
from ..places import has_store, store_of
from ..request import Request
from .base import PASS, Finding, Rule

_PATHS = ("file", "dir", "block")
_VOLUME = "volume"


class Storage(Rule):
    """What is known to be absent refuses the host. What is there, and not proved to be the same, is a warning, unless the operator answers for it.

    Presence is what was looked up there; where nobody looked, the stores of both hosts are compared.
    """

    name = "storage"

    def concerns(self, request: Request) -> bool:
        """Return whether any disk is not copied."""
        return bool(request.uncopied_disks)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name disk, image and store."""
        images = (image for disk in request.uncopied_disks for image in (disk, *_files_of(disk)))
        findings = [finding for image in images if (finding := _judged(image, request, host, fleet)) is not PASS]
        findings += [Finding(warnings=(_unknown(disk),)) for disk in request.uncopied_disks if disk.get("files_problem") and not request.unsafe]
        if not findings:
            return PASS
        reasons = [finding.reason for finding in findings if finding.reason]
        return Finding(" ".join(reasons) or None, tuple(warning for finding in findings for warning in finding.warnings))


def _files_of(disk: Body) -> Iterator[Body]:
    """Yield what the disk is built on, each as an image of its own; it is needed where the disk is."""
    for file in disk.get("files") or ():
        yield {**file, "target": disk["target"], "readonly": False, "optional": disk.get("optional")}


def _unknown(disk: Body) -> str:
    return f"What {_image(disk, start=False)} is built on is not known: {disk['files_problem']}."


def _judged(disk: Body, request: Request, host: HostState, fleet: Fleet) -> Finding:
    kind = disk.get("kind")
    if kind == _VOLUME:
        return _by_pool(disk, request, host)
    if kind not in _PATHS:
        return PASS
    present = host.paths.get(disk["source"])
    if present is not False and disk["source"] in host.seen_devices:
        return PASS
    if present is None:
        return _by_store(disk, request, host, fleet)
    return _if_present(disk, request, host) if present else _if_absent(disk)


def _if_absent(disk: Body) -> Finding:
    return PASS if disk.get("optional") else Finding(f"{_image(disk)} is not there.")


def _if_present(disk: Body, request: Request, host: HostState) -> Finding:
    if disk.get("readonly") or request.unsafe:
        return PASS
    if disk.get("shared") is not True:
        return Finding(warnings=(f"{_image(disk)} is there on {host.name}, and that it is the same one is not proved: {_doubt(disk)}.",))
    found = store_of(host.hardware, disk["source"]) if disk.get("store") and disk.get("kind") != "block" else None
    if found is None or found.identity == disk["store"]:
        return PASS
    return Finding(warnings=(f"{_image(disk)} is there on {host.name}, but not by name the same one: {disk['store']}, and there {found}.",))


def _doubt(disk: Body) -> str:
    if disk.get("shared") is False:
        return "it lies on storage of its host alone, and moves only with copy_storage or unsafe"
    if disk.get("kind") == "block":
        return "it moves only once protect has seen the device on both hosts, or with unsafe"
    return "it is not known to be shared"


def _by_store(disk: Body, request: Request, host: HostState, fleet: Fleet) -> Finding:
    if disk.get("optional"):
        return PASS
    found = store_of(host.hardware, disk["source"]) if disk.get("store") and disk.get("kind") != "block" else None
    if found is not None and found.identity == disk["store"]:
        return PASS
    if found is None or _may_be_linked(disk, host, fleet.source_of(request)) or (found.identity and request.unsafe):
        return Finding(warnings=(f"Whether {_image(disk, start=False)} is there on {host.name} is not known.",))
    there = f"{found} is another" if found.identity else f"{found} is not shared"
    return Finding(f"{_image(disk)} lies on {disk['store']}, and what is there at that path, {there}.")


def _may_be_linked(disk: Body, host: HostState, source: HostState | None) -> bool:
    """Whether the path goes through a link at the source, and the host has the store as well: then it may have that link too."""
    at_source = store_of(source.hardware, disk["source"]) if source else None
    return at_source is not None and at_source.identity != disk["store"] and has_store(host.hardware, disk["store"])


def _by_pool(disk: Body, request: Request, host: HostState) -> Finding:
    if host.hardware.pools is None:
        return Finding(warnings=(f"Whether {_image(disk, start=False)} is there on {host.name} is not known.",))
    name = disk["source"].partition("/")[0]
    pool = host.hardware.pools.get(name)
    if pool is None or not pool.get("active"):
        return PASS if disk.get("optional") else Finding(f"{_image(disk)} is in the pool {name}, which {'is not active' if pool else 'it does not have'}.")
    if disk.get("shared") is True or disk.get("readonly") or request.unsafe:
        return PASS
    return Finding(warnings=(f"The pool {name} of {_image(disk, start=False)} is there on {host.name}, and that it is the same one is not proved.",))


def _image(disk: Body, start: bool = True) -> str:
    what = {BACKING: "backing file", DATA: "data file"}.get(disk.get("role") or "", "image")
    return f"{'The' if start else 'the'} {what} {disk['source']} of disk {disk['target'] or 'without a target'}"
