# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How hosts are fenced: settings, what agents print, and evidence that somebody else wrote."""

from __future__ import annotations

import datetime
import json
import typing as t

from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import (
    SHOWN_OUTPUT_BYTES,
    PowerState,
    plain_text,
    read_power,
    redact_secrets,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import (
    AgentOption,
    FenceDevice,
    FencingConfig,
    format_options,
    parse_fencing,
)

from ..mutation import mutated
from ..target import Target

SECRET = "s3cret & 'word'"
NOW = datetime.datetime(2026, 11, 21, 3, 0, 0, tzinfo=datetime.UTC)
# Evidence never names this device, so that its age counts.
_CONFIG = FencingConfig("kvm1", ((FenceDevice("kvm1", "fence_x", "fence_x", "/sbin/fence_x", 60, 20, (AgentOption("password", SECRET, True),)),),), 300)
_OUTPUTS = (
    b"Status: OFF\n",
    b'{"PowerState": "Off"}\n',
    b"Chassis Power is on\r\n\x1b[31mfailed\x1b[0m\n",
    f"Connecting as admin:{SECRET} ...\nStatus: OFF".encode(),
    b"Usage: fence_x [-o action]\n  -o, --action=[action]  on, off, status\n",
)


def check_output(data: bytes) -> None:
    """Read what an agent printed: no secret comes through, and it is off only by its own word."""
    text = plain_text(data)
    for code in (None, -9, 0, 1, 2):
        power = read_power(code, text)
        assert power is not PowerState.OFF or (code == 2 and "off" in text.lower())
    for torn, killed in ((False, False), (True, False), (False, True)):
        shown = redact_secrets(text, [SECRET], torn, killed)
        assert len(shown.encode("utf-8")) <= SHOWN_OUTPUT_BYTES
        assert SECRET not in shown


_EVIDENCE = {
    "kind": "tasks",
    "host": "kvm1",
    "host_id": None,
    "agent": "pdu",
    "action": "off",
    "status": "off",
    "output": f"done {SECRET}",
    "at": "2026-11-21T02:59:00Z",
    "by": "me",
    "ttl_seconds": 300,
    "reason": None,
}


def check_tasks(given: t.Any) -> None:
    """Read evidence of a tasks file: what passes says that this host is off, now, and can be written down."""
    checked = fencing.check_evidence(given, "kvm1", None, "root", NOW, _CONFIG)
    assert (checked.host, checked.status) == ("kvm1", "off")
    assert fencing.is_fresh(checked, NOW)
    assert SECRET not in json.dumps(encode(checked))


def check_person(given: t.Any) -> None:
    """Read the confirmation of a person."""
    json.dumps(encode(fencing.person_evidence(given, "kvm1", None, "root"))).encode("utf-8")


_SETTINGS = {
    "agent": "/bin/true",
    "options": {"ip": "10.0.0.1", "password": SECRET, "port": 1, "lanplus": True, "token": {"value": "x", "secret": True}},
    "timeout_seconds": 60,
    "status_timeout_seconds": 20,
    "ttl_seconds": 300,
}


_LEVELS = {
    "levels": [[{"agent": "/bin/true", "options": {"ip": "10.0.0.1"}}], [{"agent": "/bin/true", "timeout_seconds": 9}, {"agent": "/bin/false"}]],
    "timeout_seconds": 60,
    "ttl_seconds": 300,
}


def check_settings(given: t.Any) -> None:
    """Read C(kvmfleet_fencing): one line an option goes to the agent."""
    config = parse_fencing(given, "kvm1")
    for device in config.devices if config else ():
        lines = format_options("status", device.options).decode("utf-8")
        assert len(lines.splitlines()) == len(device.options) + 1
        assert "options" not in repr(config)
        assert all(repr(option) == f"Option({option.name})" for option in device.options)


TARGETS = [
    Target.of_bytes("fence_output", check_output, *_OUTPUTS),
    Target("fence_tasks", check_tasks, mutated(_EVIDENCE)),
    Target("fence_person", check_person, st.one_of(mutated({"by": "ann", "reason": "I pulled the plug"}))),
    Target("fence_settings", check_settings, mutated(_SETTINGS, {**_SETTINGS, "agent": "fence_ipmilan"}, _LEVELS)),
]
