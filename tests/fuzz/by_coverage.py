# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Atheris (libFuzzer) as the engine: bytes that reach new branches of the parser are kept and changed further."""

from __future__ import annotations

import os
import shutil
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


def run(target: Target, cases: int, number: int, folder: Path) -> bool:
    """Run so many cases; return whether none was a finding, else it is in the folder."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # The fuzzer ends its process without a word to Python, which has a folder to remove.
        _fuzz(target, cases, number, folder)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _fuzz(target: Target, cases: int, number: int, folder: Path) -> t.NoReturn:
    import atheris

    corpus = folder / f"{target.name}.corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True)
    for index, one in enumerate(target.seeds):
        (corpus / f"seed-{index}").write_bytes(one)
    limits = [f"-runs={cases}", f"-max_len={LONGEST_BYTES}", f"-timeout={_WALL_SECONDS}", "-rss_limit_mb=0"]
    options = [f"-seed={number}", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={folder}/{target.name}-"]
    atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], lambda data: observe(target, bytes(data)))
    atheris.Fuzz()
    raise SystemExit("the fuzzer came back")
