# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playing a scenario: its steps in their order, then what it expects, then what always holds."""

from __future__ import annotations

import pathlib
import time

from ...support.fleet import Lab, eventually
from . import invariants
from .located import Located
from .seen import differences
from .stage import Stage
from .text import Scenario, Step, Task

# What libvirt itself still clears away after a move that failed.
END_SECONDS = 300


def play(lab: Lab, folder: pathlib.Path, scenario: Scenario) -> None:
    """Play it. Fails the test, with all that was printed, where anything is not as the text says."""
    with Stage(lab, folder, scenario) as stage:
        try:
            _play(stage)
        except BaseException:
            print(stage.story())
            raise


def _play(stage: Stage) -> None:
    scenario = stage.scenario
    for moment, guest in dict.fromkeys((step.moment, step.guest) for step in scenario.steps if step.kind == "at"):
        stage.moments.arm(moment, guest)
    for index, step in enumerate(scenario.steps):
        try:
            _step(stage, step, scenario.steps[index + 1 :])
        except AssertionError as error:
            raise AssertionError(f"{scenario.file}:{step.line}: {error}") from error
    _await(stage, scenario.expect, END_SECONDS)
    invariants.check(stage)


def _step(stage: Stage, step: Step, later: tuple[Step, ...]) -> None:
    if step.kind in ("begin", "run") and step.task:
        _run(stage, step, step.task)
    elif step.kind == "wait" and step.verdict:
        stage.run(step.name).check(step.verdict, step.limit_seconds)
    elif step.kind == "at":
        _at(stage, step, later)
    elif step.kind == "do":
        stage.do(step.actions)
    elif step.kind == "release":
        stage.moments.release(step.moment, step.guest)
    elif step.seen is not None:
        _await(stage, step.seen, step.limit_seconds)


def _run(stage: Stage, step: Step, task: Task) -> None:
    """Begin a task, and where it is to be waited for, wait; one that is to be repeated is begun again until it ends as it should."""
    limit = time.monotonic() + step.limit_seconds
    while True:
        run = stage.begin(step.name, task)
        if step.verdict is None:
            return None
        try:
            return run.check(step.verdict, step.limit_seconds)
        except AssertionError:
            if not step.repeat or time.monotonic() > limit:
                raise


def _at(stage: Stage, step: Step, later: tuple[Step, ...]) -> None:
    there = stage.moments.wait(step.moment, step.guest, step.times, step.limit_seconds)
    stage.do(step.actions, step.guest, there)
    if step.keep:
        return
    if any(one.kind == "at" and (one.moment, one.guest) == (step.moment, step.guest) for one in later):
        stage.moments.arm(step.moment, step.guest)
    else:
        stage.moments.release(step.moment, step.guest)


def _await(stage: Stage, seen: Located, limit_seconds: float) -> None:
    """Wait until all is as it is expected; say what is not."""
    last: list[str] = []

    def is_so() -> bool:
        last[:] = differences(stage, seen)
        return not last

    try:
        eventually(is_so, "it is as expected", limit_seconds)
    except AssertionError as error:
        raise AssertionError(f"{seen.file}:{seen.line}: {'; '.join(last)}") from error
