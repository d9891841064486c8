# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All targets by name."""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module

from . import targets as folder
from .target import Target


@functools.cache
def targets() -> dict[str, Target]:
    """Return them; imports every parser."""
    found = [target for module in pkgutil.iter_modules(folder.__path__) for target in import_module(f"{folder.__name__}.{module.name}").TARGETS]
    by_name = {target.name: target for target in found}
    assert len(by_name) == len(found), "two targets have one name"
    return by_name


def names() -> list[str]:
    """Return a line a target: its name, and the engines that it has."""
    return [f"{name} structure{' coverage' if target.seeds else ''}" for name, target in sorted(targets().items())]
