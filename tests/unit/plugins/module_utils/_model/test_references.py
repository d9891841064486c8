# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether two references mean one host."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef, host_of

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
def test_two_references_are_compared_by_the_first_identity_that_both_have(one: Ends, other: Ends, same: bool) -> None:
    assert HostRef(*one).is_same(HostRef(*other)) is same
    assert HostRef(*other).is_same(HostRef(*one)) is same


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
def test_two_answers_of_one_moment_are_compared_by_host_id_and_uuid(one: Ends, other: Ends, same: bool) -> None:
    assert HostRef(*one).is_same_answer(HostRef(*other)) is same


def test_twins_and_hosts_that_share_a_uuid_are_recognised() -> None:
    assert HostRef("kvm1", A, U).is_twin(HostRef("kvm2", A, V))
    assert not HostRef("kvm1", A, U).is_twin(HostRef("alias", A, U))
    assert not HostRef("kvm1", None, U).is_twin(HostRef("kvm2", None, V))
    assert HostRef("kvm1", A, U).shares_uuid(HostRef("kvm2", B, U))
    assert not HostRef("kvm1", A, U).shares_uuid(HostRef("kvm1", None, U))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"host": "kvm1", "host_id": A, "host_uuid": U}, HostRef("kvm1", A, U)),
        ({"host_uuid": U, "answered": True}, HostRef(None, None, U)),
        ({"name": "kvm1", "host_id": A}, HostRef(None, A, None)),
        ({"host": 5, "host_id": None}, HostRef(None, None, None)),
    ],
)
def test_a_host_reference_is_read_from_any_document_with_its_keys(document: t.Mapping[str, Json], expected: HostRef) -> None:
    assert host_of(document) == expected
