# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of two hosts that are switched off, and its fence agent."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FencingConfig, parse_fencing
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, Lab, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}fence"

Configure = t.Callable[..., FencingConfig]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 2) as lab:
        yield lab


@pytest.fixture
def power(lab: Lab) -> t.Iterator[t.Callable[[int], bool]]:
    """Return a function that says whether a host has power; after the test all have."""

    def is_on(number: int) -> bool:
        return lab.try_("fence", lab.host(number), "status").returncode == 0

    yield is_on
    for number in (1, 2):
        lab("poweron", lab.host(number))


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> pathlib.Path:
    """The lab's agent; it prints what it was given, as some do."""
    agent = tmp_path / "fence_lab"
    # An agent does not see our environment, which says where this lab is.
    state = os.environ.get("KVMFLEET_LAB_STATE", "")
    agent.write_text(f"#!/bin/sh\nexport KVMFLEET_LAB_STATE='{state}'\ntee /dev/stderr | '{COMMAND.with_name('fence_lab')}'\n")
    agent.chmod(0o755)
    return agent


@pytest.fixture
def configure(lab: Lab, agent: pathlib.Path) -> Configure:
    """Return a function that gives the C(kvmfleet_fencing) of a host, by the lab's agent."""

    def make(number: int, **options: t.Any) -> FencingConfig:
        given = {"agent": str(agent), "options": {"plug": lab.host(number), "password": "not needed here", **options}}
        config = parse_fencing(given, lab.host(number))
        assert config is not None
        return config

    return make
