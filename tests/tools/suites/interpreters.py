# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python interpreters beside the one that runs the tools, where this machine has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import places


def find(version: str) -> Path | None:
    """Return a working interpreter of that version (e.g. C(3.9)) from the PATH or from pyenv; None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [Path(path) for path in [shutil.which(f"python{version}", path=places.SYSTEM_PATH)] if path]
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    return next((path for path in candidates if _is(path, version)), None)


def _is(path: Path, version: str) -> bool:
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def make_venv(python: Path, venv: Path, requirements: list[str], *options: str) -> bool:
    """Make a virtual environment with these requirements unless it is there; whether it can be used.

    :arg options: more words for C(python -m venv).
    """
    stamp = venv / ".complete"
    wanted = f"{' '.join([str(python), *options, *requirements])}\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return True
    steps = ([str(python), "-m", "venv", "--clear", *options, str(venv)], [places.tool("python", venv), "-m", "pip", "install", "-q", *requirements])
    if any(subprocess.run(step, check=False, timeout=600).returncode for step in steps):
        return False
    stamp.write_text(wanted, encoding="utf-8")
    return True
