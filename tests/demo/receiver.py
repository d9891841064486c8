# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The webhook of the demo: prints its URL, takes notices until it is told to end, and writes them to a file, a line each."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver

END = {signal.SIGTERM, signal.SIGINT}


def main() -> None:
    # Before there is another thread, which would get them.
    signal.pthread_sigmask(signal.SIG_BLOCK, END)
    with Receiver() as receiver:
        print(receiver.url, flush=True)
        signal.sigwait(END)
    lines = [json.dumps(event) + "\n" for event in receiver.events()]
    Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
