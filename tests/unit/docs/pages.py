# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages of the documentation, and the anchors of their headings."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def make_anchor(title: str) -> str:
    """Return the anchor of a heading, as the forge makes it."""
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


def anchors(page: pathlib.Path) -> set[str]:
    """Return the anchors of all headings of a page."""
    return {make_anchor(title) for title in _HEADING.findall(page.read_text(encoding="utf-8"))}
