# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that dies while a module works there must not hold its task for hours."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import connection_loader
from ansible.template import Templar

from ansible_collections.kvmfleet.migration.plugins.action.host_facts import ActionModule

KEEPALIVE = ["ServerAliveInterval=15", "ServerAliveCountMax=6"]


def act_through(name: str, **options: str) -> ConnectionBase:
    """Return the connection of a task of the collection, by that plugin with these options."""
    connection = connection_loader.get(name, PlayContext())
    connection.set_options(direct=options)
    loader = DataLoader()
    for _item in range(2):
        ActionModule(Task(), connection, PlayContext(), loader, Templar(loader), None)
    return connection


def keepalive_of(connection: ConnectionBase) -> list[str]:
    command = [part.decode() for part in connection._build_command("ssh", "ssh", "kvm1", "true")]
    return [part for part in command if part.startswith("ServerAlive")]


@pytest.mark.parametrize("given", [{}, {"ssh_extra_args": "-o Compression=no"}, {"ssh_common_args": "-J jump"}])
def test_a_connection_to_a_dead_host_ends(given: dict[str, str]) -> None:
    connection = act_through("ssh", **given)
    assert keepalive_of(connection) == KEEPALIVE
    assert connection.get_option("ssh_extra_args").startswith(given.get("ssh_extra_args", ""))


@pytest.mark.parametrize("option", ["ssh_args", "ssh_common_args", "ssh_extra_args"])
@pytest.mark.parametrize("name", ["ServerAliveInterval", "serveraliveinterval"])
def test_what_the_inventory_sets_is_left_alone(option: str, name: str) -> None:
    connection = act_through("ssh", **{option: f"-o {name}=60"})
    assert connection.get_option(option) == f"-o {name}=60"
    assert not set(keepalive_of(connection)) & set(KEEPALIVE)


@pytest.mark.parametrize("transport", ["local", "ssh"])
def test_another_connection_plugin_is_left_alone(monkeypatch: pytest.MonkeyPatch, transport: str) -> None:
    """Also one that has the same transport and other options, as that of Mitogen."""
    monkeypatch.setattr(connection_loader.get("local", PlayContext()).__class__, "transport", transport)
    connection = act_through("local")
    with pytest.raises(KeyError):
        connection.get_option("ssh_extra_args")
