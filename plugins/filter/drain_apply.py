# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_apply). Documentation is in drain_apply.yml."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.arguments import called
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.drift import apply


def drain_apply(saved: t.Any, facts: t.Any, sources: t.Any, candidates: t.Any, **arguments: t.Any) -> dict[str, t.Any]:
    """Return the saved plan where it still fits."""
    return called("drain_apply", functools.partial(apply, saved), facts, sources, candidates, arguments)


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"drain_apply": drain_apply}
