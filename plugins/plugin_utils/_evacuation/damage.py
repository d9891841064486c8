# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Domains whose documents were damaged: the ledger has set them aside, and does not list them any more. They may have been on the dead host."""

from __future__ import annotations

import os
import re

from .._ledger.file_store import FileLedger
from .._ledger.shelf import SET_ASIDE
from .._ledger.store import Ledger

_NAME = re.compile(r"domains-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-.*")


def damaged_domains(ledger: Ledger) -> list[str]:
    """Return the UUIDs of domains that have a document set aside, and none in its place."""
    if not isinstance(ledger, FileLedger):
        return []
    there = {document.body["uuid"] for document in ledger.domains()}
    folder = os.path.join(ledger.path, *SET_ASIDE)
    found = {match[1] for match in map(_NAME.fullmatch, os.listdir(folder)) if match} if os.path.isdir(folder) else set()
    return sorted(found - there)
