# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fence agent as clusters call it: C(fence_lab -o off -n kvm1), or the same as C(key=value) lines on standard input.

The host's name says which lab it belongs to. Exit codes: 0 done (or on), 1 failed, 2 off.
"""

from __future__ import annotations

import argparse
import sys
import typing as t

from kvmlab import fence
from kvmlab.errors import LabError
from kvmlab.layout import Lab


def main(arguments: t.Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="fence_lab", description="Fence agent for the hosts of the test lab.")
    parser.add_argument("-o", "--action")
    parser.add_argument("-n", "--plug")
    given = {key: value for key, value in vars(parser.parse_args(arguments)).items() if value}
    given = given or fence.parse(sys.stdin.read())
    plug = given.get("plug")
    try:
        code, message = fence.act(Lab.named(plug[:-1] if plug else "kvm"), given.get("action", "reboot"), plug)
    except LabError as exc:
        print(f"fence_lab: {exc}", file=sys.stderr)
        return fence.FAILED
    print(message)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
