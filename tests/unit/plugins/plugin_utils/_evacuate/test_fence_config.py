# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import format_options, parse_fencing, parse_options
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import Agent

HIDDEN = "hunter2"


def test_a_null_configuration_means_no_agent() -> None:
    assert parse_fencing(None, "kvm1") is None


def test_time_limits_have_defaults(tmp_path: pathlib.Path) -> None:
    device = Agent(tmp_path).device()
    assert (device.timeout_seconds, device.status_timeout_seconds, Agent(tmp_path).config().ttl_seconds) == (60, 20, 300)
    assert Agent(tmp_path).device(timeout_seconds=5).status_timeout_seconds == 5


def test_options_are_passed_as_lines_and_not_in_the_repr() -> None:
    options = parse_options({"ip": "192.0.2.7", "lanplus": True, "ssl": False, "ipport": 623, "password": HIDDEN, "tls1.0": "a=b"}, "x")
    assert format_options("status", options) == b"action=status\nip=192.0.2.7\nlanplus=1\nssl=0\nipport=623\npassword=hunter2\ntls1.0=a=b\n"
    assert HIDDEN not in repr(options)


@pytest.mark.parametrize("name", ["password", "passwd", "passwd_script", "snmp_priv_passwd", "api_token", "secret_key", "community", "Passphrase"])
def test_some_options_are_secrets_by_their_name(name: str) -> None:
    assert parse_options({name: HIDDEN}, "x")[0].secret


def test_any_option_can_be_marked_as_a_secret() -> None:
    plain, told, switch = parse_options({"login": "admin", "session": {"value": HIDDEN, "secret": True}, "no_password": 1}, "x")
    assert (plain.secret, told.secret, told.value, switch.secret) == (False, True, HIDDEN, False)


class Vaulted:
    """A vaulted text as ansible-core 2.18 hands it out: a text only when it is asked for as one."""

    __ENCRYPTED__ = True

    def __str__(self) -> str:
        return HIDDEN


def test_a_vaulted_value_is_decrypted_to_text() -> None:
    options = parse_options({"password": Vaulted(), "session": {"value": Vaulted(), "secret": True}}, "x")
    assert [(option.value, option.secret) for option in options] == [(HIDDEN, True), (HIDDEN, True)]
    assert options[0].value.__class__ is str


def test_a_number_of_seconds_may_come_out_of_a_template_as_text(tmp_path: pathlib.Path) -> None:
    assert Agent(tmp_path).device(timeout_seconds="45", ttl_seconds="300").timeout_seconds == 45


def test_a_config_shows_no_secret(tmp_path: pathlib.Path) -> None:
    config = Agent(tmp_path).config({"password": HIDDEN})
    assert HIDDEN not in f"{config} {config!r} {config.devices[0].options}"
    assert config.secrets() == (HIDDEN,)


BAD_OPTIONS: list[t.Any] = [
    HIDDEN,
    [HIDDEN],
    {"password": [HIDDEN]},
    {"password": None},
    {"password": {"value": HIDDEN, "more": 1}},
    {"password": {"secret": True}},
    {"password": {"value": {"value": HIDDEN}}},
    {"password": {"value": HIDDEN, "secret": "perhaps"}},
    {f"name={HIDDEN}": "x"},
    {f"name\naction=on\n{HIDDEN}": "x"},
    {"two words": HIDDEN},
    {"": HIDDEN},
    {"#password": HIDDEN},
    {5: HIDDEN},
    {"password": f"{HIDDEN}\naction=on"},
    {"password": f"{HIDDEN}\raction=on"},
    {"password": f"{HIDDEN}\x0baction=on"},
    {"password": f"{HIDDEN}\x85action=on"},
    {"password": f"{HIDDEN}\u2028action=on"},
    {"password": f"{HIDDEN}\x00"},
    {"password": f"{HIDDEN}\udc80"},
    {"password": HIDDEN * 10000},
    {"password": HIDDEN, "action": "on"},
    {"password": HIDDEN, "Option": "reboot"},
    {"password": HIDDEN, "missing-as-off": 1},
    {"password": HIDDEN, "missing_as_off": True},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=range(len(BAD_OPTIONS)))
