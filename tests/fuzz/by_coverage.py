# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Atheris (libFuzzer) as the engine: bytes that reach new branches of the parser are kept and changed further. It ends the process."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

from . import registry
from .target import Target
from .watch import observe

COLLECTION = "ansible_collections.kvmfleet.migration.plugins"
LONGEST_BYTES = 16384
# Beside our own limit of processor time, which does not reach into C code.
_WALL_SECONDS = 300


def targets() -> dict[str, Target]:
    """Return all targets, with every parser that they import instrumented. To be called before they are loaded in any other way."""
    import atheris

    with atheris.instrument_imports(include=[COLLECTION], enable_loader_override=False):
        return registry.targets()


def run(target: Target, cases: int, number: int, folder: Path) -> t.NoReturn:
    """Run so many cases. Never returns: libFuzzer ends the process, with 0 or, after it has written the case into the folder, with another code."""
    import atheris

    corpus = folder / f"{target.name}.corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for index, one in enumerate(target.seeds):
        (corpus / f"seed-{index}").write_bytes(one)
    limits = [f"-runs={cases}", f"-max_len={LONGEST_BYTES}", f"-timeout={_WALL_SECONDS}", "-rss_limit_mb=0"]
    options = [f"-seed={number}", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={folder}/{target.name}-"]
    atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], lambda data: observe(target, bytes(data)))
    atheris.Fuzz()
    raise SystemExit("the fuzzer came back")
