# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clocks that can jump, on a site that only records its calls."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.soak.clocks import CONTROL, Clocks

_PROGRAM = "import time; begin = time.monotonic(); time.sleep(0.2); print(time.time(), time.monotonic() - begin)"


class Site:
    def __init__(self) -> None:
        self.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/mine"}
        self.interpreters: dict[int, str] = {}

    def variable(self, number: int, dummy_name: str, value: t.Any) -> None:
        self.interpreters[number] = value


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def clocks(site: Site, tmp_path: pathlib.Path) -> Clocks:
    return Clocks(site, tmp_path)  # type: ignore[arg-type]


def read_clocks(program: str, environment: dict[str, str]) -> tuple[float, float]:
    done = subprocess.run([program, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    wall, slept = map(float, done.stdout.split())
    return wall - time.time(), slept


def test_a_wrong_clock_of_the_control_node_does_not_change_sleeps(site: Site, clocks: Clocks) -> None:
    right = dict(site.environment)
    clocks.jump(CONTROL, 3600)
    assert site.environment["PYTHONPATH"].endswith(":/mine")
    wrong, slept = read_clocks(sys.executable, site.environment)
    assert wrong > 3000
    assert slept >= 0.2
    clocks.jump(CONTROL, 0)
    assert site.environment == right


def test_a_wrong_clock_applies_to_the_python_of_its_host_alone(site: Site, clocks: Clocks) -> None:
    clocks.jump(2, -3600)
    assert read_clocks(site.interpreters[2], {"PATH": os.environ["PATH"]})[0] < -3000
    assert abs(read_clocks(site.interpreters[1], {"PATH": os.environ["PATH"]})[0]) < 1000
    clocks.right()
    assert abs(read_clocks(site.interpreters[2], {"PATH": os.environ["PATH"]})[0]) < 1000
