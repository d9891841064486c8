# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The libvirt binding itself: found once, made quiet, with its event loop running."""

from __future__ import annotations

import threading
import typing as t

from .._errors import Internal, NotSupported

try:
    import libvirt as _libvirt
except ImportError:
    _libvirt = None

_LOOP: t.List[threading.Thread] = []
_LOOP_LOCK = threading.Lock()


def libvirt() -> t.Any:
    """Return the libvirt module. Raises L(NotSupported) where this Python has none."""
    if _libvirt is None:
        raise NotSupported(
            "This host's Python has no libvirt binding.",
            "Install python3-libvirt there, or point ansible_python_interpreter at a Python that has it (usually /usr/bin/python3).",
        )
    return _libvirt


def start_event_loop() -> None:
    """Silence the C library's own messages and run its event loop, which keepalive needs. Once a process, never before a fork."""
    binding = libvirt()
    with _LOOP_LOCK:
        if _LOOP:
            return
        binding.registerErrorHandler(lambda context, error: None, None)
        binding.virEventRegisterDefaultImpl()
        loop = threading.Thread(target=_run_loop, args=(binding,), name="libvirt-events", daemon=True)
        _LOOP.append(loop)
        loop.start()


def require_no_event_loop() -> None:
    """Raise L(Internal) where the event loop runs in this process: the C library's loop belongs to one thread, and no fork has that thread."""
    if _LOOP:
        raise Internal(
            "A watcher cannot be forked from a process that has used libvirt: its keepalive would not run.", "Nothing was started. Report this error."
        )


def _run_loop(binding: t.Any) -> None:
    while True:
        binding.virEventRunDefaultImpl()
