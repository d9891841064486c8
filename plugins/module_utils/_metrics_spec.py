# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(metrics), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec, ledger_spec

# Where Debian's node exporter looks.
DEFAULT_PATH = "/var/lib/prometheus/node-exporter/kvmfleet.prom"


def metrics_spec() -> Spec:
    """Return the options of C(metrics)."""
    return {**ledger_spec(), "path": {"type": "path", "default": DEFAULT_PATH}, "mode": {"type": "raw", "default": "0644"}}
