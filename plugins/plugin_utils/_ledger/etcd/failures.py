# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What can go wrong between us and etcd, before it is said in a sentence."""

from __future__ import annotations

# Numbers of gRPC's status codes (github.com/grpc/grpc/blob/master/doc/statuscodes.md), as etcd's gateway gives them.
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
OUT_OF_RANGE = 11
UNAVAILABLE = 14
UNAUTHENTICATED = 16


class Unanswered(Exception):
    """A member gave no answer that counts; another one may, and what was asked may have been done.

    :arg lasting: whether asking this member again is of no use.
    """

    def __init__(self, why: str, lasting: bool = False) -> None:
        super().__init__(why)
        self.lasting = lasting


class Garbled(Unanswered):
    """What came is no answer of etcd's."""

    def __init__(self, why: str) -> None:
        super().__init__(why, lasting=True)


class Refused(Exception):
    """etcd's own word that it will not do what was asked.

    :arg code: of gRPC.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Overtaken(Exception):
    """What was read is not what is there any more: nothing was written. Read again and decide anew."""
