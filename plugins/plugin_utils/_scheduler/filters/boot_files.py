# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the host has the files that QEMU reads when it starts the guest."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.needed_files import NAMES, nvram_folder

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from .base import PASS, Finding, Rule


class BootFiles(Rule):
    """Rejects a host on which such a file was looked for and is absent. Content is not compared, because the guest's memory already holds it."""

    name = "boot_files"

    def concerns(self, request: Request) -> bool:
        """Return whether the guest has such files."""
        return bool(request.boot_files or request.nvram)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name each absent file, and the absent folder of the firmware variables."""
        absent = [f"The {NAMES.get(file['what'], file['what'])} {file['path']} is not there." for file in request.boot_files if _is_absent(file["path"], host)]
        folder = nvram_folder(request.nvram)
        if folder and _is_absent(folder, host):
            absent.append(f"The folder {folder}, where its firmware variables belong, is not there.")
        return Finding(" ".join(absent)) if absent else PASS


def _is_absent(path: str, host: HostState) -> bool:
    return host.paths.get(path) is False
