# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a ledger's folder holds, by digests."""

from __future__ import annotations

import hashlib
import pathlib
import typing as t


def digests(folder: pathlib.Path) -> t.Dict[str, str]:
    """Return SHA-256 of each file of a ledger that means anything, by its path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock" and path.stat().st_size)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
