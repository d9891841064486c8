# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A database of etcd is told about before it reaches its quota, whether a member reports that quota or not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import DatabaseSize, Garbled, parse_size
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.quota import describe_shortage

GIB = 1024**3


def describe(size: float, in_use: float = 0.5, quota: t.Optional[float] = None) -> str:
    return describe_shortage(DatabaseSize(int(size * GIB), int(in_use * GIB), int(quota * GIB) if quota else None, is_full=False), "etcd://one/fleet") or ""


@pytest.mark.parametrize(("size", "quota"), [(0, None), (1.5, None), (2.1, None), (6.3, None), (9, None), (1.9, 8), (3.1, 4)])
def test_a_database_with_room_is_no_finding(size: float, quota: t.Optional[float]) -> None:
    assert not describe(size, quota=quota)


@pytest.mark.parametrize(("size", "quota", "at"), [(1.7, None, 2), (6.5, None, 8), (3.3, 4, 4), (4.5, 4, 4)])
def test_a_database_near_its_quota_is_a_finding(size: float, quota: t.Optional[float], at: int) -> None:
    text = describe(size, quota=quota)
    assert text.startswith(f"The database of the etcd ledger etcd://one/fleet has {size:.1f} GiB, of which 0.5 are in use. At {at}.0 GiB")
    assert ("if --quota-backend-bytes is not larger" in text) is (quota is None)


def test_the_answer_of_a_member_is_read() -> None:
    full = {"dbSize": "1064960", "dbSizeInUse": "1048576", "errors": ["memberID:10276657743932975437 alarm:NOSPACE "], "leader": "1"}
    assert parse_size(full) == DatabaseSize(1064960, 1048576, None, is_full=True)
    assert parse_size({"dbSize": "20480", "dbSizeQuota": "4096000"}) == DatabaseSize(20480, 0, 4096000, is_full=False)


@pytest.mark.parametrize("answer", [{"dbSize": "many"}, {"dbSize": []}, {"errors": 3}])
def test_an_answer_of_another_form_is_not_taken_for_a_size(answer: dict[str, t.Any]) -> None:
    with pytest.raises(Garbled):
        parse_size(answer)
