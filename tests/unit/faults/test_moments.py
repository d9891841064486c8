# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each moment that a fault scenario can name is one of the product's functions: a rename of one must not silently leave a scenario without its fault."""

from __future__ import annotations

import importlib
import inspect

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.faults.probe import kvmfleet_moments as m

PROBED = [*m.ON_THE_CONTROL_NODE, *m.ON_A_HOST]


@pytest.mark.parametrize("moment", PROBED, ids=lambda moment: moment.name)
def test_the_function_of_a_moment_is_there(moment: m.Moment) -> None:
    owner, dummy, name = moment.function.rpartition(".")
    module = importlib.import_module(moment.full_module)
    found = getattr(getattr(module, owner) if owner else module, name)
    assert inspect.isfunction(found)
    assert not inspect.isgeneratorfunction(found), "what is before or after a generator's call is no moment"
    assert moment.when in (m.BEFORE, m.AFTER)


def test_each_moment_has_a_name_of_its_own_and_so_have_its_files() -> None:
    names = [moment.name for moment in PROBED] + [*m.OF_LIBVIRT, *m.OF_THE_GUEST]
    assert len(names) == len(set(names)) == len(m.NAMES)
    assert len({m.slug(name, "web") for name in names}) == len(names)


def test_the_file_of_a_moment_has_no_blank_in_its_name() -> None:
    assert m.slug("force: post_copy", "web") == "force--post-copy@web"
