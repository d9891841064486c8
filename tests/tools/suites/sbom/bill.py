# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bill of materials as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from .contents import Contents, Library, Need

LICENCES = LicenseFactory()


def bill(contents: Contents, tarball: Path) -> Bom:
    """Return what the tarball is, what of others is in it, and what it needs where it runs."""
    bom = Bom()
    collection = _collection(contents, tarball)
    bom.metadata.component = collection
    bom.metadata.supplier = collection.supplier
    bundled = {one.name: _library(one, contents.bundles()) for one in contents.libraries()}
    needed = [_need(one) for one in contents.needs()]
    bom.components.update([*bundled.values(), *needed])
    bom.register_dependency(collection, [*bundled.values(), *needed])
    for library in contents.libraries():
        bom.register_dependency(bundled[library.name], [bundled[name] for name in library.needs])
    return bom


def text(bom: Bom) -> str:
    """Return it as JSON."""
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def flaw(json: str) -> str | None:
    """Return what CycloneDX's own schema has against it, None for nothing."""
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json)
    return None if error is None else repr(error)


def _collection(contents: Contents, tarball: Path) -> Component:
    info = contents.info
    links = {ExternalReferenceType.VCS: info["repository"], ExternalReferenceType.ISSUE_TRACKER: info["issues"]}
    return Component(
        type=ComponentType.LIBRARY,
        group=info["namespace"],
        name=info["name"],
        version=info["version"],
        description=info["description"],
        licenses=[LICENCES.make_from_string(licence) for licence in info["license"]],
        supplier=OrganizationalEntity(name=", ".join(info["authors"])),
        purl=PackageURL("ansible", info["namespace"], info["name"], info["version"]),
        bom_ref=f"{info['namespace']}.{info['name']}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(tarball.read_bytes()).hexdigest())],
        external_references=[ExternalReference(type=kind, url=XsUri(url)) for kind, url in links.items()],
    )


def _library(library: Library, places: Iterable[str]) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=library.name,
        version=library.version,
        licenses=[LICENCES.make_from_string(library.licence)],
        purl=PackageURL("npm", None, library.name, library.version),
        bom_ref=library.name,
        scope=ComponentScope.REQUIRED,
        evidence=ComponentEvidence(occurrences=[Occurrence(location=place) for place in places]),
    )


def _need(need: Need) -> Component:
    """Return a component that is not in the tarball: it has no version of its own, and its properties say which versions serve, and where it is needed."""
    told = {"kvmfleet:where": need.where, **({"kvmfleet:versions": need.versions} if need.versions else {})}
    return Component(
        type=ComponentType.LIBRARY,
        name=need.name,
        licenses=[LICENCES.make_from_string(need.licence)],
        purl=PackageURL(need.kind, None, need.name),
        bom_ref=need.name,
        scope=ComponentScope.REQUIRED,
        properties=[Property(name=name, value=value) for name, value in told.items()],
    )
