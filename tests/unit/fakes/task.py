# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a task without Ansible."""

from __future__ import annotations

import typing as t

Variables = t.Dict[str, t.Any]


class FakeHostvars(t.Dict[str, t.Any]):
    """C(hostvars) of plain values."""

    def raw_get(self, host: str) -> Variables:
        return self[host]


def task_vars(host: str, own: t.Optional[Variables] = None, others: t.Optional[t.Dict[str, Variables]] = None) -> Variables:
    """Return what an action plugin gets for a task of that host.

    :arg own: the host's variables.
    :arg others: those of the other hosts of the inventory.
    """
    hosts = FakeHostvars({name: {"inventory_hostname": name, **variables} for name, variables in {**(others or {}), host: own or {}}.items()})
    return {**hosts[host], "hostvars": hosts, "groups": {"all": list(hosts)}}
