# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-test sanity, with a home of its own: it would otherwise break the user's async folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import interpreters, places, processes
from .results import Results

REPORTS = places.COPY / "tests" / "output" / "junit"
HOST_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
# What the first and the last of them have, those between them have too. The unit tests import all code with 3.11.
OLDEST, NEWEST = HOST_PYTHONS[0], HOST_PYTHONS[-1]
FOR_HOSTS = ("plugins/modules", "plugins/module_utils")
IMPORT = "tests/tools/import_plugins.py"
# It takes minutes for the code of the tests, which ruff and mypy check.
PYLINT, PYLINT_READS = "pylint", "plugins/"
# The virtual environment that ansible-test is in serves, too.
HERE = ("--controller", "origin:python=default")
NOT_APPLICABLE = "No tests applicable."

# ansible-test wants to download this script; pip comes with Python all the same.
GET_PIP = """\
import os, subprocess, sys
options = [option for option in sys.argv[1:] if option not in ("--no-setuptools", "--no-wheel")]
environment = {name: value for name, value in os.environ.items() if name != "GET_PIP"}
subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], env=environment, stdout=subprocess.DEVNULL)
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *options], env=environment))
"""
# Importing all plugins prints nothing, and takes three minutes of a processor that nothing else wants.
SILENT_SECONDS = 1800


def run(results: Results) -> None:
    """Run the sanity tests with the ansible-core of the virtual environment, and import what runs on hosts with their newest Python."""
    targets: list[str] = []
    if interpreters.find(OLDEST):
        targets = ["--target-python", OLDEST]
    else:
        results.skip(f"Python {OLDEST}", "not on this machine")
    run_with(results, places.VENV, "", *HERE, *targets, "--skip-test", PYLINT)
    run_with(results, places.VENV, "", *HERE, "--test", PYLINT, PYLINT_READS)
    _import_host_code(results)


def _import_host_code(results: Results) -> None:
    """Import it in one process; ansible-test takes a process for each file, also of what runs on control nodes."""
    name, python = f"host code is imported with Python {NEWEST}", interpreters.find(NEWEST)
    if python is None:
        results.skip(name, "not on this machine")
        return
    path = f"{places.BUILD}:{places.link_ansible(places.BUILD / 'only-ansible')}"
    results.check(name, [str(python), IMPORT, *FOR_HOSTS], env={**places.environment(), "PYTHONPATH": path})


def run_with(results: Results, venv: Path, prefix: str, *options: str) -> None:
    """Run sanity tests with the ansible-core of that virtual environment and count each.

    :arg options: of C(ansible-test sanity): where to run, and which of the tests.
    """
    _prepare_home()
    shutil.rmtree(REPORTS, ignore_errors=True)
    argv = [places.tool("ansible-test", venv), "sanity", "--junit", "--color", "no", *options]
    ended = processes.run(argv, places.COPY, _environment(venv), hang_seconds=SILENT_SECONDS)
    failed_before = results.failed
    counted = _count(results, prefix)
    if ended.hang:
        results.add(f"{prefix}ansible-test {ended.hang}", passed=False)
    elif not counted or (ended.code != 0 and results.failed == failed_before):
        results.add(f"{prefix}ansible-test ended with {ended.code} after {counted} tests", passed=False)


def _environment(venv: Path) -> dict[str, str]:
    """Return an environment in which ansible-test finds the Pythons there are, and no shim of one that is not."""
    found = [path.parent for path in map(interpreters.find, HOST_PYTHONS) if path]
    path = ":".join(str(folder) for folder in dict.fromkeys([venv / "bin", *found]))
    env = places.environment(venv, PATH=f"{path}:{places.SYSTEM_PATH}", HOME=str(places.HOME))
    env.pop("PYTHONPATH")
    return env


def _prepare_home() -> None:
    """Give ansible-test its pip script, and the caller's pip settings, which it drops from the environment."""
    cache = places.HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("get_pip_24_2.py", "get_pip_25_2.py"):
        (cache / name).write_text(GET_PIP, encoding="utf-8")
    settings = places.HOME / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(_pip_settings(), encoding="utf-8")


def _pip_settings() -> str:
    """Return what pip would use here, from its files and the environment, as one file."""
    pip = [places.tool("python"), "-m", "pip"]
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=True).stdout
    cache = subprocess.run([*pip, "cache", "dir"], capture_output=True, text=True, check=False).stdout.strip()
    settings = {"quiet": "1"}
    if cache and os.access(Path(cache).parent, os.W_OK):
        settings["cache-dir"] = cache
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, dummy, value = line.partition("=")
        section, dummy, key = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            settings[key] = value.strip("'").replace("\\n", "\n    ")
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())


def _count(results: Results, prefix: str) -> int:
    """Count ansible-test's reports, one file a test; those with nothing to look at here are not counted."""
    each = Results(results.suite)
    counted = sum(each.add_junit(report, prefix) for report in sorted(REPORTS.glob("*.xml")))
    each.skips = [skip for skip in each.skips if not skip.endswith(NOT_APPLICABLE)]
    results.passed += each.passed
    results.failed += each.failed
    results.skipped += len(each.skips)
    results.failures += each.failures
    results.skips += each.skips
    return counted