def test_bad_options_are_refused_without_a_value_in_the_message(tmp_path: pathlib.Path, options: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_fencing of kvm1") as refused:
        parse_fencing({"agent": str(Agent(tmp_path).path), "options": options}, "kvm1")
    assert HIDDEN not in str(refused.value)


BAD_AGENTS: list[t.Any] = [
    None,
    "",
    5,
    ["fence_ipmilan"],
    "reboot",
    "fence_ipmilan -p hunter2",
    "fence_not_installed_anywhere",
    "./fence_test",
    "../usr/sbin/fence_test",
    "/no/such/agent",
    "/no/such/agent -p hunter2",
    "/",
    "/etc/passwd",
    "/bin/sh\0",
]


@pytest.mark.parametrize("agent", BAD_AGENTS, ids=range(len(BAD_AGENTS)))
def test_an_invalid_agent_is_refused(agent: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_fencing of kvm1") as refused:
        parse_fencing({"agent": agent, "options": {}}, "kvm1")
    assert HIDDEN not in str(refused.value)


@pytest.mark.parametrize("given", ["fence_ipmilan", 5, True, [], {"agent": "x", "passwd": "hunter2"}, {}])
def test_an_invalid_configuration_is_refused(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_fencing of kvm1") as refused:
        parse_fencing(given, "kvm1")
    assert HIDDEN not in str(refused.value)


@pytest.mark.parametrize("key", ["timeout_seconds", "status_timeout_seconds", "ttl_seconds"])
@pytest.mark.parametrize("value", [0, -1, 3601, "6x", "99999", "", None, True, 1.5, [60]])
def test_an_invalid_time_limit_is_refused(tmp_path: pathlib.Path, key: str, value: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^kvmfleet_fencing of kvm1: its {key} is not a number of seconds from 1 to"):
        Agent(tmp_path).config(**{key: value})


def test_a_status_timeout_longer_than_the_timeout_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument, match="status_timeout_seconds is not a number of seconds from 1 to 10"):
        Agent(tmp_path).config(timeout_seconds=10, status_timeout_seconds=11)


def test_levels_are_lists_of_devices_with_their_own_limits(tmp_path: pathlib.Path) -> None:
    one, two = Agent(tmp_path, name="fence_one"), Agent(tmp_path, name="fence_two")
    config = parse_fencing({"levels": [[one.entry()], [two.entry(timeout_seconds=9), one.entry(options={"plug": "2"})]], "timeout_seconds": 30}, "kvm1")
    assert config
    assert config.has_levels
    assert [[device.label for device in level] for level in config.levels] == [
        [f"{one.path} (level 1)"],
        [f"{two.path} (level 2 device 1)", f"{one.path} (level 2 device 2)"],
    ]
    assert [device.timeout_seconds for device in config.devices] == [30, 9, 30]
    assert [device.status_timeout_seconds for device in config.devices] == [20, 9, 20]


def test_one_device_is_one_level(tmp_path: pathlib.Path) -> None:
    config = Agent(tmp_path).config()
    assert (len(config.levels), len(config.devices), config.has_levels) == (1, 1, False)


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        ([], "its levels must be a list of 1 to 9 entries"),
        ("fence_one", "its levels must be a list"),
        (None, "its levels must be a list"),
        ([[]], "level 1 must be a list of 1 to 8 entries"),
        ([["ONE"], []], "level 2 must be a list of 1 to 8 entries"),
        ([{"agent": "fence_one"}], "level 1 must be a list"),
        ([["fence_one"]], "level 1 is not a dictionary"),
        ([["ONE"], ["ONE"]], r"fence_one \(level 2\) is the same device as .*fence_one \(level 1\)"),
        ([["ONE", "ONE"]], r"fence_one \(level 1 device 2\) is the same device"),
        ([["ONE", {"agent": "fence_no_such_agent"}]], "level 1 device 2: the agent fence_no_such_agent is not on the control node"),
        ([[{"options": {}}]], "level 1 names no agent"),
        ([["STATUS"]], "level 1 has an action"),
        ([["PING"]], "level 1: .*fence_heuristics_ping only observes"),
        ([["ONE"], [{"agent": "fence_one", "ttl_seconds": 9}]], "level 2 has unknown keys: ttl_seconds"),
        ([["ONE"]] * 10, "its levels must be a list of 1 to 9 entries"),
    ],
)
def test_levels_that_cannot_be_meant_are_refused_before_anything_is_called(tmp_path: pathlib.Path, levels: t.Any, problem: str) -> None:
    one, ping = Agent(tmp_path, name="fence_one"), Agent(tmp_path, name="fence_heuristics_ping")
    named = {"ONE": one.entry(), "STATUS": one.entry(action="status"), "PING": ping.entry()}
    given = [
        [named.get(device, device) if isinstance(device, str) else device for device in level] if isinstance(level, list) else level for level in levels or []
    ]
    with pytest.raises(InvalidArgument, match=problem) as refused:
        parse_fencing({"levels": given if isinstance(levels, list) else levels}, "kvm1")
    assert "kvmfleet_fencing of kvm1" in str(refused.value)
    assert "S3cret" not in str(refused.value)
    assert not one.asked()


def test_a_watchdog_is_named_alone_or_beside_devices(tmp_path: pathlib.Path) -> None:
    alone = parse_fencing({"watchdog_seconds": "30", "ttl_seconds": 60}, "kvm1")
    assert alone
    assert (alone.levels, alone.devices, alone.watchdog_seconds, alone.ttl_seconds) == ((), (), 30, 60)
    assert Agent(tmp_path).config(watchdog_seconds=30).watchdog_seconds == 30
    levels = parse_fencing({"levels": [[Agent(tmp_path).entry()]], "watchdog_seconds": 30}, "kvm1")
    assert levels
    assert (len(levels.levels), levels.watchdog_seconds) == (1, 30)
    assert Agent(tmp_path).config().watchdog_seconds is None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"watchdog_seconds": 0}, "its watchdog_seconds is not a number of seconds from 1 to 3600"),
        ({"watchdog_seconds": True}, "its watchdog_seconds is not a number"),
        ({"watchdog_seconds": None}, "its watchdog_seconds is not a number"),
        ({"watchdog_seconds": 30, "timeout_seconds": 5}, "names no agent"),
        ({"watchdog_seconds": 30, "options": {}}, "names no agent"),
        ({"watchdog": 30}, "has unknown keys: watchdog"),
        ({"levels": [[{"agent": "/bin/true", "watchdog_seconds": 30}]]}, "has unknown keys: watchdog_seconds"),
    ],
)
def test_an_invalid_watchdog_is_refused(given: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        parse_fencing(given, "kvm1")


@pytest.mark.parametrize("key", ["agent", "options"])
def test_levels_and_a_single_device_exclude_each_other(tmp_path: pathlib.Path, key: str) -> None:
    agent = Agent(tmp_path)
    with pytest.raises(InvalidArgument, match="has both levels and an agent"):
        parse_fencing({"levels": [[agent.entry()]], key: agent.entry()[key]}, "kvm1")


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"plug": "3"}, False),
        ({"plug": 3, "snmp_version": 1}, False),
        ({"plug": "kvm1 left", "snmp_version": "2c"}, False),
        ({"plug": "3", "snmp_version": "2c"}, True),
        ({"port": 3, "snmp-version": "3"}, True),
        ({"plug": "1:3", "snmp_version": "3"}, True),
    ],
)
def test_an_outlet_that_the_agent_would_guess_to_be_off_is_refused(tmp_path: pathlib.Path, options: dict[str, t.Any], is_refused: bool) -> None:
    """Debian's fence_apc_snmp was seen to print "Status: OFF" for an outlet that there is not."""
    given = {"agent": str(Agent(tmp_path, name="fence_apc_snmp").path), "options": options}
    if not is_refused:
        assert parse_fencing(given, "kvm1")
        return
    with pytest.raises(InvalidArgument, match="would report a host as off if there is no outlet with that number"):
        parse_fencing(given, "kvm1")
