# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger under a prefix of an etcd."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdAddress, EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore


@pytest.fixture
def store(etcd: EtcdStore) -> EtcdStore:
    return etcd


@pytest.fixture
def ledger(store: EtcdStore) -> EtcdLedger:
    return store.open()


@pytest.fixture
def proxy(store: EtcdStore) -> t.Iterator[Proxy]:
    with Proxy(str(store.address.endpoints[0])) as between:
        yield between


@pytest.fixture
def proxied_ledger(proxy: Proxy, store: EtcdStore) -> EtcdLedger:
    """The ledger as it is seen through the proxy."""
    where: EtcdAddress = parse_address(f"etcd://{proxy.endpoint}{store.address.prefix}")
    return EtcdLedger(where, EtcdOptions())
