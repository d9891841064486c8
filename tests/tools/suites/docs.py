# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation as a site, in which every link and every reference leads to a page: .build/site/html/index.html."""

from __future__ import annotations

import shutil

from . import places
from .results import Results

COLLECTION = "kvmfleet.migration"
SITE = places.BUILD / "site"
SOURCE = SITE / "source"
SETTINGS = places.COPY / "docs" / "docsite"
# Pages besides those of plugins and roles, which antsibull-docs writes.
PAGES = ("*.md", "docs/**/*.md", "roles/*/README.md", "tests/*/README.md")
NOT_PAGES = {"docs/docsite/index.md", "CODE_OF_CONDUCT.md"}


def run(results: Results) -> None:
    """Write the reference, put the guides beside it, and build the site; a warning is a failure."""
    shutil.rmtree(SITE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    reference = SOURCE / "collection"
    reference.mkdir(mode=0o755)
    written = ["collection", "--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", str(reference), COLLECTION]
    if not results.check("reference", [places.tool("antsibull-docs"), *written], quiet=True):
        return
    _copy_pages()
    sphinx = [places.tool("python"), "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    results.check("site", [*sphinx, "-c", str(SETTINGS), str(SOURCE), str(SITE / "html")])


def _copy_pages() -> None:
    for page in {page for pattern in PAGES for page in places.COPY.glob(pattern)}:
        name = page.relative_to(places.COPY)
        if str(name) not in NOT_PAGES:
            (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, SOURCE / name)
    shutil.copy(SETTINGS / "index.md", SOURCE / "index.md")
