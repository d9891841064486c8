# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the bill of materials tells of everything that is not ours: REUSE says for each file whose it is, and under which licence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component
from license_expression import get_spdx_licensing

from .contents import Contents

OURS = "GPL-3.0-or-later"
HOLDER = "The kvmfleet.migration developers"
SPDX = get_spdx_licensing()


@dataclass(frozen=True)
class Foreign:
    """A file that is not ours alone."""

    path: str
    licences: frozenset[str]
    holders: frozenset[str]


def foreign(reuse: dict[str, Any]) -> list[Foreign]:
    """Return the files with another licence or another holder of copyright, of what C(reuse lint --json) says."""
    files = [_file(one) for one in reuse["files"]]
    return [one for one in files if one.licences or one.holders]


def missing(contents: Contents, bom: Bom, reuse: dict[str, Any]) -> list[str]:
    """Return what the bill does not tell, or tells wrongly, as sentences."""
    others = {one.path: one for one in foreign(reuse) if one.path in contents.files}
    bundled = [component for component in bom.components if component.evidence]
    return [
        *(problem for one in others.values() for problem in _untold(one, [component for component in bundled if one.path in _places(component)])),
        *(problem for component in bundled for problem in _untrue(component, others)),
        *_other_versions(contents, bundled),
    ]


def _file(told: dict[str, Any]) -> Foreign:
    expressions = [SPDX.parse(one["value"]) for one in told["spdx_expressions"]]
    licences = {str(symbol) for expression in expressions for symbol in expression.symbols}
    holders = {one["value"] for one in told["copyrights"] if HOLDER not in one["value"]}
    return Foreign(told["path"], frozenset(licences - {OURS}), frozenset(holders))


def _places(component: Component) -> set[str]:
    return {occurrence.location for occurrence in component.evidence.occurrences} if component.evidence else set()


def _licences(component: Component) -> set[str]:
    found = [getattr(one, "value", None) or one.id or one.name for one in component.licenses]
    return {str(symbol) for one in found for symbol in SPDX.parse(one).symbols}


def _untold(file: Foreign, components: list[Component]) -> list[str]:
    """Return what REUSE found in a file and no component that is there has."""
    untold = file.licences - {licence for component in components for licence in _licences(component)}
    problems = [f"{file.path} has something under {licence}, and no component of the bill that is there has that licence." for licence in sorted(untold)]
    if not components and not untold:
        problems.append(f"{file.path} belongs to {', '.join(sorted(file.holders))}, and no component of the bill is there.")
    return problems


def _untrue(component: Component, others: dict[str, Foreign]) -> list[str]:
    """Return the places of a component at which REUSE finds no such licence."""
    places = _places(component)
    wrong = {place for place in places if not _licences(component) <= (others[place].licences if place in others else set())}
    problems = [f"{place} has {component.name} in it, and REUSE finds no {', '.join(sorted(_licences(component)))} there." for place in sorted(wrong)]
    return problems or ([] if places else [f"{component.name} is nowhere in the tarball."])


def _other_versions(contents: Contents, bundled: list[Component]) -> list[str]:
    told = {component.name: component.version for component in bundled}
    return [
        f"{place} has {name} {version} in it, and the bill says {told.get(name)}."
        for place, versions in contents.bundles().items()
        for name, version in versions.items()
        if told.get(name) != version
    ]
