# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An option that does not exist is refused with the one that is meant, else with those that exist."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import check_options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bandwith_mib": 100}, "There is no option 'bandwith_mib'. Is bandwidth_mib meant? Nothing was changed."),
        ({"moves": [{"nmae": "web1"}]}, "There is no option 'moves[0].nmae'. Is name meant? Nothing was changed."),
        ({"colour": "red"}, "There is no option 'colour'. Valid names there are: uri, "),
    ],
)
def test_an_unknown_option_is_refused(given: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        check_options({"destination": "kvm2", **given}, live_migrate_spec())
    assert str(error.value).startswith(words)
    assert "_work" not in str(error.value)
