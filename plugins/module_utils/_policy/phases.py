# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of C(domain_policy): reading a domain's definitions and writing the policy into them."""

from __future__ import annotations

import typing as t

from .._errors import KvmfleetError
from .._hypervisor.host import LibvirtHost, open_host
from .._hypervisor.uri import check_uri
from .._migration import hypervisor as h
from .change import Definitions, apply, change_from
from .document import is_same

Work = t.Mapping[str, t.Any]
Result = t.Dict[str, t.Any]


def read(uri: str, work: Work) -> Result:
    """Return C(domain) (uuid, name, what it does, whether it is busy) and C(definitions), the policy's XML in each. Changes nothing."""
    host = open_host(check_uri(uri, "uri"))
    try:
        info = host.find(name=work.get("name"), uuid=work.get("uuid"))
        return {"changed": False, "domain": _described(info), "definitions": host.policies(info.uuid)}
    finally:
        host.close()


def write(uri: str, work: Work) -> Result:
    """Work C(work["change"]) into the definitions as they are now; what is the same already is not written."""
    host = open_host(check_uri(uri, "uri"))
    try:
        before = host.policies(work["uuid"])
        after = apply(change_from(work["change"]), before, work["what"])
        _write_all(host, work, before, after)
        return {"changed": True, "definitions": after}
    finally:
        host.close()


def _described(info: h.DomainInfo) -> Result:
    return {"uuid": info.uuid, "name": info.name, "state": info.view.describe(), "job": info.view.job, "busy": info.view.is_busy}


def _write_all(host: LibvirtHost, work: Work, before: Definitions, after: Definitions) -> None:
    """Write each definition that differs, both in one call where they are to be the same."""
    differing = [scope for scope in sorted(before) if not is_same(before[scope], after[scope])]
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


PHASES: t.Dict[str, t.Callable[[str, Work], Result]] = {"read": read, "write": write}
