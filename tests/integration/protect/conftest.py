# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of two hosts that are protected, each test by a ledger of its own."""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}prot"
PASSWORD = "hunter2x"
FORGET = "rm -rf /var/lib/kvmfleet/* /run/kvmfleet/guard /run/libvirt/qemu/autostarted; find /etc/systemd/system -name '*kvmfleet*' -delete"

Body = dict[str, t.Any]


class Run:
    """How the playbook ended: its text, its published result, and how many tasks changed each host."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        _head, found, tail = text.partition("RUN: ")
        self.result: Body = json.JSONDecoder().raw_decode(tail)[0]["protect_host_result"] if found else {}
        self.changed = {host: int(number) for host, number in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", text, re.MULTILINE) if host != "localhost"}

    def names(self, host: str, key: str) -> list[str]:
        return [entry["name"] for entry in self.result[host][key]]


class Protection(Control):
    """A control node that protects the lab."""

    def protect(self, *options: str, ledger: pathlib.Path | None = None) -> Run:
        """Run the playbook on all hosts."""
        given = json.dumps({"target": "all", "kvmfleet_ledger": str(ledger or self.path)})
        self.environment["ANSIBLE_SHOW_CUSTOM_STATS"] = "true"
        process = self.popen(["ansible-playbook", "-i", self.inventory, "kvmfleet.migration.protect", "-e", given, *options])
        text, _none = process.communicate(timeout=300)
        return Run(process.returncode, text)

    def lookup(self, term: str) -> str:
        """Return what a playbook gets from the lookup C(ledger), as text."""
        message = f"msg={{{{ lookup('kvmfleet.migration.ledger', '{term}', ledger='{self.path}') }}}}"
        text, _none = self.popen(["ansible", "-i", self.inventory, "localhost", "-m", "ansible.builtin.debug", "-a", message]).communicate(timeout=300)
        return text

    def document(self, name: str) -> Body:
        found = self.ledger.find_domains(name)
        assert len(found) == 1, name
        return found[0].body


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 2) as lab:
        yield lab


@pytest.fixture
def guests(lab: Lab) -> t.Iterator[t.Callable[..., str]]:
    """Return a function that makes a guest; it is removed after the test."""
    names: list[str] = []

    def make(name: str, *options: str, on: int = 1) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(on), "--mib", "32", *options)
        return name

    yield make
    for name in names:
        lab("rmguest", name)


@pytest.fixture
def control(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[Protection]:
    """Root on the control node; the hosts have never been protected before."""
    yield Protection(lab, tmp_path)
    for number in (1, 2):
        lab("poweron", lab.host(number))
        lab.on(number, "sh", "-c", FORGET)
