# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What differs between the hosts of a fleet and should not: networks, clocks, and the age of their protection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import InterfaceFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._ledger.documents import HostEntry
from .._ledger.host_entries import group_by_other_ledger, unlisted_text, wrong_ledger_text
from .._ledger.ledger import Ledger
from .._ledger.protection import ahead_text, protected_hours, sort_protections
from .._ledger.unreadable_hosts import UnreadableHost
from .._scheduler.filters.base import names_text
from .._scheduler.filters.devices import has_bridge
from .._scheduler.fleet import HostState
from .._scheduler.fleet_guests import FleetGuests

CAPACITY, REACH, CPU, NETWORK, PROTECTION = "capacity", "reach", "cpu", "network", "protection"
FENCING, CLOCK, SILENT = "fencing", "clock", "silent"
KINDS = (CAPACITY, REACH, CPU, NETWORK, PROTECTION, FENCING, CLOCK, SILENT)


@dataclass(frozen=True)
class Finding:
    """Something that needs a person.

    :arg kind: one of L(KINDS).
    """

    kind: str
    hosts: tuple[str, ...]
    msg: str


def find_network_differences(view: FleetGuests) -> list[Finding]:
    """Return the interfaces of equal names with other MTUs, the bridges with other VLANs, and the bridges of guests that some hosts lack."""
    states = {name: state for name, state in sorted(view.fleet.states.items()) if state.unanswered is None}
    details = {name: {one.name: one for one in state.hardware.facts.interface_details or ()} for name, state in states.items()}
    return [*_find_mtus(details), *_find_vlans(details), *_find_missing_bridges(view, states)]


# Interfaces whose names mean the same on each host. The others are the ends of pairs and tunnels.
_NAMED_KINDS = ("", "bridge", "openvswitch", "vlan", "bond")
_LOOPBACK = "lo"


def _find_mtus(details: Mapping[str, Mapping[str, InterfaceFacts]]) -> list[Finding]:
    names = sorted({one.name for there in details.values() for one in there.values() if one.kind in _NAMED_KINDS and one.name != _LOOPBACK})
    findings = []
    for name in names:
        groups = _group({host: there[name].mtu for host, there in details.items() if name in there and there[name].mtu})
        if len(groups) > 1:
            findings.append(Finding(NETWORK, _hosts_of(groups), f"The MTU of {name} differs: {_groups_text(groups)}."))
    return findings


def _find_vlans(details: Mapping[str, Mapping[str, InterfaceFacts]]) -> list[Finding]:
    bridges = sorted({one.name for there in details.values() for one in there.values() if one.kind in ("bridge", "openvswitch")})
    findings = []
    for bridge in bridges:
        vlans = {
            host: ", ".join(sorted(str(one.vlan) for one in there.values() if one.controller == bridge and one.vlan)) or "none"
            for host, there in details.items()
            if bridge in there
        }
        groups = _group(vlans)
        if len(groups) > 1:
            findings.append(Finding(NETWORK, _hosts_of(groups), f"The VLANs of the bridge {bridge} differ: {_groups_text(groups)}."))
    return findings


def _find_missing_bridges(view: FleetGuests, states: Mapping[str, HostState]) -> list[Finding]:
    wanted = {network.source: network for request in view.requests for network in request.networks if network.type == "bridge" and network.source}
    findings = []
    for bridge, need in sorted(wanted.items()):
        lacking = [name for name, state in states.items() if state.hardware.bridges is not None and not has_bridge(need, state)]
        if lacking:
            findings.append(Finding(NETWORK, tuple(lacking), f"{names_text(lacking)}: there is no bridge {bridge}, which guests of the fleet use."))
    return findings


