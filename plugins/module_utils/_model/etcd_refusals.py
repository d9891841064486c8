# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What refusals of etcd say about logins. Both clients judge by it: that of the ledger, and that of the lease of a host."""

from __future__ import annotations

# The status code of gRPC, as etcd's gateway gives it.
UNAUTHENTICATED = 16
# It depends on the release of etcd.
_OLD_REVISION = ("revision of auth store is old", "revision in header is old")
_NO_USERS = "authentication is not enabled"
_NO_USER = "user name is empty"


def is_stale_token(code: int, text: str) -> bool:
    """Whether the token is no longer valid: it expired, its member restarted, or users were changed."""
    return code == UNAUTHENTICATED or text.endswith(_OLD_REVISION)


def says_no_users(text: str) -> bool:
    """Whether a login is refused because the cluster has no users. A learner refuses it with the same code."""
    return _NO_USERS in text


def wants_user(text: str) -> bool:
    """Whether a request without a token is refused because the cluster has users."""
    return _NO_USER in text
