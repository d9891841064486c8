# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.firmware import describe_firmware
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import FirmwareFacts

CAPABILITIES = """\
<domainCapabilities>
  <os supported='yes'>
    <loader supported='yes'>
      <value>/usr/share/OVMF/OVMF_CODE_4M.ms.fd</value>
      <value>/usr/share/OVMF/OVMF_CODE_4M.fd</value>
      <enum name='secure'>{secure}<value>no</value></enum>
    </loader>
  </os>
  <devices>
    <tpm supported='{tpm}'>
      <enum name='model'><value>tpm-tis</value><value>tpm-crb</value></enum>
      <enum name='backendModel'><value>passthrough</value><value>emulator</value></enum>
      <enum name='backendVersion'><value>1.2</value><value>2.0</value></enum>
    </tpm>
  </devices>
</domainCapabilities>
"""
LOADERS = ("/usr/share/OVMF/OVMF_CODE_4M.ms.fd", "/usr/share/OVMF/OVMF_CODE_4M.fd")


def describe(secure: str = "<value>yes</value>", tpm: str = "yes") -> FirmwareFacts:
    return describe_firmware(ElementTree.fromstring(CAPABILITIES.format(secure=secure, tpm=tpm)))


def test_firmware_and_tpms_are_read_from_the_domain_capabilities() -> None:
    assert describe() == FirmwareFacts(LOADERS, True, ("passthrough", "emulator"), ("tpm-tis", "tpm-crb"), ("1.2", "2.0"))


def test_a_host_without_secure_boot_and_without_tpms_is_described_as_such() -> None:
    assert describe(secure="", tpm="no") == FirmwareFacts(LOADERS, False, (), (), ())


def test_what_a_libvirt_does_not_report_of_tpms_is_unknown() -> None:
    """Libvirt 7.0 of Debian 11 has no such element, also where swtpm is installed: a missing element says nothing (formatdomaincaps)."""
    old = CAPABILITIES.format(secure="", tpm="yes").replace("tpm", "rng")
    assert describe_firmware(ElementTree.fromstring(old)) == FirmwareFacts(LOADERS, False)
