# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of the module C(domain_policy): reads the policies in the definitions of domains, and writes them there."""

from __future__ import annotations

import typing as t

from .._libvirt.host import LibvirtHost, open_host
from .._model import domain_states
from .._model.codec import JsonObject
from .._model.errors import KvmfleetError
from .._model.libvirt_formats import check_uri
from .._model.policy_documents import Definitions, apply_change, is_same_policy, read_change
from .._module import Phase, Result


class _ReadPolicies(t.TypedDict):
    """The input of L(read_policies)."""

    name: t.Optional[str]
    uuid: t.Optional[str]


class _WritePolicies(t.TypedDict):
    """The input of L(write_policies)."""

    uuid: str
    change: JsonObject
    what: str


def read_policies(uri: str, work: _ReadPolicies) -> Result:
    """Return C(domain) (its UUID, its name, its state, whether it is busy) and C(definitions), the policy's XML in each. Changes nothing."""
    host = open_host(check_uri(uri, "uri"))
    try:
        info = host.find_domain(name=work.get("name"), uuid=work.get("uuid"))
        return {"changed": False, "domain": _describe_domain(info), "definitions": host.read_policies(info.uuid)}
    finally:
        host.close()


def write_policies(uri: str, work: _WritePolicies) -> Result:
    """Apply C(work["change"]) to the current definitions; a definition that does not change is not written."""
    host = open_host(check_uri(uri, "uri"))
    try:
        before = host.read_policies(work["uuid"])
        after = apply_change(read_change(work["change"]), before, work["what"])
        _write_definitions(host, work, before, after)
        return {"changed": True, "definitions": after}
    finally:
        host.close()


def _describe_domain(info: domain_states.DomainInfo) -> Result:
    return {"uuid": info.uuid, "name": info.name, "state": info.view.describe(), "job": info.view.job, "busy": info.view.is_busy}


def _write_definitions(host: LibvirtHost, work: _WritePolicies, before: Definitions, after: Definitions) -> None:
    """Write each definition that differs, both in one call if they are to be the same."""
    differing = [scope for scope in sorted(before) if not is_same_policy(before[scope], after[scope])]
    texts = {after[scope]: [twin for twin in differing if after[twin] == after[scope]] for scope in differing}
    written: t.List[str] = []
    for xml, scopes in texts.items():
        try:
            host.set_policy(work["uuid"], xml, scopes)
        except KvmfleetError as error:
            if written:
                raise type(error)(
                    f"{error.message} The {' and '.join(written)} definition of {work['what']} has the new policy already.", "Run the task again."
                ) from error
            raise
        written += scopes


PHASES: t.Dict[str, Phase] = {"read": read_policies, "write": write_policies}
