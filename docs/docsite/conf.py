# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sphinx's settings for the site of the documentation, which the suite "docs" builds."""

from __future__ import annotations

import posixpath
import re
import typing as t

from docutils import nodes

project = "kvmfleet.migration"
project_copyright = "The kvmfleet.migration developers"
html_title = project

extensions = ["myst_parser", "sphinx_antsibull_ext"]
html_theme = "furo"
pygments_style = "ansible"
highlight_language = "YAML+Jinja"
html_show_sphinx = False
html_copy_source = False
html_use_index = False
nitpicky = True
# Links to headings, as the forge makes them.
myst_heading_anchors = 3

REPOSITORY = "https://github.com/kvmfleet/migration/blob/main/"
# Labels of Ansible's own documentation; no network is needed to build the site.
ANSIBLE = "https://docs.ansible.com/ansible/latest/"
LABELS = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#]+)")


def setup(app: t.Any) -> dict[str, t.Any]:
    """Let links out of the site lead to the repository, and labels of Ansible's to Ansible's."""
    app.connect("source-read", _lead_outside)
    app.connect("missing-reference", _lead_to_ansible)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _lead_outside(app: t.Any, document: str, source: list[str]) -> None:
    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(document), link[1]))
        is_here = path.removesuffix(".md") in app.env.found_docs
        return link[0] if is_here else f"]({REPOSITORY}{path}"

    source[0] = _LINK.sub(target, source[0])


def _lead_to_ansible(_app: t.Any, _env: t.Any, node: t.Any, content: t.Any) -> nodes.reference | None:
    page = LABELS.get(node["reftarget"])
    return nodes.reference("", "", content, internal=False, refuri=ANSIBLE + page) if page else None
