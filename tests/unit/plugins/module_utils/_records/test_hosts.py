# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import is_twin, same_answer, same_host, shares_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

A, B = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01", "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"
U, V = "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01", "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02"

Ends = t.Tuple[t.Optional[str], t.Optional[str], t.Optional[str]]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("kvm1", A, U), ("kvm1", A, V), True),  # libvirt's UUID is another one since its daemon was started again
        (("kvm1", A, U), ("kvmx", A, V), True),
        (("kvm1", A, U), ("kvm2", B, U), False),  # boards with one UUID for all
        (("kvm1", A, U), ("kvm1", B, U), False),
        (("kvm1", None, U), ("kvmx", A, U), True),
        (("kvm1", None, U), ("kvm1", A, V), False),
        (("kvm1", None, None), ("kvm1", A, V), True),
        (("kvm1", None, None), ("kvm2", None, U), False),
        ((None, None, None), ("kvm1", A, U), False),
        ((None, A, None), ("kvm1", None, U), False),
    ],
)
def test_the_first_that_both_have_decides(one: Ends, other: Ends, same: bool) -> None:
    assert same_host(place(*one), place(*other)) is same
    assert same_host(place(*other), place(*one)) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("kvm1", A, U), ("alias", A, U), True),
        (("kvm1", A, U), ("kvm2", A, V), False),  # a copy of the file
        (("kvm1", A, U), ("kvm2", B, U), False),
        (("kvm1", None, U), ("alias", A, U), True),
        (("kvm1", None, None), ("kvm1", None, None), False),
        (("kvm1", A, None), ("alias", A, U), True),
    ],
)
def test_two_answers_of_one_moment(one: Ends, other: Ends, same: bool) -> None:
    assert same_answer(place(*one), place(*other)) is same


def test_hosts_that_should_have_been_two_or_one() -> None:
    assert is_twin(place("kvm1", A, U), place("kvm2", A, V))
    assert not is_twin(place("kvm1", A, U), place("alias", A, U))
    assert not is_twin(place("kvm1", None, U), place("kvm2", None, V))
    assert shares_uuid(place("kvm1", A, U), place("kvm2", B, U))
    assert not shares_uuid(place("kvm1", A, U), place("kvm1", None, U))
