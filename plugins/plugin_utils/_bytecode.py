# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Imports the code of the collection from bytecode, as Python does with any other code: Ansible compiles all code of a collection again in each process."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types
import typing as t

_PLUGINS = "ansible_collections.kvmfleet.migration.plugins."
# The class of the finder with which Ansible imports collections.
_ANSIBLE = "_AnsibleCollectionFinder"


class BytecodeFinder:
    """Finds the Python files of the collection in folders where Ansible would find them. Python keeps their bytecode, if it may write there."""

    @staticmethod
    def find_spec(name: str, path: t.Sequence[str] | None = None, target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """Return where the code is; None for packages and for code of others."""
        del target
        if not name.startswith(_PLUGINS):
            return None
        files = [os.path.join(folder, f"{name.rpartition('.')[2]}.py") for folder in path or ()]
        return next((importlib.util.spec_from_file_location(name, file) for file in files if os.path.isfile(file)), None)


def use_bytecode() -> None:
    """Have this process import the collection in that way, where Ansible would otherwise do it: the finder is put before Ansible's."""
    names = [type(finder).__name__ for finder in sys.meta_path]
    if _ANSIBLE in names and BytecodeFinder not in sys.meta_path:
        sys.meta_path.insert(names.index(_ANSIBLE), t.cast("t.Any", BytecodeFinder))
