# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How a host is judged by the signs of life on each path to it: up, suspect, isolated or gone. No I/O.

All times are of one monotonic clock of the reader, in seconds. No clock of a host is used.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass

UP, SUSPECT, ISOLATED, GONE = "up", "suspect", "isolated", "gone"
LIBVIRT, LEASE, SSH, SECOND_ADDRESS = "libvirt", "lease", "ssh", "second_address"

# A sign of life that is not older shows that a host whose libvirt is silent is not dead.
_RECENT_SECONDS = 15.0
# A shorter silence is not reported: a daemon restarts.
_SUSPECT_AFTER_SECONDS = 10.0
# Hosts that fall silent at once are noticed one after the other, within an interval of libvirt's keepalive: before that, it is not known how many they are.
_SETTLE_SECONDS = 10.0
# For how long a connection to libvirt may look open although the host is dead: the keepalive, and a reader that is busy.
_OPEN_SECONDS = 45.0
# From the first sign of life of a host that boots until its libvirt answers.
_BOOT_SECONDS = 120.0
# For how long the return of a host is reported again: a reaction to it takes minutes.
_RETURNED_SECONDS = 900.0


@dataclass
class _Path:
    """:arg heard_at: the last sign of life; before the first one, since when the path is watched.

    :arg is_proved: whether there was a sign of life at that time.
    :arg says: what is known about it, if it does not answer.
    """

    heard_at: float
    is_proved: bool = False
    says: str = ""


@dataclass
class _LeasePath(_Path):
    """:arg read_at: when the lease was read last: nothing is known about the time after it."""

    revision: int = 0
    read_at: float = 0.0
    lease_seconds: int = 0
    renew_seconds: int = 0

    @property
    def is_late(self) -> bool:
        """Whether the host has lost its lease, as far as was read."""
        return self.read_at - self.heard_at > self.lease_seconds


class Change(t.NamedTuple):
    """A change of the state of a host, or a state that is reported again.

    :arg was: the state before; for C(up), C(gone) if the host was gone at any time since it was up last.
    :arg seconds: for how long the host has been silent; for C(up), until now.
    """

    state: str
    was: str
    seconds: float


