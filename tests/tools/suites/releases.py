# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The supported releases of ansible-core beside the one of the virtual environment, where their Python is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import interpreters, places
from .results import Results

PYTHON_OF = {"2.18": "3.11", "2.20": "3.12", "2.21": "3.12"}
# What the first and the last have in common with that of the virtual environment, those between them have too.
ENDS = ("2.18", "2.21")


@dataclass(frozen=True)
class Release:
    """One of them: its version, and its virtual environment."""

    version: str
    venv: Path

    @property
    def prefix(self) -> str:
        """What its results are called."""
        return f"ansible-core {self.version}: "


def others(results: Results, chosen: Iterable[str] = tuple(PYTHON_OF)) -> Iterator[Release]:
    """Yield each of the chosen with its virtual environment; one without Python is skipped, and one that cannot be installed has failed."""
    for release in chosen:
        version = PYTHON_OF[release]
        python = interpreters.find(version)
        venv = places.BUILD / f"venv-core{release}"
        minor = int(release.split(".")[1])
        if python is None:
            results.skip(f"ansible-core {release}", f"no Python {version} with venv on this machine")
        elif not interpreters.make_venv(python, venv, [f"ansible-core>={release},<2.{minor + 1}"]):
            results.add(f"ansible-core {release}: no virtual environment", passed=False)
        else:
            yield Release(release, venv)
