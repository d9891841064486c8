# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nobody changes by accident what users rely on: options and return values are those that are kept beside this file."""

from __future__ import annotations

import copy
import difflib
import typing as t

import pytest

from . import interface
from .conftest import Documents

TO_DO = "Take the change back, or, if users are to live with it: tell them in a changelog fragment, and keep it with 'make interface'."
MODULE = "kvmfleet.migration.live_migrate"
ROLE = "kvmfleet.migration.drain_host"


def test_the_public_interface_equals_the_stored_one(documents: dict[str, Documents]) -> None:
    kept, told = (text.splitlines(keepends=True) for text in (interface.KEPT.read_text(encoding="utf-8"), interface.text(documents)))
    difference = "".join(difflib.unified_diff(kept, told, f"tests/unit/docs/{interface.KEPT.name}", "what ansible-doc tells"))
    if difference:
        pytest.fail(f"The public interface is another one:\n{difference}{TO_DO}", pytrace=False)


def options(documents: dict[str, Documents]) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", documents["module"][MODULE]["doc"]["options"])


CHANGES: dict[str, t.Callable[[dict[str, Documents]], object]] = {
    "a module is gone": lambda documents: documents["module"].pop(MODULE),
    "an option is gone": lambda documents: options(documents).pop("stall_seconds"),
    "an option is new": lambda documents: options(documents).update(wish={"type": "str", "description": ["New."]}),
    "another default": lambda documents: options(documents)["stall_seconds"].update(default=61),
    "another type": lambda documents: options(documents)["stall_seconds"].update(type="float"),
    "a choice more": lambda documents: options(documents)["on_timeout"]["choices"].append("ask"),
    "an alias": lambda documents: options(documents)["stall_seconds"].update(aliases=["stall"]),
    "needed now": lambda documents: options(documents)["stall_seconds"].update(required=True),
    "an inner option is gone": lambda documents: options(documents)["moves"]["suboptions"].pop("destination"),
    "no check mode": lambda documents: documents["module"][MODULE]["doc"]["attributes"]["check_mode"].update(support="none"),
    "another return type": lambda documents: documents["module"][MODULE]["return"]["migrations"].update(elements="str"),
    "an inner return value is gone": lambda documents: documents["module"][MODULE]["return"]["migrations"]["contains"].pop("status"),
    "a role's option is gone": lambda documents: documents["role"][ROLE]["entry_points"]["main"]["options"].pop("drain_host_parallel"),
    "an entry point is gone": lambda documents: documents["role"][ROLE]["entry_points"].pop("main"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_interface_is_detected(documents: dict[str, Documents], change: str) -> None:
    changed = copy.deepcopy(documents)
    CHANGES[change](changed)
    assert interface.text(changed) != interface.text(documents)


def test_a_changed_description_is_not_a_change_of_the_interface(documents: dict[str, Documents]) -> None:
    changed = copy.deepcopy(documents)
    options(changed)["stall_seconds"]["description"] = ["Said better."]
    assert interface.text(changed) == interface.text(documents)
