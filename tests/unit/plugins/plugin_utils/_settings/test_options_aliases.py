# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An option has one value, whichever of its names a task gives; two names of one option are refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import domain_policy_spec, live_migrate_spec, migration_abort_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import check_options, read_options

ALIASES = ["domain", "guest"]


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
