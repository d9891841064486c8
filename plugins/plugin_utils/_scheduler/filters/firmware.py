# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a host has the firmware that the guest boots with, and can emulate its TPM."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import deletes_tpm, nvram_folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import PLATFORM_CPUS, FirmwareFacts

from ..fleet import Fleet, HostState
from ..request import Request
from .base import PASS, Finding, Rule, names_text

_EMULATOR = "emulator"


class Firmware(Rule):
    """Refuses a host without the firmware image, without the template of the firmware variables, or without firmware that enforces secure boot.

    The filter C(boot_files) judges an image that was looked for at its path.
    """

    name = "firmware"

    def applies_to(self, request: Request) -> bool:
        """Return whether the definition names firmware, or variables of it."""
        return bool(request.needs.loader or request.nvram)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name what is missing. An unknown value is a warning."""
        findings = [_judge_loader(request, host), _judge_template(request, host), _judge_secure_boot(request, host)]
        reasons = " ".join(finding.reason for finding in findings if finding.reason)
        warnings = tuple(warning for finding in findings for warning in finding.warnings)
        return Finding(reasons or None, warnings) if reasons or warnings else PASS


def _judge_loader(request: Request, host: HostState) -> Finding:
    path = request.needs.loader or ""
    if not path or path in host.paths:
        return PASS
    known = True if path in (_firmware_of(request, host) or FirmwareFacts(())).loaders else _find_installed(path, host)
    if known is None:
        return _warn_unknown(request, host, f"the firmware {path}")
    return PASS if known else Finding(f"The firmware {path} is not installed there.")


def _judge_template(request: Request, host: HostState) -> Finding:
    """A guest that arrives without a file of its variables gets one from the template, and libvirt then writes the guest's own variables into it."""
    path = request.needs.nvram_template or ""
    if not path or host.paths.get(request.nvram or ""):
        return PASS
    known = host.paths[path] if path in host.paths else _find_installed(path, host)
    if known:
        return PASS
    what = f"the template {path} of its firmware variables"
    if known is None or (nvram_folder(request.nvram) and request.nvram not in host.paths):
        # In a folder of its own, the file of the variables may be there already.
        return _warn_unknown(request, host, what)
    return Finding(f"T{what[1:]} is not installed there.")


def _judge_secure_boot(request: Request, host: HostState) -> Finding:
    if not request.needs.secure_boot:
        return PASS
    firmware = _firmware_of(request, host)
    if firmware is None or not isinstance(firmware.secure_boot, bool):
        return _warn_unknown(request, host, "firmware that enforces secure boot")
    return PASS if firmware.secure_boot else Finding(f"It has no firmware that enforces secure boot, which {request.name} demands.")


class Tpm(Rule):
    """Refuses a host that cannot emulate the TPM of the guest: the guest would not start there.

    Also one that could not undo a cold move without the loss of the TPM's state, which C(cold_migrate) refuses.
    """

    name = "tpm"
    overridable = False

    def applies_to(self, request: Request) -> bool:
        """Return whether the guest has an emulated TPM."""
        return bool(request.needs.tpm)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name what is missing. An unknown value is a warning."""
        if request.is_cold and host.hardware.libvirt and deletes_tpm(request.needs, host.hardware.libvirt):
            return Finding(f"If the move had to be undone, its libvirt would delete the state of the TPM of {request.name} (libvirt 8.9 keeps it).")
        firmware, model, version = _firmware_of(request, host), request.needs.tpm_model, request.needs.tpm_version
        if firmware is None or not isinstance(firmware.tpm_backends, tuple):
            return _warn_unknown(request, host, "an emulator of the TPM")
        if _EMULATOR not in firmware.tpm_backends:
            return Finding(f"It cannot emulate the TPM of {request.name}: swtpm is not installed there.")
        if model and firmware.tpm_models and model not in firmware.tpm_models:
            return Finding(f"It cannot emulate the TPM model {model} of {request.name}, only {names_text(firmware.tpm_models)}.")
        if version and firmware.tpm_versions and version not in firmware.tpm_versions:
            return Finding(f"It cannot emulate TPM {version}, which {request.name} has, only {names_text(firmware.tpm_versions)}.")
        return PASS


def _firmware_of(request: Request, host: HostState) -> t.Optional[FirmwareFacts]:
    platform = (host.hardware.platforms or {}).get((request.arch or "", request.virt_type or ""))
    return (platform.firmware or None) if platform else None


def _find_installed(path: str, host: HostState) -> t.Optional[bool]:
    """Return whether a package has installed that file; None if its folder was not searched."""
    files = host.hardware.firmware_files
    folder, name = posixpath.split(path)
    if files is None or not any(folder == searched or folder.startswith(f"{searched}/") for searched in files):
        return None
    return name in files.get(folder, ())


def _warn_unknown(request: Request, host: HostState, what: str) -> Finding:
    why = host.hardware.explain_unknown(PLATFORM_CPUS)
    return Finding(warnings=(f"Whether {host.name} has {what}, which {request.name} needs, is not known{f' ({why})' if why else ''}.",))