def _group(values: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the hosts by value, the most frequent value first."""
    groups: dict[str, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(str(value), []).append(host)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def _hosts_of(groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the hosts that do not have the most frequent value."""
    return tuple(sorted(host for hosts in list(groups.values())[1:] for host in hosts))


def _groups_text(groups: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{value} on {names_text(hosts)}" for value, hosts in groups.items())


@dataclass(frozen=True)
class ClockOffset:
    """How much the clock of a host is ahead of that of the control node, in seconds: at least and at most, because the answer takes time."""

    least: float
    most: float


def find_clock_skew(clocks: Mapping[str, ClockOffset], limit_seconds: float) -> list[Finding]:
    """Return the hosts whose clocks certainly differ by more than the limit, whatever time the answers took."""
    if not clocks:
        return []
    first, last = min(clocks, key=lambda host: (clocks[host].most, host)), max(clocks, key=lambda host: (clocks[host].least, host))
    skew = clocks[last].least - clocks[first].most
    if skew <= limit_seconds:
        return []
    text = f"The clock of {last} is at least {skew:.1f} s ahead of that of {first}. Check the time service on both."
    return [Finding(CLOCK, tuple(sorted((first, last))), text)]


def find_unasked_hosts(unlisted: Iterable[HostEntry], unreadable: Iterable[UnreadableHost], answering: Sequence[HostRef]) -> list[Finding]:
    """Return the hosts that an evacuation asks and this check does not: without their answer, nothing is started anywhere.

    :arg unlisted: the ledger's hosts that are not in the inventory.
    :arg answering: the hosts that have answered.
    """
    names = sorted(entry.name for entry in unlisted if not entry.discarded)
    unknown = [one for one in unreadable if not any(map(one.is_host, answering))]
    return [
        *(Finding(SILENT, (name,), unlisted_text(name)) for name in names),
        *(Finding(SILENT, (one.host_key,), f"{one.why_not_asked} Until then, no guest of another host is started elsewhere.") for one in unknown),
    ]


def find_failed_answers(why: Mapping[str, str]) -> list[Finding]:
    """Return the hosts that have reported their facts, and did not answer afterwards.

    :arg why: by the name of a host.
    """
    return [
        Finding(
            SILENT,
            (host,),
            f"{host} has reported its facts, and did not answer then: {text.rstrip('.') or 'no reason is known'}. Its clock, the CPUs of guests on it and"
            " its fence devices were not checked.",
        )
        for host, text in sorted(why.items())
    ]


def find_failed_peers(asked: Mapping[str, Collection[str]], failed: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Return the hosts that answer the control node, and not other hosts, and those that can ask no other host, although others can.

    :arg asked: by the name of a host, the others that it has tried to ask.
    :arg failed: by the name of a host, why it cannot ask others, by their names.
    """
    reached = {peer for host, peers in asked.items() for peer in peers if peer not in failed.get(host, {})}
    unable = [host for host, peers in sorted(failed.items()) if len(peers) > 1 and len(peers) == len(asked[host]) and reached.intersection(peers)]
    findings = [_describe_unable(host, failed[host]) for host in unable]
    others = {host: peers for host, peers in sorted(failed.items()) if host not in unable}
    for peer in sorted({peer for peers in others.values() for peer in peers}):
        why = {host: peers[peer].rstrip(".") for host, peers in others.items() if peer in peers}
        first, reason = next(iter(why.items()))
        text = (
            f"{names_text(list(why))} cannot ask libvirt on {peer}. {first}: {reason}. Moves between them fail, and in an evacuation {peer} counts there as a"
            " host that does not answer."
        )
        findings.append(Finding(SILENT, (peer, *why), text))
    return findings


def _describe_unable(host: str, why: Mapping[str, str]) -> Finding:
    first, reason = next(iter(sorted(why.items())))
    text = (
        f"{host} cannot ask libvirt on any host that it has tried ({names_text(sorted(why))}), and others can. {first}: {reason.rstrip('.')}. Check its own"
        " key or certificate, and its network. Until then, moves from it fail, and it starts no guests of a dead host."
    )
    return Finding(SILENT, (host,), text)


def find_other_ledgers(reported: Mapping[str, Maybe[str]], ledger: Ledger | None) -> list[Finding]:
    """Return the hosts that were protected under another ledger than that of the check.

    :arg reported: the ID of the ledger that each host reports.
    """
    groups = group_by_other_ledger(reported, ledger)
    return [Finding(PROTECTION, tuple(hosts), wrong_ledger_text(names_text(hosts), ledger_id, ledger)) for ledger_id, hosts in groups.items()]


def find_old_protection(hosts: Collection[str], entries: Iterable[HostEntry], max_hours: int) -> list[Finding]:
    """Return the hosts that were never protected, and those whose protection is old, or of a time in the future.

    :arg entries: with the times at which their hosts were protected last.
    """
    known = {entry.name: entry for entry in entries if entry.name in hosts}
    in_service = sort_protections(known.values())
    never = sorted([*(host for host in hosts if host not in known), *(entry.name for entry in in_service.never)])
    ages = {entry.name: protected_hours(entry) or 0 for entry in in_service.known}
    old = sorted(host for host, age in ages.items() if age >= max_hours)
    findings = [Finding(PROTECTION, (entry.name,), f"{ahead_text(entry)} Protect it again.") for entry in in_service.ahead]
    if never:
        findings.append(Finding(PROTECTION, tuple(never), f"{names_text(never)}: never protected. After a loss, what is not protected cannot be evacuated."))
    if old:
        oldest = max(ages.values())
        findings.append(Finding(PROTECTION, tuple(old), f"{names_text(old)}: protected {oldest} h ago. An evacuation would start the definitions saved then."))
    return findings
