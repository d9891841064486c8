# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The BMC of each host: Debian's ipmi_sim, to which the real fence_ipmilan speaks IPMI over LAN.

A BMC has its own address and its own power: it answers whether its machine is on or off. Its user and password are test data of the fleet.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import typing as t

from ...lab.kvmlab.commands import run
from ...lab.kvmlab.errors import LabError
from ...lab.kvmlab.namespaces import in_network
from . import readiness
from .chassis import Behaviour, Kind, read_behaviour, write_behaviour
from .layout import PYTHON, Fleet, Machine

PORT = 623
USER = "fence"
PASSWORD = "fence-the-machine"
START_SECONDS = 30
PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "run_chassis.py"

LAN = """\
name "{name}"
set_working_mc 0x20
  startlan 1
    addr {address} {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid {guid}
  endlan
  chassis_control "{control}"
  user 1 false "" "" user 10 none md2 md5 straight
  user 2 true "{user}" "{password}" admin 10 none md2 md5 straight
"""
COMMANDS = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""


def start(fleet: Fleet, machine: Machine) -> None:
    """Start a machine's BMC, unless it runs. Raises L(LabError) with its log where it does not begin to listen."""
    if is_running(fleet, machine):
        return
    folder = fleet.bmc_folder(machine)
    _write_configuration(fleet, machine)
    command = ["ipmi_sim", "-n", "-c", str(folder / "lan.conf"), "-f", str(folder / "commands"), "-s", str(folder / "state")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(in_network(fleet.namespace, *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (folder / "pid").write_text(f"{process.pid}\n")

    def listens() -> bool:
        if process.poll() is not None:
            raise LabError(f"The BMC of {machine.name} ended at once: {_log_tail(folder)}")
        return _is_listening(fleet, machine)

    readiness.wait_for(listens, f"the BMC of {machine.name} listens", START_SECONDS, pause=0.1)


def stop(fleet: Fleet, machine: Machine) -> None:
    """End a machine's BMC, as if it had lost its own power. Does nothing where it does not run."""
    pid = _pid(fleet, machine)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    readiness.wait_for(lambda: not is_running(fleet, machine), f"the BMC of {machine.name} has ended", START_SECONDS, pause=0.05)


def set_behaviour(fleet: Fleet, machine: Machine, behaviour: Behaviour) -> None:
    """Make a machine's BMC behave so from now on. A dead one is stopped; any other one runs."""
    write_behaviour(fleet.bmc_folder(machine), behaviour)
    if behaviour.kind is Kind.DEAD:
        stop(fleet, machine)
    else:
        start(fleet, machine)


def is_running(fleet: Fleet, machine: Machine) -> bool:
    """Whether a machine's BMC runs."""
    return _pid(fleet, machine) is not None


def describe(fleet: Fleet, machine: Machine) -> str:
    """Return how a machine's BMC behaves, for people."""
    kind = read_behaviour(fleet.bmc_folder(machine)).kind
    return kind.value if is_running(fleet, machine) or kind is Kind.DEAD else "stopped"


def fence_options(machine: Machine) -> t.Dict[str, t.Any]:
    """Return the options of fence_ipmilan for a machine, as C(kvmfleet_fencing) takes them.

    The cipher suite is named because the simulator lists none: at each call ipmitool would wait ten seconds for the list.
    """
    return {"ip": machine.bmc_address, "username": USER, "password": PASSWORD, "lanplus": 1, "cipher": 3}


def _write_configuration(fleet: Fleet, machine: Machine) -> None:
    folder = fleet.bmc_folder(machine)
    (folder / "state").mkdir(parents=True, exist_ok=True)
    control = shlex.join([PYTHON, "-B", str(PROGRAM), str(fleet.cache), fleet.prefix, machine.name])
    words = {"name": machine.name, "address": machine.bmc_address, "port": PORT, "guid": machine.uuid.hex, "user": USER, "password": PASSWORD}
    (folder / "lan.conf").write_text(LAN.format(control=control, **words))
    (folder / "commands").write_text(COMMANDS)


def _is_listening(fleet: Fleet, machine: Machine) -> bool:
    return bool(run(*in_network(fleet.namespace, "ss", "-Hlun", f"src {machine.bmc_address}:{PORT}")).strip())


def _pid(fleet: Fleet, machine: Machine) -> t.Optional[int]:
    """Return the process of a BMC that runs; none where that number belongs to nobody, or to somebody else by now."""
    folder = fleet.bmc_folder(machine)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int((folder / "pid").read_text())
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if str(folder / "lan.conf").encode() in words:
            return pid
    return None


def _log_tail(folder: pathlib.Path) -> str:
    return " | ".join((folder / "log").read_text(errors="replace").splitlines()[-5:]) or "it wrote nothing."