class HostDetection:
    """The state of one host. Each change is reported once.

    :arg gone_after_seconds: the silence on all paths after which the host is gone.
    :arg now: the start of watching; the host counts as heard from until then.
    """

    def __init__(self, gone_after_seconds: float, now: float) -> None:
        self._gone_after = gone_after_seconds
        self.state = UP
        self._is_connected = False
        self._paths: dict[str, _Path] = {LIBVIRT: _Path(now, says="it has not answered yet")}
        self._lease: t.Optional[_LeasePath] = None
        # The last renewal of a lease that can no longer be read.
        self._renewed_at = -math.inf
        self._answers_since: t.Optional[float] = None
        self._away_since = now
        self._was_gone = False
        self._settled_at = now
        # The return of the host from the state C(gone) or C(isolated), and when it was seen.
        self._returned: t.Optional[tuple[float, Change]] = None

    # -- signs of life

    def note_connection(self, now: float) -> None:
        """Note that libvirt answers, until L(note_loss)."""
        self._is_connected = True
        self._paths[LIBVIRT] = _Path(now, is_proved=True)

    def note_loss(self, now: float, why: str, silent_seconds: float = 0.0) -> None:
        """Note that the connection to libvirt has ended, after nothing had been heard for that time."""
        self._is_connected = False
        self._paths[LIBVIRT] = _Path(now - silent_seconds, is_proved=True, says=why)
        self._settled_at = now + _SETTLE_SECONDS if silent_seconds else now

    def note_failed_try(self, why: str) -> None:
        """Note that libvirt could not be connected."""
        self._paths[LIBVIRT].says = why

    def note_probe(self, path: str, answered_at: t.Optional[float], says: str) -> None:
        """Note the result of a probe of SSH or of the second address; an answer is also a refusal.

        :arg answered_at: None for no answer.
        """
        known = self._paths.get(path) or _Path(self._paths[LIBVIRT].heard_at)
        self._paths[path] = _Path(answered_at, is_proved=True, says=says) if answered_at is not None else dataclasses.replace(known, says=says)

    def note_lease(self, revision: int, lease_seconds: int, renew_seconds: int, now: float) -> None:
        """Note the lease as it was read. Only another revision than before is a sign of life."""
        known = self._lease
        if known is None:
            self._lease = _LeasePath(now, False, "", revision, now, lease_seconds, renew_seconds)
        else:
            is_renewed = revision != known.revision
            heard_at, is_proved = (now, True) if is_renewed else (known.heard_at, known.is_proved)
            self._lease = _LeasePath(heard_at, is_proved, "", revision, now, lease_seconds, renew_seconds)

    def forget_lease(self) -> None:
        """Note that the host has no lease, or that leases could not be read: nothing follows from this. The next one that is read begins anew."""
        if self._lease and self._lease.is_proved:
            self._renewed_at = self._lease.heard_at
        self._lease = None

    def skip_time(self, seconds: float, now: float) -> None:
        """Note that nobody watched for that time, until now: it is not silence."""

        def shift(at: float) -> float:
            # What was heard since is not moved into the future.
            return min(at + seconds, now)

        self._paths = {name: dataclasses.replace(path, heard_at=shift(path.heard_at)) for name, path in self._paths.items()}
        if self._lease:
            self._lease = dataclasses.replace(self._lease, heard_at=shift(self._lease.heard_at), read_at=shift(self._lease.read_at))
        self._renewed_at = shift(self._renewed_at)
        self._answers_since = None if self._answers_since is None else shift(self._answers_since)
        self._settled_at = min(self._settled_at + seconds, now + _SETTLE_SECONDS)

    # -- what follows

    def judge(self, now: float) -> t.Optional[Change]:
        """Return the change of the state, if there is one now."""
        was, self.state = self.state, self._next_state(now)
        if self.state == was:
            return None
        if self.state == UP:
            return self._note_return(was, now)
        if was == UP:
            self._away_since = now - self._state_seconds(now)
        if self.state in (GONE, ISOLATED):
            self._returned = None
        self._was_gone = self._was_gone or self.state == GONE
        return Change(self.state, was, self._state_seconds(now))

    def _note_return(self, was: str, now: float) -> Change:
        change = Change(UP, GONE if self._was_gone else was, now - self._away_since)
        self._was_gone = False
        if change.was in (GONE, ISOLATED):
            self._returned = (now, change)
        return change

    def report_again(self, now: float) -> t.Optional[Change]:
        """Return the state of a host that is gone or isolated, or its return if that was lately, for those that have not heard of it."""
        if self.state in (GONE, ISOLATED):
            return Change(self.state, self.state, self._state_seconds(now))
        seen_at, change = self._returned or (-math.inf, None)
        return change if self.state == UP and now - seen_at < _RETURNED_SECONDS else None

    def _state_seconds(self, now: float) -> float:
        """Return for how long what the state says has been so."""
        if self.state == GONE:
            return self._silence(now)
        if self._is_connected and self._lease:
            return now - self._lease.heard_at
        return now - self._paths[LIBVIRT].heard_at

    @property
    def why(self) -> str:
        """Why the host is not up, for people."""
        if self._is_connected and self._lease:
            return f"it has not renewed its lease for {self._lease.read_at - self._lease.heard_at:.0f} s"
        return self._paths[LIBVIRT].says

    @property
    def wants_probes(self) -> bool:
        """Whether the other paths should be probed."""
        return not self._is_connected

    @property
    def is_returning(self) -> bool:
        """Whether a host that was gone shows a sign of life, and its libvirt does not answer yet."""
        return self.state == GONE and self._answers_since is not None

    def is_silent(self, now: float) -> bool:
        """Whether the host answers on no path, for longer than a restart takes; or has lost its lease, and libvirt has not noticed a silence yet."""
        if self._is_connected:
            return self._lease is not None and self._lease.is_late and now - self._lease.heard_at < _OPEN_SECONDS
        return self._silence(now) >= self._suspect_after

    def describe_signals(self, now: float) -> dict[str, str]:
        """Return what is known about each path, for people."""
        paths: dict[str, _Path] = {**self._paths, **({LEASE: self._lease} if self._lease else {})}
        return {name: self._describe_path(name, path, now) for name, path in paths.items()}

    def describe_signs_of_life(self, now: float) -> str:
        """Return which paths of a host whose libvirt is silent show that it is not dead, as a phrase."""
        return ", ".join(f"{name}: {text}" for name, text in self.describe_signals(now).items() if name in self._answering_paths(now))

    # -- details

    @property
    def _limit(self) -> float:
        """The silence after which the host is gone: not before a host that is alive and has lost its lease would know it."""
        lease = self._lease
        return max(self._gone_after, lease.lease_seconds + lease.renew_seconds) if lease else self._gone_after

    @property
    def _suspect_after(self) -> float:
        return min(_SUSPECT_AFTER_SECONDS, self._limit / 3)

    def _silence(self, now: float) -> float:
        if self._is_connected:
            return 0.0
        heard = [path.heard_at for path in self._paths.values()]
        return now - max([*heard, self._renewed_at, *([self._lease.heard_at] if self._lease else [])])

    def _answering_paths(self, now: float) -> list[str]:
        """Return the paths beside libvirt on which there was a sign of life lately."""
        recent = min(_RECENT_SECONDS, self._limit / 2)
        others: dict[str, _Path] = {name: path for name, path in self._paths.items() if name != LIBVIRT}
        if self._lease:
            others[LEASE] = self._lease
        return [name for name, path in others.items() if path.is_proved and now - path.heard_at < recent]

    def _next_state(self, now: float) -> str:
        if self._is_connected:
            return SUSPECT if self._lease and self._lease.is_late else UP
        if self._silence(now) >= self._limit and now >= self._settled_at:
            self._answers_since = None
            return GONE
        if self.state == GONE:
            return self._state_after_gone(now)
        return self._state_without_libvirt(now)

    def _state_after_gone(self, now: float) -> str:
        """Return the state of a host that was gone and shows a sign of life: while it boots, its libvirt answers last."""
        self._answers_since = now if self._answers_since is None else self._answers_since
        return ISOLATED if now - self._answers_since >= max(self._limit, _BOOT_SECONDS) else GONE

    def _state_without_libvirt(self, now: float) -> str:
        silent = now - self._paths[LIBVIRT].heard_at
        if silent >= self._limit and (self.state == ISOLATED or self._answering_paths(now)):
            return ISOLATED
        return SUSPECT if silent >= self._suspect_after else self.state

    def _describe_path(self, name: str, path: _Path, now: float) -> str:
        if name == LIBVIRT and self._is_connected:
            return "answers"
        seconds = f"{max(0.0, now - path.heard_at):.0f} s"
        if name == LEASE:
            return f"renewed {seconds} ago" if name in self._answering_paths(now) else f"not renewed for {seconds}"
        if name in self._answering_paths(now):
            return f"answered {seconds} ago"
        return f"silent for {seconds}{f' ({path.says})' if path.says else ''}"
