# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What systemd is told of the boot guard: its unit, and drop-ins for the services that start guests. Texts only.

The guard's unit runs before the sockets, so that no connection can start a daemon earlier. What holds in the end is the daemons' own
C(ExecStartPre): it runs before every start, however it came about (socket, package upgrade, a person), and a daemon whose guests cannot be held
is not started. The shared storage that confirms a token is mounted only after the sockets are up. So a unit of its own waits for that storage, and
C(ExecStartPre) does the same in case that unit fails.
C(Requires) is avoided throughout: it would stop libvirt-guests, and with it every guest, together with the guard's unit.
"""

from __future__ import annotations

import typing as t

PROGRAM_FOLDER = "usr/local/lib/kvmfleet"
PROGRAM_FILE = f"{PROGRAM_FOLDER}/kvmfleet-guard"
STORAGE_FILE = f"{PROGRAM_FOLDER}/kvmfleet-guard-storage"
PROGRAM_FILES = (STORAGE_FILE, PROGRAM_FILE)
"""In the order of writing: the second program runs the first."""
UNIT_FOLDER = "etc/systemd/system"
UNIT = "kvmfleet-guard.service"
TOKEN_UNIT = "kvmfleet-guard-token.service"  # noqa: S105 - it names a unit
DROP_IN = "50-kvmfleet-guard.conf"
WANTS_LINK = f"{UNIT_FOLDER}/multi-user.target.wants/{UNIT}"
RELEASED_FILE = "/run/kvmfleet/guard/released.json"

DAEMONS = ("libvirtd", "virtqemud")
"""They start guests: marked for autostart, with or without a managed-save image, and those they shut down with the host (libvirt 11.2 and later)."""
SOCKETS = ("", "-ro", "-admin", "-tcp", "-tls")
LIBVIRT_GUESTS = "libvirt-guests.service"


def files(interpreter: str) -> t.Dict[str, str]:
    """Return path below the root: text. C(interpreter) runs the program, which needs no execute bit and no label of its own then."""
    drop_ins = {f"{UNIT_FOLDER}/{name}.service.d/{DROP_IN}": _daemon(interpreter) for name in DAEMONS}
    return {
        f"{UNIT_FOLDER}/{UNIT}": _unit(interpreter),
        f"{UNIT_FOLDER}/{TOKEN_UNIT}": _token_unit(interpreter),
        f"{UNIT_FOLDER}/{LIBVIRT_GUESTS}.d/{DROP_IN}": _libvirt_guests(),
        **drop_ins,
    }


def command(interpreter: str, verb: str) -> str:
    """Return the command line of one verb of the program. The interpreter is isolated from variables and folders of users."""
    return f"{interpreter} -I /{PROGRAM_FILE} {verb}"


def held_back() -> t.List[str]:
    """Return the units that may start only after the guard; one that a host does not have is no error."""
    services = [f"{name}.service" for name in DAEMONS]
    sockets = [f"{name}{kind}.socket" for name in DAEMONS for kind in SOCKETS if name == "libvirtd" or kind not in ("-tcp", "-tls")]
    return [*services, *sockets, LIBVIRT_GUESTS]


def _unit(interpreter: str) -> str:
    return f"""\
[Unit]
Description=Hold automatic starts of guests until this host is released
DefaultDependencies=no
Requires=sysinit.target
After=sysinit.target
Before={" ".join(held_back())}
Conflicts=shutdown.target
Before=shutdown.target
RefuseManualStop=yes

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command(interpreter, "hold")}
ExecStop={command(interpreter, "shutdown")}
TimeoutStartSec=90
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""


def _token_unit(interpreter: str) -> str:
    services = [f"{name}.service" for name in DAEMONS]
    return f"""\
[Unit]
Description=Release this host if shared storage confirms its clean-shutdown token
Wants={UNIT}
After={UNIT} remote-fs.target
Before={" ".join([*services, LIBVIRT_GUESTS])}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command(interpreter, "confirm")}
TimeoutStartSec=120
"""


def _daemon(interpreter: str) -> str:
    return f"""\
[Unit]
Wants={UNIT} {TOKEN_UNIT}
After=remote-fs.target

[Service]
ExecStartPre=+{command(interpreter, "confirm")}
"""


def _libvirt_guests() -> str:
    return f"""\
[Unit]
Wants={UNIT} {TOKEN_UNIT}
ConditionPathExists={RELEASED_FILE}
"""
