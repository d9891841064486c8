# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An inventory in which the BMC's password is vaulted where it is used: the agent gets it, nobody else reads it, and unusable options are reported early."""

from __future__ import annotations

import pathlib
import subprocess
import textwrap
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]

INVENTORY = """\
kvmfleet_fencing:
  agent: {agent}
  options:
    plug: {plug}
    password: {password}
"""
# As on a BMC: without the password it answers nothing.
ASKS_FOR_PASSWORD = """\
input=$(cat)
echo "$input" | grep -qxF "password={password}" || {{ echo 'Unable to connect/login to fencing device' >&2; exit 1; }}
echo "$input" | '{command}'
"""


def vaulted(site: Site, text: str) -> str:
    """Return the text as C(ansible-vault encrypt_string) writes it into an inventory, and let the site's tasks know the vault's password."""
    secret = site.folder / "vault"
    secret.write_text("vault password\n")
    site.environment["ANSIBLE_VAULT_PASSWORD_FILE"] = str(secret)
    command = ["ansible-vault", "encrypt_string", text]
    done = subprocess.run(command, env=site.environment, cwd=site.folder, capture_output=True, text=True, check=True, timeout=300)
    head, dummy, body = done.stdout.partition("\n")
    return f"{head}\n{textwrap.indent(textwrap.dedent(body), ' ' * 6)}"


def write_fencing(site: Site, number: int, agent: str, password: str) -> None:
    """Put a host's agent into the inventory as a person writes it: in YAML."""
    folder = pathlib.Path(site.inventory) / "host_vars"
    (folder / f"{site.name(number)}.json").unlink(missing_ok=True)
    (folder / f"{site.name(number)}.yml").write_text(INVENTORY.format(agent=agent, plug=site.name(number), password=password))


@pytest.mark.long
def test_a_vaulted_fence_password_works_for_protect_and_evacuate(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    guest("web")
    guest("other", on=2)
    agent = agents.write(tmp_path, "fence_bmc", ASKS_FOR_PASSWORD.format(password=agents.PASSWORD, command=COMMAND.with_name("fence_lab")))
    password = vaulted(site, agents.PASSWORD)
    site.fencing(2, site.agent(2, "fence_of_nobody"))
    write_fencing(site, 1, agent, password)
    code, text = site.playbook("protect", target="kvmfleet_hosts", protect_host_guard=False)
    assert code != 0, text
    assert f"kvmfleet_fencing of {site.name(2)}: the agent fence_of_nobody is not on the control node" in " ".join(text.split())
    assert f"kvmfleet_fencing of {site.name(1)}" not in text
    assert [site.possible_hosts(name) for name in ("web", "other")] == [[site.name(1)], [site.name(2)]]

    site.lab("cut", site.lab.host(1))
    done = site.evacuate(3, 1, "-vvvv")
    assert done.code == 0, done.text
    site.check_end_state({2: ["other"], 3: ["web"]}, site.line("web", "done", 1, 3))
    assert "hunter2" not in text + done.text
