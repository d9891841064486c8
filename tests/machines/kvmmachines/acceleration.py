# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a machine's processor is KVM's or emulated. A device that opens proves nothing: KVM counts once a kernel has booted with it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
import time

BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
DEVICE = "/dev/kvm"
SIGN = "Run /init as init process"
SECONDS = 20


def choose(cache: pathlib.Path, image: pathlib.Path) -> str:
    """Return C(kvm) or C(tcg). The answer is remembered until this machine boots again.

    :arg image: a folder with C(vmlinuz) and C(initrd), to boot.
    """
    boot = BOOT_ID.read_text().strip()
    note = cache / "accelerator.json"
    try:
        known = json.loads(note.read_text())
        if known["boot"] == boot:
            return str(known["accelerator"])
    except (OSError, ValueError, KeyError):
        pass
    found = "kvm" if os.access(DEVICE, os.R_OK | os.W_OK) and _boots(image) else "tcg"
    note.write_text(json.dumps({"boot": boot, "accelerator": found}))
    return found


def _boots(image: pathlib.Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        serial = pathlib.Path(folder, "serial.log")
        command = ["qemu-system-x86_64", "-machine", "pc", "-accel", "kvm", "-cpu", "host", "-m", "512", "-nodefaults", "-no-user-config", "-display", "none"]
        command += ["-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"), "-append", "console=ttyS0 panic=-1", "-serial", f"file:{serial}"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                return _says_so(process, serial)
            finally:
                process.kill()


def _says_so(process: subprocess.Popen[bytes], serial: pathlib.Path) -> bool:
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit and process.poll() is None:
        if serial.exists() and SIGN in serial.read_text(errors="replace"):
            return True
        time.sleep(0.2)
    return False
