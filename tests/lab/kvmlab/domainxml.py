# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest's definition for libvirt."""

from __future__ import annotations

import pathlib
import typing as t
import uuid
from xml.sax.saxutils import quoteattr

MACHINE = "pc"
"""The machine type; each QEMU takes its own newest of that name."""
DISK = """\
    <disk type={type} device='disk'>
      <driver name='qemu' type={format}/>
      {source}
      <target dev='vda' bus='virtio'/>
    </disk>
"""
TPM = """\
    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
"""
FIRMWARE_FOLDER = pathlib.Path("/usr/share/OVMF")
VARIABLES = FIRMWARE_FOLDER / "OVMF_VARS_4M.fd"
FIRMWARE = {
    "efi": f"<loader readonly='yes' type='pflash'>{FIRMWARE_FOLDER}/OVMF_CODE_4M.fd</loader><nvram template='{VARIABLES}'/>",
    "secure": f"<loader readonly='yes' secure='yes' type='pflash'>{FIRMWARE_FOLDER}/OVMF_CODE_4M.secboot.fd</loader><nvram template='{VARIABLES}'/>",
}
"""What a guest boots with instead of a BIOS, as the package ovmf of Debian names it."""
SECURE_MACHINE = "q35"
INTERFACE = """\
    <interface type='bridge'>
      <source bridge={bridge}/>
      <model type='virtio'/>
    </interface>
"""


def file_disk(path: str) -> str:
    """Return a disk in a qcow2 image."""
    return DISK.format(type="'file'", format="'qcow2'", source=f"<source file={quoteattr(path)}/>")


def nbd_disk(address: str, port: int, export: str) -> str:
    """Return a disk on an NBD server."""
    source = f"<source protocol='nbd' name={quoteattr(export)}><host name={quoteattr(address)} port='{port}'/></source>"
    return DISK.format(type="'network'", format="'raw'", source=source)


def interface(bridge: str) -> str:
    """Return a network card in a bridge of the host."""
    return INTERFACE.format(bridge=quoteattr(bridge))


def domain(
    name: str,
    identity: uuid.UUID,
    memory_mib: int,
    kernel: t.Optional[str],
    devices: str,
    machine: str = MACHINE,
    cores: int = 1,
    firmware: t.Optional[str] = None,
) -> str:
    """Return the whole definition of a guest that boots from that kernel, or else from its disk. Its cores are of one processor package.

    :arg firmware: of L(FIRMWARE), which needs another machine type if it is to be secure.
    """
    topology = f"<topology sockets='1' cores='{cores}' threads='1'/>" if cores > 1 else ""
    boot = (FIRMWARE[firmware] if firmware else "") + (f"<kernel>{kernel}</kernel>" if kernel else "<boot dev='hd'/>")
    machine = SECURE_MACHINE if firmware and machine == MACHINE else machine
    smm = "<smm state='on'/>" if firmware == "secure" else ""
    return f"""\
<domain type='qemu'>
  <name>{name}</name>
  <uuid>{identity}</uuid>
  <memory unit='MiB'>{memory_mib}</memory>
  <vcpu>{cores}</vcpu>
  <os>
    <type arch='x86_64' machine={quoteattr(machine)}>hvm</type>
    {boot}
  </os>
  <features><acpi/>{smm}</features>
  <cpu mode='custom' match='exact'><model fallback='forbid'>qemu64</model>{topology}</cpu>
  <clock offset='utc'/>
  <devices>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
{devices}  </devices>
</domain>
"""
