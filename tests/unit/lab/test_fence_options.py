# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the fence agent on standard input."""

from __future__ import annotations

from kvmlab import fence


def test_options_of_the_fence_agent_are_read_with_their_aliases() -> None:
    assert fence.parse("action=off\nplug=kvm1\n") == {"action": "off", "plug": "kvm1"}
    assert fence.parse("# from the cluster\n\n option = status \n port=kvm2\n") == {"action": "status", "plug": "kvm2"}
