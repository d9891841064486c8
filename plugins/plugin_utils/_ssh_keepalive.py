# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Ends SSH connections to hosts that have died while a module works there.

Neither Ansible nor OpenSSH does this by default: a task waits until TCP gives up, a quarter of an hour, or two hours if it only waits for output.
"""

from __future__ import annotations

from ansible.plugins.connection import ConnectionBase

_OPTION, _INTERVAL = "ssh_extra_args", "ServerAliveInterval"
# 90 s without an answer. The server of a busy host answers later than an idle one, and a connection that ends too early leaves a task without its result.
KEEPALIVE = f"-o {_INTERVAL}=15 -o ServerAliveCountMax=6"


def end_silent_connection(connection: ConnectionBase) -> None:
    """Have the SSH client of this connection end when the host no longer answers. What the inventory or the configuration of Ansible sets is left alone."""
    try:
        given = [str(connection.get_option(option) or "") for option in ("ssh_args", "ssh_common_args", _OPTION)]
    except KeyError:
        # Another connection plugin than that of Ansible for SSH.
        return
    if not any(_INTERVAL.lower() in arguments.lower() for arguments in given):
        connection.set_option(_OPTION, f"{given[-1]} {KEEPALIVE}".strip())
