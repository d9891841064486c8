# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Linters of code, imports, YAML, changelog, documentation and licences, and the check of commit subjects."""

from __future__ import annotations

from . import commits, places
from .results import Results

# Each reference has to lead somewhere, also into Ansible's own collection; what nobody here knows is none.
REFERENCES = ("--validate-collection-refs=all", "--disallow-unknown-collection-refs", "--check-extra-docs-refs")
CHECKS = {
    "ruff": ["ruff", "check", "."],
    "ruff-format": ["ruff", "format", "--diff", "."],
    "imports": ["lint-imports", "--no-cache"],
    "yamllint": ["yamllint", "--strict", "."],
    "ansible-lint": ["ansible-lint", "--offline", "--strict", "--profile", "production"],
    "changelog": ["antsibull-changelog", "lint"],
    "docs": ["python", "tests/tools/lint_documentation.py", "lint-collection-docs", "--plugin-docs", *REFERENCES, "--no-skip-rstcheck", "."],
}


def run(results: Results) -> None:
    """Run each linter on the copy; reuse on the checkout, where git tells it what is ignored."""
    for name, (tool, *arguments) in CHECKS.items():
        results.check(name, [places.tool(tool), *arguments])
    results.check("reuse", [places.tool("reuse"), "lint"], cwd=places.ROOT)
    commits.run(results)
