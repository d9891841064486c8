# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the inventory, of saved requests and of options; times."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ansible.errors import AnsibleError
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import downtime_at, downtime_steps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import libvirt_formats
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef, canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED, LIVE_MIGRATION
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import list_ssh_endpoints
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.source import Source, age_seconds
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import connection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import run_query
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.selection import make_selection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.guests import arriving_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.parallel import MAX_PARALLEL, read_parallel
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import effective_policy
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import SchedulerSettings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

from .. import sandbox
from ..mutation import mutated
from ..target import Target

_SCHEDULER = {
    "cpu_allocation_ratio": 4.0,
    "ram_allocation_ratio": "1.5",
    "disk_allocation_ratio": 1,
    "reserved_memory_mib": 512,
    "reserved_cpus": 0,
    "labels": ["ssd", "gpu"],
    "limits": {"domains": 10, "moves_in": None, "moves_out": 2},
    "weights": {"free_memory": 1, "moves": -1.0},
}
_GOLD = {
    "post_copy": True,
    "timeout_seconds": 300,
    "on_timeout": "abort",
    "downtime_ms": 500,
    "priority": 7,
    "drain": "leave",
    "labels": ["ssd"],
    "group": None,
}
_VARIABLES = {
    "kvmfleet_ledger": "/var/lib/ledger",
    "kvmfleet_transport": "ssh",
    "kvmfleet_libvirt_uri": "qemu+ssh://kvm2/system",
    "kvmfleet_migration_address": "10.0.0.2",
    "kvmfleet_migration_policy": {"timeout_seconds": 60, "priority": 3},
    "kvmfleet_profiles": {"gold": _GOLD, "none": None},
    "kvmfleet_scheduler": _SCHEDULER,
    "ansible_host": "10.0.0.2",
    "ansible_port": 22,
    "ansible_facts": {"kvmfleet_host": {"gathered_at": "2026-11-21T03:00:00.000Z", "domains": []}},
}


def check_variables(variables: t.Any) -> None:
    """Read the inventory variables of a host, each by itself. Ansible sees to it that they are a dictionary of names."""
    if not isinstance(variables, dict):
        return
    settings = Settings({"hostvars": {"kvm2": variables, "kvm1": {}}, "groups": {"all": ["kvm1", "kvm2"]}})
    entry = {"name": "kvm2", "host_id": None, "addresses": {"ansible_host": variables.get("ansible_host"), "ssh_port": variables.get("ansible_port")}}
    for read in (
        lambda: settings.scheduler("kvm2"),
        lambda: effective_policy({}, settings.profile("kvm2", "gold"), settings.policy("kvm2")),
        lambda: settings.libvirt_uri("kvm2", "kvm1"),
        lambda: settings.libvirt_uri("kvm1", "kvm2"),
        lambda: settings.host_at("qemu+ssh://10.0.0.2/system"),
        lambda: settings.migrate_uri("kvm2"),
        lambda: settings.fresh_facts("kvm2"),
        lambda: list_ssh_endpoints(settings, Source(host_entry(entry))),
    ):
        with contextlib.suppress(KvmfleetError):
            read()


def check_scheduler(value: t.Any) -> None:
    """Read C(kvmfleet_scheduler), and use what passes."""
    settings = SchedulerSettings.from_variable(value, "kvm2").with_task(value)
    host = HostState.from_facts("kvm2", decode(HostFacts, f.host("kvm2")), settings=settings)
    assert host.capacity_mib >= 0
    assert host.capacity_vcpus >= 0
    settings.as_json()


def check_request(needs: t.Any) -> None:
    """Read a saved request and ask every filter about it."""
    request = Request.from_needs(needs)
    fleet = Fleet({name: HostState.from_facts(name, decode(HostFacts, f.host(name))) for name in ("kvm1", "kvm2")})
    for host in fleet.states.values():
        check_host(request, host, fleet).as_dict()


_ARGUMENTS = {
    **{name: spec.get("default") for name, spec in move_spec().items()},
    "name": "web",
    "destination": "kvm2",
    "destination_uri": None,
    "migrate_uri": "tcp://10.0.0.2",
    "timeout_seconds": 60,
    "link_mib": 110,
    "moves": None,
    "parallel": 4,
}


def check_options(arguments: t.Any) -> None:
    """Read the options of a task: texts, numbers and lists are of their type already, what they hold may be anything."""
    if not isinstance(arguments, dict) or not all(_is_of_type(name, arguments.get(name)) for name in (*move_spec(), "parallel", "moves")):
        return
    settings = Settings({"hostvars": {"kvm1": {}, "kvm2": _VARIABLES}, "groups": {"all": ["kvm1", "kvm2"]}})
    assert 0 <= read_parallel(arguments.get("parallel", 4)) <= MAX_PARALLEL
    for request in read_requests({"parallel": 4, **arguments}, settings, "kvm1"):
        assert request.name or request.uuid


_TYPES = {"str": str, "int": int, "bool": bool, "list": list, "dict": dict, "float": float}


def _is_a(value: t.Any, kind: type) -> bool:
    """Whether it is of that type; a boolean is no number."""
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _is_of_type(name: str, value: t.Any) -> bool:
    if name == "moves":
        return value is None
    if name == "parallel":
        return _is_a(value, int) or isinstance(value, str)
    spec = move_spec()[name]
    if value is None:
        return True
    fits = _is_a(value, _TYPES[spec.get("type", "str")])
    return fits and ("choices" not in spec or value in spec["choices"]) and (spec.get("elements") != "str" or all(isinstance(one, str) for one in value))


