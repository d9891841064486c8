# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order to start domains of a dead host comes twice, or is under way for longer than the proof that the host is off is valid."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.broken_ssh import BREAKS_AFTERWARDS, IS_SLOW, BrokenSsh
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]


@pytest.mark.long
@pytest.mark.parametrize("instead", [pytest.param(BREAKS_AFTERWARDS, id="repeated"), pytest.param(IS_SLOW, id="late")])
def test_each_domain_is_started_once(site: Site, guest: Make, instead: str) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    ssh = BrokenSsh(site.folder, '"phase": "start"', instead)
    done = site.evacuate(2, 1, *ssh.options)
    assert (done.code, ssh.count_commands()) == (0, 2), done.text
    # The late order has started nothing: the source was proved off again before the second one.
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
