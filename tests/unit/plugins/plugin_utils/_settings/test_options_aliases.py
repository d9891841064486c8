# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An option has one value, whichever of its names a task gives, and the move is the same; two names of one option are refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import (
    domain_policy_spec,
    live_migrate_spec,
    migration_abort_spec,
    migration_force_complete_spec,
    move_spec,
    scheduler_check_spec,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import COPY_CHOICES, COPY_MODES, read_copy_mode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest, read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.scheduler_check import read_check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import check_options, read_options, use_own_names
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import settings_of

ALIASES = ["domain", "guest"]
# The words of virsh migrate, and the options with the same meaning and unit.
OF_VIRSH: dict[str, tuple[str, t.Any]] = {
    "desturi": ("destination_uri", "qemu+tcp://kvm2/system"),
    "migrateuri": ("migrate_uri", "tcp://10.0.0.2"),
    "timeout": ("timeout_seconds", 600),
    "downtime": ("downtime_ms", 300),
    "postcopy": ("post_copy", True),
    "bandwidth": ("bandwidth_mib", 100),
    "postcopy_bandwidth": ("post_copy_bandwidth_mib", 50),
}
OWN = dict(OF_VIRSH.values())
BY_ALIAS = {alias: value for alias, (_name, value) in OF_VIRSH.items()}


def request_of(**given: t.Any) -> MoveRequest:
    """Return the request of a task with these options, as both parsers read them."""
    (request,) = read_requests(t.cast(t.Any, read_options({"destination": "kvm2", **given}, live_migrate_spec())), settings_of(), "kvm1")
    return request


def test_the_aliases_are_those_of_the_table() -> None:
    found = {alias: name for name, option in move_spec().items() for alias in option.get("aliases", ()) if alias not in ALIASES}
    assert found == {alias: name for alias, (name, _value) in OF_VIRSH.items()}


def test_a_move_is_the_same_by_the_words_of_virsh() -> None:
    request = request_of(name="web1", **BY_ALIAS)
    assert request == request_of(name="web1", **OWN)
    assert (request.policy.timeout_given, request.policy.downtime_ms, request.policy.post_copy) == (600, 300, True)
    assert (request.options.bandwidth_mib, request.options.post_copy_bandwidth_mib) == (100, 50)
    assert (request.uris, request.migrate_uri) == ({"kvm2": "qemu+tcp://kvm2/system"}, "tcp://10.0.0.2")
    assert request.policy.source_of("timeout_seconds") == "task"


def test_one_of_several_moves_overrides_the_task_by_either_name() -> None:
    wanted = request_of(name="web1", timeout_seconds=300)
    assert request_of(moves=[{"name": "web1", "timeout": 300}], timeout_seconds=600) == wanted
    assert request_of(moves=[{"name": "web1", "timeout_seconds": 300}], timeout=600) == wanted


@pytest.mark.parametrize(("word", "mode"), [("all", "full"), ("inc", "incremental")])
def test_virshs_words_for_copied_storage_mean_a_mode(word: str, mode: str) -> None:
    assert request_of(name="web1", copy_storage=word, copy_storage_overwrite=["vda"]).options.copy_storage == mode
    check = read_options({"name": "web1", "destination": "kvm2", "copy_storage": word}, scheduler_check_spec())
    assert read_check(t.cast(t.Any, check), settings_of(), "kvm1").move.options.copy_storage == mode
    assert DrainOptions.from_values(options={"copy_storage": word}).moves == {"copy_storage": mode}


def test_each_choice_of_copied_storage_is_a_mode() -> None:
    assert {read_copy_mode(choice) for choice in COPY_CHOICES} == set(COPY_MODES)
    assert read_copy_mode(None) == "none"


