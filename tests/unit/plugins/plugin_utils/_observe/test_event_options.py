# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of the event source."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_source import parse_options

HOSTS = {"kvm1": "qemu+ssh://root@10.0.0.11/system?no_tty=1", "kvm2": "qemu+tcp://kvm2/system"}


def test_hosts_is_the_only_required_option() -> None:
    options = parse_options({"hosts": HOSTS})
    assert options.hosts == HOSTS
    assert {"stopped", "host_gone", "post_copy_failed", "migration_iteration"} <= options.events


def test_options_from_templates_are_accepted_as_text() -> None:
    options = parse_options({"hosts": HOSTS, "gone_after_seconds": "45", "queue_size": "20", "events": ["host_gone"]})
    assert (options.gone_after_seconds, options.queue_size, options.events) == (45, 20, {"host_gone"})


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "hosts"),
        ({"hosts": {}}, "hosts"),
        ({"hosts": ["kvm1"]}, "hosts"),
        ({"hosts": {"kvm1": "qemu+ext://kvm1/system?command=/bin/sh"}}, "kvm1"),
        ({"hosts": {"kvm1": None}}, "kvm1"),
        ({"hosts": HOSTS, "gone_after_seconds": 0}, "gone_after_seconds"),
        ({"hosts": HOSTS, "gone_after_seconds": "soon"}, "gone_after_seconds"),
        ({"hosts": HOSTS, "gone_after_seconds": float("nan")}, "gone_after_seconds"),
        ({"hosts": HOSTS, "queue_size": 1}, "queue_size"),
        ({"hosts": HOSTS, "events": ["rebooted"]}, "events"),
        ({"hosts": HOSTS, "events": "host_gone"}, "events"),
        ({"hosts": HOSTS, "event": []}, "event"),
    ],
)
def test_invalid_options_are_refused_by_name(args: dict[str, t.Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        parse_options(args)
