# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may happen in a scenario: each verb with what it takes, which is a phrase (C(qemu of web on 2)), a number, or a mapping."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .located import Located

HOSTS = (1, 2, 3)
CONTROL = "control"
CHANNELS = ("data", "control", "ssh", "storage")
PHRASE = re.compile(r"(?P<what>[a-z][a-z -]*?)(?: (?P<number>[1-3]))?(?: of (?P<of>[a-z0-9-]+))?(?: on (?P<on>[1-3]))?")

ETCD_MEMBER, ETCD_LEADER, ETCD_ALL = "etcd member", "etcd leader", "all etcd members"
_OF_ETCD: dict[str, tuple[str, ...]] = {ETCD_MEMBER: ("number!",), ETCD_LEADER: (), ETCD_ALL: ()}
_ONE_OR_ALL = {what: _OF_ETCD[what] for what in (ETCD_MEMBER, ETCD_ALL)}

# Verb, then what it may be done to, then which of "of", "on" and a number that needs (!) or may have (?).
PHRASES: dict[str, dict[str, tuple[str, ...]]] = {
    "kill": {
        "ansible": ("of?",),
        "control node": ("of?",),
        "whoever is there": (),
        "watcher": ("of?",),
        "spare watcher": ("on!",),
        "libvirtd": ("on!",),
        "sshd": ("on!",),
        "qemu": ("of!", "on!"),
        **_OF_ETCD,
    },
    "restart": {"libvirtd": ("on!",)},
    "stop": {"libvirtd": ("on!",), **_OF_ETCD},
    "start": {"libvirtd": ("on!",), **_ONE_OR_ALL},
    "freeze": {"control node": ("of?",), "libvirtd": ("on!",), "watcher": ("of?",), "qemu": ("of!", "on!"), **_OF_ETCD},
    "thaw": {"control node": ("of?",), "libvirtd": ("on!",), "watcher": ("of?",), "qemu": ("of!", "on!"), **_ONE_OR_ALL},
    "crowd": {"sshd": ("on!",)},
    "clear": {"sshd": ("on!",)},
    "compact": {"etcd": ()},
    "back up": {"ledger": ()},
    "restore": {"ledger": (), "ledger in a new cluster": ()},
    "accept": {"new cluster": ()},
    "fill": {"ledger": (), "run": ("on!",), "images": ("on!",)},
    "make room in": {"ledger": (), "run": ("on!",), "images": ("on!",)},
    "write-protect": {"ledger": (), "run": ("on!",)},
    "allow writing": {"ledger": (), "run": ("on!",)},
    "refuse": {"start": ("of!", "on!"), "end of start": ("of!", "on!")},
    "allow": {"start": ("of!", "on!")},
    "forget": {"state": ("of!", "on!")},
    "finish quickly": {"move": ("of!",)},
}
NUMBERS: dict[str, tuple[float, ...]] = {"power off": HOSTS, "power on": HOSTS, "heal": HOSTS, "let pass": ()}
MAPPINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Verb: keys that it has, and those of them that it needs.
    "cut": (("host", "peer", "only", "direction"), ("host",)),
    "slow": (("host", "mbit"), ("host", "mbit")),
    "lose packets": (("host", "percent"), ("host", "percent")),
    "clock": (("on", "seconds"), ("on", "seconds")),
    "virsh": (("on", "do"), ("on", "do")),
    "damage": (("record", "how"), ("record", "how")),
    "fence with": (("host", "agent"), ("host", "agent")),
}
DAMAGES = ("torn", "empty", "of the future", "duplicated")
VERBS = frozenset({*PHRASES, *NUMBERS, *MAPPINGS})


@dataclasses.dataclass(frozen=True)
class Action:
    """One thing that happens. Of a phrase C(what), C(of), C(on) and a member's C(number); of a number C(number); of a mapping C(options)."""

    verb: str
    what: str = ""
    of: str | None = None
    on: int | None = None
    number: float = 0
    options: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def is_of_etcd(self) -> bool:
        """Whether only a ledger on etcd can have that happen to it."""
        return self.what in _OF_ETCD or self.what in ("etcd", "ledger in a new cluster", "new cluster")

    @property
    def is_of_the_ledgers_files(self) -> bool:
        """Whether only a ledger in a folder can have that happen to it."""
        return self.verb == "damage" or (self.what == "ledger" and self.verb in ("write-protect", "allow writing"))


def action_of(found: t.Any, where: Located) -> Action:
    """Return the action that a text's mapping of one key stands for. Raises L(TextError)."""
    if not isinstance(found, Located) or len(found) != 1:
        raise where.wrong(f"an action is one verb and what it takes, not {found!r}")
    ((verb, given),) = found.items()
    if verb in PHRASES:
        return _phrase(verb, str(given), found)
    if verb in NUMBERS:
        return _number(verb, given, found)
    if verb in MAPPINGS:
        return _mapping(verb, given, found)
    raise found.wrong(f"there is no verb '{verb}'. There are: {', '.join(sorted(VERBS))}.", verb)


def _phrase(verb: str, given: str, found: Located) -> Action:
    match = PHRASE.fullmatch(given)
    parts = PHRASES[verb].get(match["what"]) if match else None
    if match is None or parts is None:
        raise found.wrong(f"{verb} takes {' or '.join(PHRASES[verb])}, not '{given}'", verb)
    for part in ("of", "on", "number"):
        if f"{part}!" in parts and match[part] is None:
            raise found.wrong(f"'{verb}: {given}' needs '{part} …'", verb)
        if match[part] is not None and not {f"{part}!", f"{part}?"} & set(parts):
            raise found.wrong(f"'{verb}: {match['what']}' takes no '{part} …'", verb)
    return Action(verb, what=match["what"], of=match["of"], on=int(match["on"]) if match["on"] else None, number=int(match["number"] or 0))


def _number(verb: str, given: t.Any, found: Located) -> Action:
    among = NUMBERS[verb]
    if not isinstance(given, (int, float)) or isinstance(given, bool) or given < 0 or (among and given not in among):
        raise found.wrong(f"{verb} takes {f'one of {among}' if among else 'a number'}, not {given!r}", verb)
    return Action(verb, number=given)


def _mapping(verb: str, given: t.Any, found: Located) -> Action:
    keys, needed = MAPPINGS[verb]
    if not isinstance(given, Located):
        raise found.wrong(f"{verb} takes a mapping of {', '.join(keys)}", verb)
    given.check_keys(keys, f"'{verb}'", needed)
    for key in ("host", "peer"):
        if key in given and given[key] not in HOSTS:
            raise given.wrong(f"there is no host {given[key]!r}", key)
    if "on" in given and given["on"] not in (*HOSTS, CONTROL):
        raise given.wrong(f"there is no host {given['on']!r}", "on")
    if not set(given.get("only") or ()) <= set(CHANNELS):
        raise given.wrong(f"'only' takes a list of {', '.join(CHANNELS)}", "only")
    if given.get("direction", "in") not in ("in", "out"):
        raise given.wrong("'direction' is in or out", "direction")
    if "how" in given and given["how"] not in DAMAGES:
        raise given.wrong(f"'how' is one of {', '.join(DAMAGES)}", "how")
    return Action(verb, options=given)