_TIMES = (
    "2026-11-21T03:00:00.000Z",
    "2026-11-21",
    "2026-W47-6",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00",
    "20261121T030000,5Z",
    "2026-11-21T03:00:00",
)
_WORDS = st.one_of(mutated(*_TIMES), st.text(max_size=30), st.text(alphabet="0123456789-+:.TZW, ", max_size=32))


_ENDS = HostRef("kvm1", None, None), HostRef("kvm2", None, None)
_ARRIVED = dataclasses.replace(new_record(LIVE_MIGRATION, DomainRef("a", None), *_ENDS, {}, "me"), status=COMPLETED)


def check_time(value: t.Any) -> None:
    """Read a time wherever one is read."""
    age_seconds(value)
    arriving_records([dataclasses.replace(_ARRIVED, updated_at=value)], HostRef("kvm2", None, None))
    check_variables({**_VARIABLES, "ansible_facts": {"kvmfleet_host": {"received": value}}})
    check_variables({**_VARIABLES, "ansible_facts": {"kvmfleet_host": {"received": {"boot_id": "a", "seconds": value}}}})
    make_selection(since=value, until=value).prefilter.written_since  # noqa: B018 it is worked out when it is read


def check_duration(numbers: list[int]) -> None:
    """Work out the steps of a downtime of any size that the options allow."""
    downtime_ms, steps, delay, gib, timeout = numbers
    downtime_at(downtime_steps(downtime_ms, steps, delay, float(gib), timeout), 5.0)


_DURATIONS = st.tuples(*(st.integers(1, most) for most in (10**7, 1000, 10**6, 10**6, 10**9))).map(list)


def check_uri(value: t.Any) -> None:
    """Read a URI and an address wherever an option or a variable gives one."""
    text = value if isinstance(value, str) else str(value)
    for read in (
        lambda: libvirt_formats.check_uri(value, "uri"),
        lambda: libvirt_formats.check_migrate_uri(value),
        lambda: libvirt_formats.remote_uri(text, "ssh"),
        lambda: canonical_uuid(text),
        lambda: _local(value),
    ):
        with contextlib.suppress(KvmfleetError):
            read()


def _local(value: t.Any) -> None:
    assert not libvirt_formats.is_local(libvirt_formats.check_uri(value, "uri")) or "//" in value
    Settings({"hostvars": {"kvm1": {"kvmfleet_libvirt_uri": value}}, "groups": {}}).host_at(value)


_URIS = ("qemu:///system", "qemu+ssh://root@[fe80::1%eth0]:22/system?no_tty=1", "tcp://10.0.0.2:49152", "unix:///run/x", "kvm1.example.org", "[::1]")
_URI_TEXTS = st.one_of(
    mutated(*_URIS), st.text(max_size=30), st.text(alphabet="aq+:/[]@%.0-9?#\u2100\uff0f", max_size=24).map(lambda text: f"qemu+ssh://{text}")
)

_QUERIES = (
    "[?status=='running'].{id: id, host: source.host}",
    "length(@)",
    "sort_by(@, &name)[-1]",
    "@[0].progress.percent",
    "max([].memory_mib)",
    "join('-', [].name)",
)
_RECORDS = [{"id": "a", "status": "running", "name": "web", "source": {"host": "kvm1"}, "progress": {"percent": 5}, "memory_mib": 3}, {"id": "b"}]


def check_query(case: tuple[str, t.Any]) -> None:
    """Run a query over documents."""
    run_query(case[1], case[0])


def check_query_text(data: bytes) -> None:
    """Run bytes as a query."""
    run_query(_RECORDS, data.decode("utf-8", "surrogateescape"))


def check_ledger_option(value: t.Any) -> None:
    """Open the ledger that C(kvmfleet_ledger) names, without making it; of one in etcd only the address is read."""
    if isinstance(value, str) and value.lower().startswith(connection.SCHEME):
        connection.parse_address(value)
    elif value is not None:
        open_ledger(f"{sandbox.FOLDER}/none/{value.replace('..', '')}" if isinstance(value, str) and "://" not in value else value, create=False)


TARGETS = [
    Target("inventory_variables", check_variables, mutated(_VARIABLES), (KvmfleetError, AnsibleError)),
    Target("inventory_scheduler", check_scheduler, mutated(_SCHEDULER)),
    Target("inventory_ledger", check_ledger_option, mutated("/nowhere/ledger", "ledger", "~/x", "etcd://h:1/x")),
    Target("saved_request", check_request, mutated(f.request(), {**f.request(), "numa": {"mode": "strict", "nodeset": [0], "cells": [{"memory_mib": 5}]}})),
    Target("move_options", check_options, mutated(_ARGUMENTS, {**_ARGUMENTS, "destination": None, "destination_uri": "qemu+ssh://kvm2/system"})),
    Target("times", check_time, _WORDS),
    Target("durations", check_duration, _DURATIONS),
    Target("uris", check_uri, _URI_TEXTS),
    Target("query", check_query, st.tuples(st.sampled_from(_QUERIES), mutated(_RECORDS))),
    Target.of_bytes("query_text", check_query_text, *(text.encode() for text in _QUERIES)),
]
