# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody on the control node who sets policies and moves domains by them."""

from __future__ import annotations

import json
import pathlib
import typing as t
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

NAMESPACE = "urn:kvmfleet:migration:policy"

Variables = dict[str, t.Any]


class Operator(Control):
    """A control node of which inventory variables can be given with each task."""

    def policy(self, name: str, on: int = 1, *options: str, variables: Variables | None = None, **fields: t.Any) -> Outcome:
        """Run C(domain_policy) on a host."""
        given = json.dumps({"name": name, **fields})
        command = ["ansible", "-i", self.inventory, self.lab.host(on), "-m", "kvmfleet.migration.domain_policy", "-a", given, *options, *extra(variables)]
        return Running(self.popen(command)).wait()

    def move_with(self, name: str, variables: Variables, to: int = 2, **arguments: t.Any) -> Outcome:
        """Move a guest away from the first host, with inventory variables."""
        return self.move(name, to, *extra(variables), **arguments)

    def move_after_facts(self, name: str, to: int = 2, **arguments: t.Any) -> dict[str, t.Any]:
        """Gather the facts of all hosts and move a guest in one run; return the move's result."""
        return self.play(1, [("live_migrate", {"name": name, "destination": self.lab.host(to), **arguments})], facts=True)[0]


def extra(variables: Variables | None) -> list[str]:
    """Return variables as options of C(ansible)."""
    return ["-e", json.dumps(variables)] if variables else []


def told(done: Outcome) -> str:
    """Return all that was printed, unfolded: Ansible takes the warnings out of a result and wraps their lines."""
    return " ".join(done.text.split())


def by_hand(lab: Lab, guest: str, xml: str, *scopes: str, on: int = 1) -> None:
    """Write a policy as an operator does with virsh."""
    lab.virsh(on, "metadata", guest, NAMESPACE, "kvmfleet", f"<policy>{xml}</policy>", *scopes)


def written(lab: Lab, guest: str, scope: str = "live", on: int = 1) -> dict[str, str | None]:
    """Return the elements of the policy that stand in a guest's running (C(live)) or persistent (C(config)) definition, with their texts."""
    options = ["--inactive"] if scope == "config" else []
    tree = ElementTree.fromstring(lab.virsh(on, "dumpxml", *options, guest))
    found = tree.find(f"metadata/{{{NAMESPACE}}}policy")
    return {} if found is None else {element.tag.partition("}")[2]: (element.text or "").strip() for element in found}


def set_qemu_user(lab: Lab, host: int, user: str) -> None:
    """Let a host's QEMU run as that user from now on; its daemon answers again when this returns."""
    lab.on(host, "sed", "-i", f's/^user = .*/user = "{user}"/', str(pathlib.PurePosixPath("/etc/libvirt/qemu.conf")))
    before = _daemon(lab, host)
    lab("libvirtd", lab.host(host), "restart")
    eventually(lambda: _daemon(lab, host) not in ("", before) and lab.try_("virsh", lab.host(host), "list").returncode == 0, "libvirtd answers again")


def _daemon(lab: Lab, host: int) -> str:
    """Return the process id of a host's libvirtd; empty where it has none."""
    return lab.try_("exec", lab.host(host), "--", "cat", "/run/libvirtd.pid").stdout.strip()