def test_the_plan_of_a_drain_has_options_under_their_own_names() -> None:
    given = {alias: value for alias, value in BY_ALIAS.items() if alias != "desturi"}
    assert DrainOptions.from_values(options=given).moves == {name: value for name, value in OWN.items() if name != "destination_uri"}
    with pytest.raises(InvalidArgument, match="'timeout' and 'timeout_seconds' are names of one option"):
        DrainOptions.from_values(options={"timeout": 1, "timeout_seconds": 2})


@pytest.mark.parametrize("option", ["desturi", "guest"])
def test_a_drain_does_not_take_what_a_plan_sets_by_an_alias(option: str) -> None:
    with pytest.raises(InvalidArgument, match=option):
        DrainOptions.from_values(options={option: "kvm2"})


@pytest.mark.parametrize(
    ("spec", "alias", "name"),
    [
        (migration_abort_spec(), "wait_timeout", "wait_seconds"),
        (migration_force_complete_spec(), "wait_timeout", "wait_seconds"),
        (migration_force_complete_spec(), "bandwidth", "bandwidth_mib"),
        (domain_policy_spec(), "timeout", "timeout_seconds"),
        (domain_policy_spec(), "downtime", "downtime_ms"),
    ],
)
def test_an_alias_has_the_meaning_of_its_option(spec: t.Any, alias: str, name: str) -> None:
    assert read_options({alias: 7}, spec) == read_options({name: 7}, spec)
    with pytest.raises(InvalidArgument, match=f"'{name}' and '{alias}' are names of one option"):
        check_options({name: 7, alias: 8}, spec)


@pytest.mark.parametrize("alias", OF_VIRSH)
def test_an_option_and_its_alias_with_different_values_are_refused(alias: str) -> None:
    name, value = OF_VIRSH[alias]
    for given in ({alias: value, name: value}, {"moves": [{name: value, alias: None}]}):
        with pytest.raises(InvalidArgument, match=r"are names of one option.*Nothing was changed"):
            check_options(given, live_migrate_spec())


@pytest.mark.parametrize(("given", "words"), [({"timeout": "soon"}, "'timeout' must be a whole number"), ({"copy_storage": "some"}, "all, inc, not 'some'")])
def test_a_wrong_value_is_named_by_the_name_that_was_given(given: t.Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_options(given, live_migrate_spec())


def test_own_names_leave_what_is_no_option() -> None:
    assert use_own_names({"timeout": 1, "colour": "red"}, move_spec()) == {"timeout_seconds": 1, "colour": "red"}


@pytest.mark.parametrize("spec", [live_migrate_spec(), migration_abort_spec(), domain_policy_spec()])
@pytest.mark.parametrize("alias", ALIASES)
def test_a_domain_is_named_by_each_name_of_the_option(spec: t.Any, alias: str) -> None:
    read = read_options({alias: "web1"}, spec)
    assert read["name"] == "web1"
    assert set(read) == set(spec)


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_valid_in_each_of_several_moves(alias: str) -> None:
    (move,) = t.cast(t.Any, read_options({"moves": [{alias: "web1", "destination": "kvm2"}]}, live_migrate_spec())["moves"])
    assert (move["name"], move["destination"]) == ("web1", "kvm2")
    assert not set(ALIASES) & set(move)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"name": "web1", "guest": "web2"}, "'name' and 'guest'"),
        ({"domain": "web1", "guest": "web1"}, "'domain' and 'guest'"),
        ({"guest": None, "name": "web1"}, "'guest' and 'name'"),
        ({"moves": [{"name": "web1", "domain": "web2"}]}, r"'moves\[0\]\.name' and 'moves\[0\]\.domain'"),
    ],
)
def test_two_names_of_one_option_are_refused(given: t.Any, names: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{names} are names of one option.*Nothing was changed"):
        check_options(given, live_migrate_spec())


def test_the_value_of_an_alias_has_the_type_of_its_option() -> None:
    with pytest.raises(InvalidArgument, match="'guest' must be text"):
        check_options({"guest": ["web1", "web2"]}, live_migrate_spec())
