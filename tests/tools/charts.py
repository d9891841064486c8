# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the chart library of the report's page: what tests/browser/charts.mjs names of Apache ECharts, in one file that is kept in the tree.

The packages come from npm, each of the one version and with the hash that tests/browser/package-lock.json has. "make charts" writes the file anew,
--check says whether it is what these packages make, --install only brings the packages.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "browser"
LIBRARY = Path("plugins", "plugin_utils", "_observe", "report", "page", "echarts.min.js")
NODE = ROOT / ".build" / "node"
MODULES = NODE / "node_modules"
NAMES = ("package.json", "package-lock.json", ".npmrc", "charts.mjs")
# REUSE-IgnoreStart: this is said of what the script makes, not of the script.
HEAD = """/*!
 * Apache ECharts {echarts} with ZRender {zrender} and tslib, made by tests/tools/charts.py. Do not edit.
 * SPDX-FileCopyrightText: 2017-2026 The Apache Software Foundation
 * SPDX-FileCopyrightText: 2017 Baidu Inc.
 * SPDX-FileCopyrightText: 2010-2017 Mike Bostock (d3)
 * SPDX-FileCopyrightText: Microsoft Corporation
 * SPDX-License-Identifier: Apache-2.0 AND BSD-3-Clause AND 0BSD
{notice}
 */
"""
# REUSE-IgnoreEnd


def main() -> int:
    _install()
    if sys.argv[1:] == ["--install"]:
        return 0
    made = _bundle()
    if sys.argv[1:] == ["--check"]:
        if (ROOT / LIBRARY).read_text(encoding="utf-8") == made:
            return 0
        print(f"{LIBRARY} is not what the packages of tests/browser/package-lock.json make. Write it anew with: make charts", file=sys.stderr)
        return 1
    (ROOT / LIBRARY).write_text(made, encoding="utf-8")
    return 0


def _install() -> None:
    """Bring the packages to .build/node; nothing is done where they are there already. npm compares the hashes, and runs no script of a package."""
    contents = {name: (SOURCES / name).read_bytes() for name in NAMES}
    stamp, total = NODE / ".complete", hashlib.sha256(b"\0".join(contents.values())).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == total:
        return
    shutil.rmtree(NODE, ignore_errors=True)
    NODE.mkdir(parents=True)
    for name, content in contents.items():
        (NODE / name).write_bytes(content)
    subprocess.run(["npm", "ci", "--silent", "--no-update-notifier"], cwd=NODE, check=True, stdin=subprocess.DEVNULL)
    stamp.write_text(total, encoding="utf-8")


def _bundle() -> str:
    options = [
        "--bundle",
        "--minify",
        "--format=iife",
        "--global-name=echarts",
        "--target=es2020",
        "--charset=ascii",
        "--legal-comments=none",
        "--log-level=error",
    ]
    argv = [str(MODULES / ".bin" / "esbuild"), "charts.mjs", *options]
    code = subprocess.run(argv, cwd=NODE, check=True, capture_output=True, text=True, env={**os.environ, "NODE_ENV": "production"}).stdout
    versions = {name: json.loads((MODULES / name / "package.json").read_text(encoding="utf-8"))["version"] for name in ("echarts", "zrender")}
    notice = (MODULES / "echarts" / "NOTICE").read_text(encoding="utf-8").strip().splitlines()
    return HEAD.format(**versions, notice="\n".join(f" * {line}".rstrip() for line in ["", *notice])) + code


if __name__ == "__main__":
    sys.exit(main())
