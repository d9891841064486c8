# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(python -m ansible_collections.kvmfleet.migration.tests.soak): one soak in a lab of its own, as root."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import typing as t
from types import FrameType

from . import evidence
from .actions import Action
from .draw import Drawing
from .journal import Journal, read
from .model import Violation
from .soak import Soak
from .stage import GUESTS, Stage

PREFIX = os.environ.get("KVMFLEET_LAB_PREFIX") or "kvs"
# What a replay may take: its actions end it.
LONGEST_SECONDS = 24 * 3600.0


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)
    arguments = _arguments()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000)
    actions: t.Iterable[Action] = read(arguments.replay) if arguments.replay else Drawing(seed, list(GUESTS))
    name = f"replay-of-{arguments.replay.parent.name}" if arguments.replay else str(seed)
    folder = _emptied(arguments.folder / name)
    journal = Journal(folder / "journal.jsonl", {"seed": seed, "minutes": arguments.minutes, "replay": str(arguments.replay or "")})
    seconds = LONGEST_SECONDS if arguments.replay else arguments.minutes * 60
    print(f"soak: seed {seed}, {'a replay' if arguments.replay else f'{arguments.minutes:g} minutes'}, kept in {folder}", flush=True)
    with Stage(PREFIX, folder) as stage:
        return _soak(stage, journal, actions, seconds)


def _soak(stage: Stage, journal: Journal, actions: t.Iterable[Action], seconds: float) -> int:
    soak = Soak(stage, journal)
    journal.begin()
    try:
        soak.run(actions, seconds)
    except BaseException as why:
        _tell(why, stage, journal)
        print("\n".join(soak.figures.lines()), flush=True)
        if isinstance(why, Violation):
            return 1
        raise
    print("\n".join(soak.figures.lines()), flush=True)
    missing = soak.figures.not_enough()
    print(f"NOT ENOUGH: {', '.join(missing)}" if missing else "CLEAN", flush=True)
    (stage.folder / "figures.json").write_text(json.dumps(soak.figures.lines(), indent=1), encoding="utf-8")
    return 1 if missing else 0


def _tell(why: BaseException, stage: Stage, journal: Journal) -> None:
    journal.note(f"{type(why).__name__}: {why}")
    kept = evidence.keep(stage, journal, why)
    print("\nThe last actions:", *journal.last(), sep="\n")
    if isinstance(why, Violation):
        hosts = f" on hosts {', '.join(map(str, why.hosts))}" if why.hosts else ""
        print(f"\nVIOLATION: {why.what}{f' (guest {why.guest}{hosts})' if why.guest else hosts}")
    else:
        print(f"\nBROKEN OFF: {type(why).__name__}: {why}")
    print(f"The evidence is in {kept}\nThe same once more: make soak REPLAY={stage.folder / 'journal.jsonl'}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long things happen; the last settling run comes after that (10)")
    parser.add_argument("--seed", type=int, help="the same seed draws the same actions (a new one each time)")
    parser.add_argument("--replay", type=pathlib.Path, metavar="FILE", help="play the actions of that journal")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("soak"), help="where a folder for each seed is made (soak)")
    return parser.parse_args()


def _emptied(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder, absolute and empty; what a soak that was killed has mounted in it is gone."""
    folder = folder.absolute()
    while (folder / "ledger").is_mount():
        subprocess.run(["umount", "-l", str(folder / "ledger")], check=True)
    if folder.exists():
        before = folder.with_name(f"{folder.name}-before-{int(time.time())}")
        shutil.move(folder, before)
    folder.mkdir(parents=True)
    return folder


def _leave(number: int, dummy_frame: FrameType | None) -> t.NoReturn:
    """Turn the signal into an exception, so that the lab is taken down."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
