# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator writes as an address and as C(kvmfleet_etcd): what is wrong with it is said, and never with a password in it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

LOCAL = parse_address("etcd://127.0.0.1:2379,localhost,[::1]/fleet")
SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("location", "endpoints", "prefix", "shown"),
    [
        ("etcd://127.0.0.1:2379/fleet", ["127.0.0.1:2379"], "/fleet/", "etcd://127.0.0.1:2379/fleet"),
        ("etcd://a.example, b:1/x/y-1/", ["a.example:2379", "b:1"], "/x/y-1/", "etcd://a.example:2379,b:1/x/y-1"),
        ("etcd://[::1]:2379,[fe80::1]/f", ["[::1]:2379", "[fe80::1]:2379"], "/f/", "etcd://[::1]:2379,[fe80::1]:2379/f"),
        ("ETCD://a,a:2379/f", ["a:2379"], "/f/", "etcd://a:2379/f"),
    ],
)
def test_addresses_are_parsed_into_endpoints_and_prefix(location: str, endpoints: list[str], prefix: str, shown: str) -> None:
    address = parse_address(location)
    assert ([str(endpoint) for endpoint in address.endpoints], address.prefix, str(address)) == (endpoints, prefix, shown)


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("etcd://127.0.0.1:2379", "names no prefix"),
        ("etcd://127.0.0.1:2379/", "names no prefix"),
        ("etcd:///fleet", "'' is not a host and port"),
        ("etcd://a,,b/fleet", "'' is not a host and port"),
        ("etcd://a:0/fleet", "'a:0' is not a host and port"),
        ("etcd://a:65536/fleet", "not a host and port"),
        ("etcd://a:x/fleet", "not a host and port"),
        ("etcd://[::g]/fleet", "not a host and port"),
        ("etcd://-a/fleet", "not a host and port"),
        ("etcd://a/fl eet", "is not a prefix"),
        ("etcd://a//fleet", "is not a prefix"),
        ("etcd://a/../fleet", "is not a prefix"),
        ("etcd://a/fleet?x=1", "is not a prefix"),
        (f"etcd://a/{'x' * 300}", "is not a prefix"),
    ],
)
def test_a_bad_address_is_refused(location: str, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named.replace("[", r"\[").replace("?", r"\?")):
        open_ledger(location)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidArgument, match="kvmfleet_etcd") as refused:
        open_ledger(f"etcd://root:{SECRET}@127.0.0.1/fleet")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("tls", "is not a dictionary"),
        ({"pasword": SECRET}, "unknown keys: 'pasword'"),
        ({"user": "fleet"}, "only one of user and password"),
        ({"password": SECRET}, "only one of user and password"),
        ({"user": "fleet", "password": [SECRET]}, "'password' .* is not a text"),
        ({"user": 7, "password": SECRET}, "'user' .* is not a text"),
        ({"tls": "yes"}, "neither true nor false"),
        ({"key_file": "/k"}, "no cert_file"),
        ({"tls": False, "ca_file": "/c"}, "'tls' is false"),
    ],
)
def test_bad_options_are_refused_without_secrets_in_the_message(value: t.Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named) as refused:
        read_options(value, LOCAL)
    assert SECRET not in str(refused.value)


def test_a_password_without_tls_is_refused_except_for_this_machine() -> None:
    value = {"user": "fleet", "password": SECRET}
    assert read_options(value, LOCAL).password == SECRET
    with pytest.raises(InvalidArgument, match=r"would go to 10\.0\.0\.1:2379 in clear text") as refused:
        read_options(value, parse_address("etcd://127.0.0.1,10.0.0.1/fleet"))
    assert SECRET not in str(refused.value)
    assert read_options({**value, "tls": True}, parse_address("etcd://10.0.0.1/fleet")).tls


def test_a_password_is_not_in_the_repr_of_the_options() -> None:
    assert SECRET not in repr(read_options({"user": "fleet", "password": SECRET}, LOCAL))


def test_tls_is_enabled_by_a_certificate_or_ca_file() -> None:
    assert not read_options(None, LOCAL).tls
    assert not read_options({"ca_file": ""}, LOCAL).tls
    assert read_options({"ca_file": "/ca.pem"}, LOCAL).tls
    assert read_options({"cert_file": "/c.pem"}, LOCAL).tls


def test_an_unusable_certificate_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for value in ({"ca_file": "/nowhere/ca.pem"}, {"ca_file": str(tmp_path / "no.pem")}, {"cert_file": str(tmp_path / "no.pem")}):
        with pytest.raises(InvalidArgument, match=next(iter(value.values()))):
            open_ledger("etcd://127.0.0.1:1/fleet", value)
