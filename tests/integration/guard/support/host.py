# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first host of a lab, with its power and its boot guard."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.storage_program import HOST_TOKEN_PREFIX
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, Lab, eventually

BUILD = pathlib.Path(__file__).resolve().parents[7]
ON_HOST = pathlib.Path(__file__).parent / "on_host.py"
LABS = pathlib.Path(os.environ.get("KVMFLEET_LAB_STATE") or "/run/kvmfleet-lab")
UNIT = "/etc/systemd/system/kvmfleet-guard.service"
HOST_ID = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0b01"
NONCE = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0c01"
DROP_IN = "/etc/systemd/system/libvirtd.service.d/50-kvmfleet-guard.conf"
PROGRAM = "/usr/local/lib/kvmfleet/kvmfleet-guard"


class Host:
    """One host."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.name = lab.host(1)

    def on(self, *command: str) -> str:
        return self.lab.on(1, *command)

    def write(self, path: str, text: str) -> None:
        self.lab("exec", self.name, "--", "tee", path, stdin=text)

    def guard(self, call: str, **arguments: t.Any) -> dict[str, t.Any]:
        """Call a function of the guard on the host; return its answer."""
        done = self.on("env", f"PYTHONPATH={BUILD}", "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", str(ON_HOST), call, json.dumps(arguments))
        return t.cast("dict[str, t.Any]", json.loads(done))

    def grant(self, grant: str) -> dict[str, t.Any]:
        """Return a grant that the host's shared folder confirms, and put the host's own file there."""
        (self.shared / f"{HOST_TOKEN_PREFIX}{HOST_ID}").write_text(json.dumps({"host_id": HOST_ID, "nonce": NONCE}))
        return {"grant": grant, "host_id": HOST_ID, "folders": {str(self.shared): NONCE}}

    @property
    def shared(self) -> pathlib.Path:
        """The folder of images that all hosts of the lab see, as does this process."""
        return LABS / self.lab.prefix / "shared"

    def waits_for_storage(self, seconds: int) -> None:
        """Limit how long a start of libvirtd waits for the storage that confirms a token."""
        self._edit(DROP_IN, "kvmfleet-guard confirm", f"kvmfleet-guard confirm --seconds {seconds}")

    def program(self, verb: str) -> str:
        return self.on(PROGRAM, verb)

    def power_cycle(self) -> None:
        self.lab("poweroff", self.name)
        self.lab("poweron", self.name)

    def boots_without_libvirtd(self) -> bool:
        """Switch the host on, and see whether its libvirtd stays away while the host itself can be reached. C(poweron) waits for both in vain."""
        command = [str(COMMAND), "--prefix", self.lab.prefix, "poweron", self.name]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as waiting:
            eventually(lambda: self.lab.try_("ssh", self.name, "true").returncode == 0, "the host can be reached")
            time.sleep(3)
            waiting.terminate()
        return not self.answers()

    def restart_libvirtd(self, action: str) -> None:
        """End libvirtd; a new one answers when this returns."""
        before = self.daemon()
        self.lab("libvirtd", self.name, action)
        eventually(lambda: self.daemon() not in ("", before) and self.answers(), "libvirtd answers again")

    def let_libvirtd_start(self) -> None:
        """Undo C(libvirtd stop), without waiting for a libvirtd that answers."""
        (self.disk / "libvirtd.hold").unlink()

    @property
    def disk(self) -> pathlib.Path:
        """Where the lab keeps what is the host's own."""
        return LABS / self.lab.prefix / "hosts" / self.name

    def daemon(self) -> str:
        return self.lab.try_("exec", self.name, "--", "cat", "/run/libvirtd.pid").stdout.strip()

    def answers(self) -> bool:
        return self.lab.try_("virsh", self.name, "list").returncode == 0

    def running(self) -> list[str]:
        """Return the names of the guests that are active, asked when libvirtd's own start is over."""
        return self.lab.virsh(1, "list", "--name").split()

    def forget_the_guard(self) -> None:
        """Remove all of it from the disk of a host that is off, in whatever state a test left it."""
        for folder in ("etc-kvmfleet", "etc-systemd-system", "usr-local-lib-kvmfleet", "var-lib-kvmfleet"):
            shutil.rmtree(self.disk / folder)
            (self.disk / folder).mkdir()
        for left in self.shared.glob(".kvmfleet-*"):
            left.unlink()

    def before_the_guard(self, command: str) -> None:
        """Have a command run at boot before the guard does."""
        self._edit_unit("ExecStart=", f"ExecStart={command}\nExecStart=")

    def instead_of_the_guard(self, command: str) -> None:
        """Have a command run at boot in the place of the guard."""
        self._edit_unit("ExecStart=", f"ExecStart={command}\n#")

    def before_the_daemon(self, command: str) -> None:
        """Have a command run before each start of libvirtd, before it asks whether it may start."""
        self._edit(DROP_IN, "ExecStartPre=", f"ExecStartPre={command}\nExecStartPre=")

    def _edit_unit(self, old: str, new: str) -> None:
        self._edit(UNIT, old, new)

    def _edit(self, path: str, old: str, new: str) -> None:
        text = self.on("cat", path)
        assert text.count(old) == 1, text
        self.write(path, text.replace(old, new))
