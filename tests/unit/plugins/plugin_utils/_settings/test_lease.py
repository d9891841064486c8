# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variable kvmfleet_lease: what it is without further keys, and what is refused with which sentence."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import lease as m

OWN = {"user": "lease-kvm1", "password": "s3cret-word"}


def test_a_user_and_a_password_are_enough() -> None:
    settings = m.read_lease_settings(OWN, "kvm1")
    assert (settings.user, settings.lease_seconds, settings.renew_seconds, settings.port, settings.relay) == ("lease-kvm1", 15, 3, 16516, False)
    assert (settings.cert_file, settings.key_file) == (None, None)
    assert "s3cret-word" not in repr(settings)


def test_values_from_templates_are_texts() -> None:
    settings = m.read_lease_settings({**OWN, "lease_seconds": "30", "renew_seconds": "10", "port": "17000", "relay": True}, "kvm1")
    assert (settings.lease_seconds, settings.renew_seconds, settings.port, settings.relay) == (30, 10, 17000, True)


def test_a_lease_is_bound_to_a_watchdog_only_on_demand() -> None:
    assert m.read_lease_settings(OWN, "kvm1").watchdog is None
    assert m.read_lease_settings({**OWN, "watchdog": {}}, "kvm1").watchdog == m.WatchdogSettings(None, 10)
    own = {**OWN, "watchdog": {"device": "/dev/watchdog1", "seconds": "30"}}
    assert m.read_lease_settings(own, "kvm1").watchdog == m.WatchdogSettings("/dev/watchdog1", 30)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is not set, or is not a dictionary"),
        ([], "is not set, or is not a dictionary"),
        ({**OWN, "seconds": 15}, "unknown keys: 'seconds'"),
        ({"user": "lease-kvm1"}, "has no password"),
        ({"password": "s3cret-word"}, "has no user"),
        ({**OWN, "user": ""}, "has no user"),
        ({**OWN, "password": 7}, "'password' of kvmfleet_lease of kvm1 is not a text"),
        ({**OWN, "renew_seconds": 6}, "only two renewals were late"),
        ({**OWN, "lease_seconds": 8}, "only two renewals were late"),
        ({**OWN, "lease_seconds": 5, "renew_seconds": 1}, "lease_seconds of kvmfleet_lease of kvm1 is '5'"),
        ({**OWN, "lease_seconds": 301}, "from 6 to 300"),
        ({**OWN, "lease_seconds": True}, "from 6 to 300"),
        ({**OWN, "lease_seconds": 15.5}, "from 6 to 300"),
        ({**OWN, "lease_seconds": None}, "from 6 to 300"),
        ({**OWN, "renew_seconds": 0}, "from 1 to 300"),
        ({**OWN, "renew_seconds": "٣"}, "from 1 to 300"),
        ({**OWN, "port": 0}, "port of kvmfleet_lease of kvm1 is '0'"),
        ({**OWN, "port": 65536}, "Give the number of a TCP port"),
        ({**OWN, "relay": "yes"}, "neither true nor false"),
        ({**OWN, "cert_file": "/etc/lease.pem"}, "only one of cert_file and key_file"),
        ({**OWN, "watchdog": True}, "watchdog of kvmfleet_lease of kvm1 is not a dictionary"),
        ({**OWN, "watchdog": {"timeout": 10}}, "unknown keys: 'timeout'"),
        ({**OWN, "watchdog": {"device": "/dev/watchdog"}}, "Give a path such as /dev/watchdog0"),
        ({**OWN, "watchdog": {"device": "/dev/sda"}}, "device of watchdog of kvmfleet_lease of kvm1 is '/dev/sda'"),
        ({**OWN, "watchdog": {"seconds": 4}}, "seconds of watchdog of kvmfleet_lease of kvm1 is '4'"),
        ({**OWN, "watchdog": {"seconds": 61}}, "from 5 to 60"),
    ],
)
def test_what_cannot_be_is_refused_without_the_password(value: t.Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        m.read_lease_settings(value, "kvm1")
    assert words in str(caught.value)
    assert "s3cret-word" not in str(caught.value)
