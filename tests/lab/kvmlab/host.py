# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts: their power, their services, and how to run something on them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
import typing as t

from . import libvirtd, namespaces, network, questions, services
from .commands import run
from .errors import LabError
from .layout import PACKAGE_FOLDER, PYTHON, Lab

PORTS = {"libvirtd": 16509, "sshd": 22}
# As the kernel numbers the states of TCP.
LISTENING = "0A"


def init_pid(lab: Lab, host: str) -> t.Optional[int]:
    """Return the first process of a host, as this machine numbers it; None where the host is off."""
    try:
        pid = int((lab.host_folder(host) / "init.pid").read_text())
        wanted = (namespaces.NETNS / host).stat()
    except (FileNotFoundError, ValueError):
        return None
    return pid if namespaces.is_member(pid, wanted) and not _is_zombie(pid) else None


def require_pid(lab: Lab, host: str) -> int:
    """Return the first process of a host.

    :raises LabError: the host is off.
    """
    pid = init_pid(lab, host)
    if not pid:
        raise LabError(f"The host {host} is off. Switch it on with: lab --prefix {lab.prefix} poweron {host}")
    return pid


def is_on(lab: Lab, host: str) -> bool:
    return init_pid(lab, host) is not None


def require_off(lab: Lab, host: str) -> None:
    """Raise L(LabError) where a host is on."""
    if is_on(lab, host):
        raise LabError(f"The host {host} is on. Switch it off first with: lab --prefix {lab.prefix} poweroff {host}")


def begin_power_on(lab: Lab, host: str) -> None:
    """Start a host's first process, where the host is off, without waiting for its services.

    :raises LabError: the root of its release is gone.
    """
    if is_on(lab, host):
        return
    _require_root(lab, host)
    namespaces.kill_all(host)
    network.end_silence(lab, host)
    folder = lab.host_folder(host)
    for name in ("init.pid", services.HOLD, *(path.name for path in folder.glob("*.service.hold"))):
        (folder / name).unlink(missing_ok=True)
    command = namespaces.in_network(host, "unshare", "--mount", "--uts", "--pid", "--fork", "--propagation", "private")
    command += [PYTHON, "-m", "kvmlab.boot", lab.prefix, str(lab.root), host]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER)}
    with open(folder / "boot.log", "wb") as log:
        subprocess.Popen(command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def wait_until_up(lab: Lab, hosts: t.Iterable[str], timeout_seconds: float = 300) -> None:
    """Wait until libvirtd and sshd of all these hosts answer.

    :raises LabError: one does not in time; the message has the end of its log.
    """
    limit = time.monotonic() + timeout_seconds
    for host in hosts:
        while not (is_on(lab, host) and libvirtd_answers(lab, host) and port_answers(lab, host, PORTS["sshd"])):
            if time.monotonic() > limit:
                raise LabError(f"The host {host} does not come up within {timeout_seconds:g} s. {_last_words(lab, host)}")
            time.sleep(0.1)


def power_off(lab: Lab, host: str) -> None:
    """Cut a host's power: everything that runs there is killed at once, and then nothing answers at its address."""
    pid = init_pid(lab, host)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    namespaces.kill_all(host)
    network.silence(lab, host)


def port_answers(lab: Lab, host: str, port: int) -> bool:
    """Return whether the host listens there. It is asked from inside its own network, so that a cut cable does not matter."""
    pid = init_pid(lab, host)
    return pid is not None and any(_listens(pathlib.Path(f"/proc/{pid}/net/{name}"), port) for name in ("tcp", "tcp6"))


def _listens(table: pathlib.Path, port: int) -> bool:
    with contextlib.suppress(OSError):
        rows = (line.split() for line in table.read_text().splitlines()[1:])
        return any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows)
    return False


def guests(lab: Lab, host: str) -> t.Optional[t.List[t.Dict[str, t.Any]]]:
    """Return name, UUID, state and persistence of the host's domains; None where its libvirtd does not listen, or does not answer within seconds."""
    if port_answers(lab, host, PORTS["libvirtd"]):
        with contextlib.suppress(LabError):
            return ask(lab, host, questions.guests, timeout_seconds=5)
    return None


def libvirtd_answers(lab: Lab, host: str) -> bool:
    return guests(lab, host) is not None


def ask(lab: Lab, host: str, question: libvirtd.Question[libvirtd.Answer], timeout_seconds: float = 60) -> libvirtd.Answer:
    """Return what a host's libvirtd answers.

    :raises LabError: the host is off, or its libvirtd answers with an error, or not in time.
    """
    try:
        return libvirtd.ask(require_pid(lab, host), question, timeout_seconds)
    except libvirtd.NoAnswer as exc:
        raise LabError(f"{host}: {exc}") from exc


def command_on(lab: Lab, host: str, *command: str) -> t.List[str]:
    """Return the command line that runs a command on a host without SSH, as root in root's home.

    :raises LabError: the host is off.
    """
    return namespaces.in_host(require_pid(lab, host), "env", f"HOME={lab.host_folder(host) / 'home-root'}", *command)


def virsh_on(lab: Lab, host: str, *arguments: str) -> t.List[str]:
    """Return the command line that runs virsh on a host.

    :raises LabError: the host is off.
    """
    return command_on(lab, host, "virsh", "-c", "qemu:///system", *arguments)


def virsh(lab: Lab, host: str, *arguments: str, timeout: float = 300) -> str:
    """Run virsh on a host and return its output."""
    return run(*virsh_on(lab, host, "-q", *arguments), timeout=timeout)


def signal_libvirtd(lab: Lab, host: str, action: str) -> None:
    """Deal with a host's libvirtd; its guests run on.

    :arg action: C(kill) (SIGKILL, it comes back by itself), C(restart) (SIGTERM, it comes back), C(stop) (SIGTERM, it stays away), C(start).
    """
    hold = lab.host_folder(host) / services.HOLD
    if action == "start":
        hold.unlink(missing_ok=True)
        wait_until_up(lab, [host])
        return
    if action == "stop":
        hold.touch()
    script = f"kill -{'KILL' if action == 'kill' else 'TERM'} $(cat /run/libvirtd.pid)"
    run(*command_on(lab, host, "sh", "-c", script))


def _require_root(lab: Lab, host: str) -> None:
    root = lab.release_root(host)
    if root and not root.is_dir():
        raise LabError(f"The host {host} runs {root.name}, and {root} is gone. Make it again with: lab --prefix {lab.prefix} release {host} {root.name}")


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


def _last_words(lab: Lab, host: str) -> str:
    logs = [lab.host_folder(host) / name for name in ("boot.log", "var-log-libvirt/services.log", "var-log-libvirt/libvirtd.log")]
    lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()[-5:]]
    return "Its last words: " + " | ".join(lines) if lines else "It left no message."
