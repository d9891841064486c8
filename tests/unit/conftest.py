# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for all unit tests: properties are judged by what they find, not by the pace of a busy machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("kvmfleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kvmfleet")
