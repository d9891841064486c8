# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the boot guard asks of systemd, where it runs."""

from __future__ import annotations

import os
import subprocess

from .._errors import Internal

SECONDS = 60


def is_running(root: str = "/") -> bool:
    """Return whether systemd runs this host. For another root than the host's own the answer is no."""
    return root == "/" and os.path.isdir("/run/systemd/system")


def systemctl(*arguments: str) -> None:
    """Run systemctl. Raises L(Internal) with what it says."""
    try:
        subprocess.run(["systemctl", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise Internal(
            f"'systemctl {' '.join(arguments)}' failed: {said} The boot guard's files are in place, but systemd does not hold this host's guests yet.",
            "Repair this on the host and run the task again.",
        ) from error
