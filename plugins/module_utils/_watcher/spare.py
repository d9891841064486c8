# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A process that is forked before this one uses libvirt, for what has to be forked afterwards: libvirt's event loop does not survive a fork."""

from __future__ import annotations

import json
import os
import sys
import typing as t

from .._errors import KvmfleetError
from .detach import exit_process, first_report

# Longer than a watcher may take to begin.
ANSWER_SECONDS = 75.0

Function = t.Callable[[t.Any], t.Mapping[str, t.Any]]


class SpareProcess:
    """Calls a function once, in a process as this one was when the spare was made. It ends by itself where it is not asked and this process ends."""

    def __init__(self, function: Function) -> None:
        """Fork it.

        :arg function: takes and returns what JSON can say.
        """
        request_reader, request_writer = os.pipe()
        answer_reader, answer_writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(request_writer)
            os.close(answer_reader)
            _serve(function, request_reader, answer_writer)
        os.close(request_reader)
        os.close(answer_writer)
        self._request = os.fdopen(request_writer, "w", encoding="utf-8")
        self._answer = answer_reader

    def call(self, argument: t.Any) -> t.Dict[str, t.Any]:
        """Return what the function returns for this argument; once only. Raises the error that it raised, or L(Internal) where it died."""
        with self._request as stream:
            json.dump(argument, stream)
        answer = first_report(self._answer, ANSWER_SECONDS)
        os.waitpid(self._pid, 0)
        return answer


def _serve(function: Function, reader: int, writer: int) -> t.NoReturn:
    """Wait for the argument, whose end is the end of the stream; a stream that ends empty or torn asks for nothing."""
    status = 1
    try:
        with os.fdopen(reader, encoding="utf-8") as stream:
            text = stream.read()
        if text:
            os.write(writer, json.dumps(_answer(function, json.loads(text))).encode() + b"\n")
        status = 0
    finally:
        exit_process(status)


def _answer(function: Function, argument: t.Any) -> t.Mapping[str, t.Any]:
    try:
        return function(argument)
    except KvmfleetError as error:
        return error.as_result()
