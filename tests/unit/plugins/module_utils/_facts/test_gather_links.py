# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import read_links


def test_interfaces_of_this_host_are_listed() -> None:
    links = read_links()
    assert links is not None
    assert set(links) == {name for _number, name in socket.if_nameindex()}
    assert links["lo"] == ""


def test_bridges_are_distinguished_from_other_interfaces() -> None:
    links = read_links() or {}
    folder = pathlib.Path("/sys/class/net")
    for name in set(links) & set(os.listdir(folder)):
        if (folder / name / "ifindex").read_text().strip() == str(socket.if_nametoindex(name)):
            assert (links[name] == "bridge") == (folder / name / "bridge").exists()


def test_interfaces_are_unknown_if_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> socket.socket:
        raise PermissionError(*arguments)

    monkeypatch.setattr(module.socket, "socket", refuse)
    assert read_links() is None
