# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Variables that look like a mistyped option of a role. Ansible ignores them without a word."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable

from .options import find_similar


def find_mistyped(names: Iterable[str], role: str, options: Collection[str]) -> list[str]:
    """Return a sentence on each variable that begins with the name of the role, is none of its options, and has nearly the name of one.

    All others are taken for variables of the user's own.
    """
    ends = {option.removeprefix(f"{role}_"): option for option in options}
    unknown = sorted(name for name in names if name.startswith(f"{role}_") and name not in options)
    meant = {name: find_similar(name.removeprefix(f"{role}_"), ends) for name in unknown}
    return [f"{name} is not an option of the role {role} and has no effect. Is {ends[found]} meant?" for name, found in meant.items() if found]


def list_options(specs: t.Any) -> set[str]:
    """Return the options of all entry points of a role, from its file C(meta/argument_specs.yml)."""
    return {option for entry in specs["argument_specs"].values() for option in entry.get("options", {})}
