# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The case of a finding as a file: bytes as they are, anything else as JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from .mutation import text_of
from .target import Case


def write(folder: Path, target: str, case: Case) -> Path:
    """Leave the case in the folder and return the file, which L(read) takes."""
    data, kind = (case, "bytes") if isinstance(case, bytes) else (text_of(case).encode("ascii"), "json")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}.{kind}"
    path.write_bytes(data)
    return path


def read(path: Path) -> Case:
    """Return the case of a file: JSON where its name ends so, else bytes, as libFuzzer leaves them too."""
    data = path.read_bytes()
    return json.loads(data) if path.suffix == ".json" else data
