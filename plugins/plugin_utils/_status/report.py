# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The state of the fleet, as data and as the lines of a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, ShapeError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import SHUTOFF
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import FENCING_IMPOSSIBLE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._evacuate.restart_limit import describe_way_out
from .._evacuate.source import age_seconds
from .._ledger.documents import DiscardDecision, DomainEntry, HostEntry
from .._ledger.host_decisions import has_lost_source
from .._ledger.host_entries import group_by_other_ledger, recorded_grant, unlisted_text, wrong_ledger_text
from .._ledger.protection import ahead_text, is_protected_ahead, protect_time, protected_hours, sort_protections
from .._ledger.remembered import RememberedMove, missing_text
from .._ledger.rules import holds_domain
from .._maintenance.drill_verdict import drill_line
from .._maintenance.texts import run_line
from .._observe import brake_folder
from .._observe.brake import disarmed_lines
from .._observe.checked_fleet import attention_line, check_line
from .._observe.fleet_scan import FoundAct, find_seen_twice, name_hosts
from .._observe.timeline import read_timeline
from .._observe.unstarted import unstarted_lines, way_out
from .content import HostAnswer, LedgerContent, MoveInFlight, StatusWork, read_move

# A record that its host does not list may just have ended, or not have begun, for so long.
LAG_SECONDS = 60
# The number of hosts that a line names before the rest is counted.
MOST_NAMES = 12
SILENT, UNKNOWN = "silent", "not in the ledger"
# What closes an unsettled record of each type that is not in progress any more.
_CLOSING_STEPS = {
    s.LIVE_MIGRATION: "kvmfleet.migration.abort -e id={id}",
    s.COLD_MIGRATION: "run its task again, or settle record {id} (docs/ledger.md)",
    s.EVACUATION: "kvmfleet.migration.evacuate again",
}


class StatusReport:
    """The state of the fleet, as data and as lines.

    :arg work: the answers of the hosts.
    :arg is_known: whether the inventory has a host.
    :arg acts: of others, that were found now.
    :arg lost: the moves that hosts remember and the ledger lacks.
    :arg events_folder: in which a file disarms the reactions of this control node.
    """

    def __init__(
        self,
        fleet: Sequence[str],
        work: StatusWork,
        content: LedgerContent,
        protect_max_hours: int,
        is_known: Callable[[str], bool],
        acts: Sequence[FoundAct] = (),
        lost: Sequence[RememberedMove] = (),
        events_folder: str | None = None,
    ) -> None:
        answers = work.answers or {}
        # Without a fleet, the status is about the hosts in the ledger, whatever the inventory has.
        others = [entry for entry in content.hosts if fleet and entry.name not in fleet]
        self._unlisted = sorted(entry.name for entry in others if not entry.discarded and not is_known(entry.name))
        self._content = content
        self._acts = acts
        self._lost = lost
        self._events_folder = events_folder
        self._max_hours = protect_max_hours
        self._entries = {entry.name: entry for entry in content.hosts}
        self._fleet = list(dict.fromkeys(fleet)) or list(self._entries)
        self.silent = {host: answer.why_silent for host, answer in answers.items() if answer.is_silent}
        self._reached = {host for host, answer in answers.items() if not answer.unreachable}
        self._reported = [move for host, answer in answers.items() if not answer.is_silent for move in self._read_moves(host, answer)]
        # Hosts whose state files the user may not read: it is not known whose a migration there is, nor which moves wait.
        self._unread = [host for host, answer in answers.items() if answer.unverified_reasons]
        self._asked = frozenset(answers)
        self._looks = {host: look.seen for host, look in (work.looks or {}).items() if look.seen}
        self._active = {seen.uuid for look in self._looks.values() for seen in look.domains if seen.active}
        self._versions = work.versions or {}
        self._unseen = {host: seen.message or "no reason is known" for host, seen in (work.looks or {}).items() if not seen.seen and host not in self.silent}
        self.moves = self._list_moves()
        self.states = self._group_hosts()
        # The silence of these has a known cause.
        self._handled = {*self.states[s.MAINTENANCE], *self.states[s.FENCED]}
        self.attention = [printable_line(line) for line in self._find_attention()]

    def as_json(self) -> JsonObject:
        """Return it as the task's result."""
        return {
            "moves": [move.as_json() for move in self.moves],
            "hosts": self.states,
            "silent": {host: printable_line(why) for host, why in self.silent.items()},
            "attention": self.attention,
            "foreign_acts": [found.as_json() for found in self._acts if not found.problem],
            "protected_domains": sum(domain.is_protected for domain in self._content.domains),
            "protected_hours": {host: hours for host, hours in self._protected_hours().items() if hours is not None},
            "maintenance": [run_line(run) for run in self._content.runs],
            "evacuated": list(self._timeline_lines()),
            "lines": self.list_lines(),
        }

    # -- data --------------------------------------------------------------------------------------------------------

    def _read_moves(self, host: str, answer: HostAnswer) -> list[MoveInFlight]:
        """Return the moves that a host reports. A host whose answer cannot be read counts as silent."""
        try:
            return [read_move(host, migration, self._content.records) for migration in answer.migrations or ()]
        except ShapeError as error:
            self.silent[host] = f"its answer cannot be read: {error}"
            return []

    def _list_moves(self) -> list[MoveInFlight]:
        """Return the moves that hosts report, then those that only the ledger has."""
        reported = {move.record.id for move in self._reported}
        kept = [record for record in self._content.records if record.status in s.UNSETTLED - {s.ERROR} and record.id not in reported]
        return [*self._reported, *(MoveInFlight(record, None, None) for record in sorted(kept, key=lambda record: record.created_at))]

    def _group_hosts(self) -> dict[str, list[str]]:
        """Return the hosts by state in the ledger, and those that are silent, or not in the ledger, once more."""
        names = list(dict.fromkeys([*self._fleet, *self._entries]))
        groups = {state: [name for name in names if name in self._entries and self._entries[name].state == state] for state in s.HOST_STATES}
        unknown = [] if self._content.error else [name for name in self._fleet if name not in self._entries]
        return {**groups, UNKNOWN: unknown, SILENT: sorted(self.silent)}

    def _protected_hours(self) -> dict[str, int | None]:
        """Return how long ago each host of the fleet was protected, in hours; null for never, and if that is not known."""
        return {entry.name: protected_hours(entry) for entry in self._content.hosts if entry.name in self._fleet}

    # -- what needs a person -----------------------------------------------------------------------------------------

    def _find_attention(self) -> Iterator[str]:
        if self._content.error:
            yield f"The ledger cannot be read: {self._content.error} Only what hosts report is shown."
        yield from self._content.problems
        yield from self._other_ledger_texts()
        yield from self._brake_texts()
        yield from map(missing_text, self._lost)
        yield from (f"{found.text}. This cannot be written to the ledger: {found.problem}" for found in self._acts if found.problem)
        for host, why in self.silent.items():
            if not self._is_scrapped(host):
                yield self._silent_text(host, why)
        for record in self._content.records:
            if record.status == s.ERROR:
                yield _error_text(record)
        if self._looks and self._content.documents and not self._versions:
            yield (
                "The ledger could not be read before the hosts were asked, so it is not known what others have done to domains, nor whether one runs twice."
                " Run kvmfleet.migration.status again."
            )
        yield from (found.msg for found in find_seen_twice(self._looks, self._moved_domains()))
        for move in self.moves:
            yield from self._move_texts(move)
        yield from self._impossible_texts()
        yield from self._waiting_texts()
        yield from self._unstarted_texts()
        yield from self._evacuated_texts()
        yield from self._held_texts()
        yield from self._unaccounted_texts()
        yield from self._unlisted_texts()
        yield from self._token_texts()
        yield from self._content.run_findings
        if self._content.check and (line := attention_line(self._content.check)):
            yield line
        yield from self._protection_texts()

    def _other_ledger_texts(self) -> Iterator[str]:
        """Yield the hosts of another ledger, unless it is not known whether this one exists."""
        if self._content.ledger or self._content.is_missing:
            groups = group_by_other_ledger({host: look.ledger_id for host, look in self._looks.items()}, self._content.ledger)
            yield from (wrong_ledger_text(_names(hosts), ledger_id, self._content.ledger) for ledger_id, hosts in groups.items())

    def _brake_texts(self) -> Iterator[str]:
        """Yield why no reaction to events acts: all are disarmed, or the brake holds for hosts that are silent still."""
        brake = self._content.brake
        yield from brake_folder.disarmed_lines(self._events_folder) if self._events_folder else ()
        yield from disarmed_lines(brake) if brake else ()
        for incident in brake.incidents if brake else ():
            if any(host in self.silent and host not in self._handled and not self._has_returned(host, incident.at) for host in incident.hosts):
                yield f"Since {_time_text(incident.since)}: {incident.detail}"

    def _has_returned(self, host: str, at: str) -> bool:
        """Whether the host was protected, or put into service, after that time: it has fallen silent anew."""
        entry, then = self._entries.get(host), parse_timestamp(at)
        seen = (protect_time(entry), parse_timestamp(entry.since or None)) if entry else ()
        return then is not None and any(moment is not None and moment > then for moment in seen)

    def _moved_domains(self) -> frozenset[str]:
        """Return the UUIDs of domains that are being moved, or whose document has changed since the hosts were asked, as a move of this collection does."""
        unsettled = [record.domain.uuid for record in self._content.records if holds_domain(record)]
        reported = [move.record.domain.uuid for move in self._reported]
        changed = [uuid for uuid, document in self._content.documents.items() if self._versions.get(uuid) != document.version]
        return frozenset([*unsettled, *reported, *changed])

    def _silent_text(self, host: str, why: str) -> str:
        entry = self._entries.get(host)
        state = f" It is '{entry.state}' in the ledger." if entry else ""
        count = self._count_domains(entry) if entry else 0
        domains = f" {_count(count, 'domain')} may be on it." if count else ""
        if host in self._reached:
            remedy = " Its guests may be running: repair this first, and do not switch it off." if count else ""
            return f"{host} was reached, but did not report its domains: {why.rstrip(' .:')}.{state}{domains}{remedy}"
        is_gone = entry is not None and bool(entry.discarded)
        remedy = way_out(host, is_gone) if is_gone else f"If it is dead: kvmfleet.migration.evacuate -e source={host} --check"
        return f"{host} does not answer: {why.rstrip(' .:')}.{state}{domains}{f' {remedy}' if count else ''}"

    def _count_domains(self, entry: HostEntry) -> int:
        return sum(domain.is_expected_on(entry.host_ref) for domain in self._content.domains)

    def _is_scrapped(self, host: str) -> bool:
        """Whether a person has discarded the host, and no domain may be on it."""
        entry = self._entries.get(host)
        return entry is not None and bool(entry.discarded) and not self._count_domains(entry)

    def _move_texts(self, move: MoveInFlight) -> Iterator[str]:
        record, name = move.record, move.record.domain.name or move.record.domain.uuid
        if move.host is None:
            yield from self._unreported_texts(record, name)
        elif move.watched is False and record.id is not None:
            yield f"{name}: nothing watches the move, so no limit holds. Run its task again, or: kvmfleet.migration.abort -e id={record.id}"
        elif record.id is None and move.watched is not None:
            yield f"{name}: the migration away from {move.host} was started by another tool, and no limit of this collection holds."

    def _unreported_texts(self, record: MoveRecord, name: str) -> Iterator[str]:
        """Yield an unsettled record that is not in progress. Only the answer of its source shows this for a move; no host reports evacuations."""
        age, source, is_move = age_seconds(record.updated_at), record.source.host, record.type in s.MOVE_TYPES
        since = f"{name}: record {record.id} is '{record.status}' since {_time_text(record.updated_at)}"
        if has_lost_source(record, self._content.hosts):
            evacuate = f"If the domain runs nowhere: kvmfleet.migration.evacuate -e source={source}"
            settle = f"If it runs on {record.destination.label}, settle record {record.id} as completed (docs/ledger.md)"
            yield f"{since}, and {source} will not return. {evacuate}. {settle}"
            return
        is_unknown = source in self.silent or (is_move and (source not in self._asked or source in self._unread))
        if is_unknown or (age is not None and age < LAG_SECONDS):
            return
        why = f"{record.source.label} does not report the move" if is_move else "the evacuation is not finished"
        again = _CLOSING_STEPS[record.type].format(id=record.id)
        yield f"{since}, and {why}. To close the record: {again}"

    def _impossible_texts(self) -> Iterator[str]:
        """Yield the hosts that could not be fenced, and do not answer."""
        for host, entry in self._entries.items():
            if entry.fencing and entry.fencing.is_impossible and host in self.silent:
                again = f"kvmfleet.migration.evacuate -e source={host}"
                since = f" since {_time_text(entry.fencing.since)}" if entry.fencing.since else ""
                names = sorted(domain.name or domain.uuid for domain in self._content.domains if domain.is_expected_on(entry.host_ref))
                waits = f" Until that is proved, {_names(names)} {'waits' if len(names) == 1 else 'wait'} for a start elsewhere." if names else ""
                yield (
                    f"{host}: {FENCING_IMPOSSIBLE}{since}: no device could switch it off.{waits} Repair a device, or confirm that it is off"
                    f" (evacuate_host_force_down and evacuate_host_reason), and run again: {again}"
                )

    def _waiting_texts(self) -> Iterator[str]:
        """Yield the domains that were not started again, because they may be what kills their hosts. A host that is in service again may have them."""
        for record in self._content.waiting:
            entry = next((entry for entry in self._content.hosts if entry.host_ref.is_same(record.source)), None)
            if entry is None or entry.state != s.ENABLED or entry.name in self.silent:
                yield f"{record.last_detail} {describe_way_out(record.domain.name, record.source.host)}"

    def _unstarted_texts(self) -> Iterator[str]:
        """Yield the domains that run nowhere since the evacuation of their host, and that no host reports as active now."""
        yield from unstarted_lines([one for one in self._content.unstarted if one.domain.uuid not in self._active])

    def _evacuated_texts(self) -> Iterator[str]:
        left: dict[str, int] = {}
        for record in self._content.records:
            if record.status in s.TOMBSTONE:
                left[record.source.label] = left.get(record.source.label, 0) + 1
        for host in sorted({*left, *self.states[s.FENCED]}):
            entry = self._entries.get(host)
            if entry and entry.discarded:
                yield from self._discarded_texts(host, entry.discarded, left.get(host, 0))
                continue
            why = "is fenced" if host in self.states[s.FENCED] else "was evacuated"
            copies = f", and {_count(left[host], 'evacuated domain')} must be cleaned up on it" if host in left else ""
            yield f"{host} {why}{copies}. When it is repaired: kvmfleet.migration.recover -e target={host}"

    def _held_texts(self) -> Iterator[str]:
        """Yield the hosts in service that booted outside a maintenance run, for example after a power failure, so that their guests are held."""
        for host in self.states[s.ENABLED]:
            look, entry = self._looks.get(host), self._entries[host]
            if look and look.held:
                wanted = [one for one in self._content.domains if one.is_expected_on(entry.host_ref) and one.saved and one.saved.state != SHUTOFF]
                off = sorted(one.name or one.uuid for one in wanted if one.uuid not in self._active)
                guests = f" {_names(off)} {'is' if len(off) == 1 else 'are'} not active." if off else ""
                yield f"{host} was booted, and its boot guard holds its guests.{guests} To start them again: kvmfleet.migration.recover -e target={host}"

    def _unaccounted_texts(self) -> Iterator[str]:
        """Yield the saved domains that their only host does not report, and no other one. A transient domain just ends."""
        reported = {seen.uuid: seen.name for look in self._looks.values() for seen in look.domains}
        names_seen, known = frozenset(reported.values()), reported.keys() | self._moved_domains() | {move.domain.uuid for move in self._lost}
        # Most are reported: few are left to be compared with each host.
        gone = [one for one in self._content.domains if one.uuid not in known and one.is_protected and one.saved and one.saved.persistent is not False]
        # Those of a host whose boot is held are named already.
        for host, look in name_hosts(self._content.hosts, {name: look for name, look in self._looks.items() if not look.held}):
            # A domain that was created anew has the name of the old one.
            names = sorted(f"{one.name} ({one.uuid})" if one.name in names_seen else one.name or one.uuid for one in gone if one.is_only_on(host))
            if names:
                yield _unaccounted_text(host.label, names, has_others=bool(look.domains))

    def _discarded_texts(self, host: str, discarded: DiscardDecision, left: int) -> Iterator[str]:
        reason = str(discarded.reason or "no reason given").rstrip(".")
        if host in self._asked and host not in self.silent:
            first = f"{host} was discarded ({reason}), but answers. Undefine the domains there that now run elsewhere"
            how = "(virsh undefine --keep-nvram, with --keep-tpm too for those with a TPM)"
            yield f"{first} {how}. To return it to the fleet: kvmfleet.migration.host on {host}, with adopt_identity and a reason"
        elif left:
            was = "was" if left == 1 else "were"
            first = f"{host} will not return ({reason}). {_count(left, 'evacuated domain')} {was} on it."
            yield f"{first} To close the records: kvmfleet.migration.host with name={host}, source_discarded and a reason"
        elif self._is_scrapped(host) and host in self.silent:
            yield f"{host} will not return ({reason}), and nothing is on it. Remove it from the inventory."

    def _unlisted_texts(self) -> Iterator[str]:
        """Yield the hosts that only the ledger has: their silence would withhold the guests of every other host."""
        yield from map(unlisted_text, self._unlisted)

    def _token_texts(self) -> Iterator[str]:
        """Yield the hosts that are off and would start guests by themselves which others have started elsewhere. A host that answers is protected again."""
        for host, entry in self._entries.items():
            if host not in self.silent or entry.discarded or recorded_grant(entry) is None:
                continue
            names = sorted(domain.name or domain.uuid for domain in self._content.domains if _was_taken_from(domain, entry))
            if names:
                yield (
                    f"{host} may hold a clean-shutdown token, with which it would start its guests by itself when it is switched on, also {_names(names)},"
                    f" which others have started elsewhere meanwhile. Revoke it on a host that sees its shared storage: kvmfleet.migration.host with"
                    f" name={host}, revoke_token and a reason"
                )

    def _protection_texts(self) -> Iterator[str]:
        hours = self._protected_hours()
        in_service = sort_protections(entry for entry in self._content.hosts if entry.name in self._fleet)
        old = {entry.name: age for entry in in_service.known if (age := hours[entry.name] or 0) >= self._max_hours}
        if old:
            yield f"{_names(sorted(old))}: protected {_age_text(max(old.values()))} ago. Run kvmfleet.migration.protect -e target={','.join(sorted(old))}"
        yield from (f"{ahead_text(entry)} Run kvmfleet.migration.protect -e target={entry.name}" for entry in in_service.ahead)
        if not in_service.ahead and not any(age is not None for age in hours.values()):
            # This fleet does not use protection.
            return
        never = [entry.name for entry in in_service.never]
        if never:
            yield f"{_names(never)}: never protected, so {_its(never)} domains cannot be evacuated."
        strange = self.states[UNKNOWN]
        if strange:
            yield f"{_names(strange)}: not in the ledger, so {_its(strange)} domains cannot be evacuated."

    # -- the screen --------------------------------------------------------------------------------------------------

    def list_lines(self) -> list[str]:
        """Return the screen: what needs a person first."""
        unasked = sum(host not in self._asked for host in self._fleet)
        asked = f", {unasked} not asked" if unasked else ""
        summary = f"{_count(len(self._fleet), 'host')}, {len(self.silent)} silent{asked}. {_count(len(self.moves), 'move')} in flight."
        person = f"{_count(len(self.attention), 'finding')} for a person." if self.attention else "Nothing needs a person."
        unread = [f"{_names(self._unread)}: whether moves are watched is not known, because the user is not root there"] if self._unread else []
        return [
            f"{summary} {person}",
            *_section("NEEDS A PERSON", self.attention),
            *_section("DONE BY OTHERS", list(self._act_lines())),
            *_section("IN FLIGHT", [*(move.line for move in self.moves), *unread, *self._unasked_lines()]),
            *_section("EVACUATED", _shortened(list(self._timeline_lines()))),
            *_section("MAINTENANCE", [run_line(run) for run in self._content.runs]),
            *_section("HOSTS", list(self._host_lines())),
            *_section("PROTECTION", list(self._protection_lines())),
            *_section("DRILL", [drill_line(self._content.drill)] if self._content.drill else []),
            *_section("FLEET CHECK", [check_line(self._content.check)] if self._content.check else []),
        ]

    def _timeline_lines(self) -> Iterator[str]:
        """Yield the domains that were started after the death of their host and wait for its cleanup, the last one first, with their timelines."""
        for record in sorted(self._content.records, key=lambda record: record.updated_at, reverse=True):
            timeline = read_timeline(record) if record.status in s.TOMBSTONE else None
            if timeline:
                way = f"{record.source.label} -> {record.destination.label}  {record.domain.name or record.domain.uuid}"
                yield printable_line(f"{way}  {timeline.text}")

    def _unasked_lines(self) -> Iterator[str]:
        """Yield the sources of moves that were not asked: the playbook was limited to other hosts, or their names have changed."""
        moves = [move.record for move in self.moves if move.host is None and move.record.type in s.MOVE_TYPES]
        sources = list(dict.fromkeys(record.source.label for record in moves if record.source.host not in self._asked))
        if sources:
            its, was = ("its", "this host was") if len(sources) == 1 else ("their", "these hosts were")
            yield f"{_names(sources)}: whether {its} moves are still in progress is not known, because {was} not asked"

    def _act_lines(self) -> Iterator[str]:
        yield from (found.text for found in self._acts if not found.problem)
        yield from (f"not known on {host}: {why}" for host, why in self._unseen.items())

    def _host_lines(self) -> Iterator[str]:
        for state, hosts in self.states.items():
            if not hosts:
                continue
            if state == s.MAINTENANCE:
                yield from (f"{state}: {_reason_text(self._entries[host])}" for host in hosts[:MOST_NAMES])
                hosts = hosts[MOST_NAMES:]
            if hosts:
                yield f"{state}: {_names(hosts)}"

    def _protection_lines(self) -> Iterator[str]:
        if self._content.error:
            yield "not known, because the ledger cannot be read"
            return
        hours = self._protected_hours()
        ages = {host: age for host, age in hours.items() if age is not None}
        count = sum(domain.is_protected for domain in self._content.domains)
        ahead = [host for host in hours if is_protected_ahead(self._entries[host])]
        if not ages and not ahead:
            yield "no host is protected"
            return
        if ages:
            oldest = max(ages, key=lambda host: ages[host])
            yield f"{_count(count, 'domain')} saved from {_count(len(ages), 'host')}. The oldest: {oldest}, {_age_text(ages[oldest])} ago"
        yield from _shortened(list(self._unsaved_lines([*ages, *ahead])))
        if ahead:
            yield f"not known, because a clock was wrong: {_names(ahead)}"
        if never := [host for host in self._fleet if host not in ages and host not in ahead]:
            yield f"never: {_names(never)}"

    def _unsaved_lines(self, hosts: Sequence[str]) -> Iterator[str]:
        """Yield the active domains on these hosts that no protect has saved. That is no finding: each fleet creates some between two of them."""
        known = {domain.uuid for domain in self._content.domains if domain.is_protected} | self._moved_domains()
        for host, look in name_hosts([self._entries[name] for name in hosts], self._looks):
            names = sorted(seen.name for seen in look.domains if seen.active and seen.uuid not in known)
            if names:
                them = f"{_names(names)} {'is' if len(names) == 1 else 'are'}"
                yield f"{host.label}: {them} not saved yet, and could not be evacuated. Run kvmfleet.migration.protect -e target={host.label}"


def _was_taken_from(domain: DomainEntry, host: HostEntry) -> bool:
    """Whether the domain was moved away or started elsewhere without this collection, after its host was protected last."""
    since = (host.protected and host.protected.at) or ""
    acts = [act for act in domain.foreign_acts or () if act.source and act.source.is_same(host.host_ref) and act.at > since]
    return bool(acts) and not domain.includes_host(host.host_ref)


def _error_text(record: MoveRecord) -> str:
    what = "its result is not proved" if record.type in s.MOVE_TYPES else "the evacuation is not finished"
    why = ", ".join(part for part in (f"{record.source.label} -> {record.destination.label}", record.reason, record.last_detail.rstrip(".")) if part)
    return (
        f"{record.domain.name or record.domain.uuid}: {what} since {_time_text(record.updated_at)} ({why})."
        f" Run its task again, or settle record {record.id} (docs/ledger.md)"
    )


def _reason_text(entry: HostEntry) -> str:
    parts = [part for part in (entry.reason or "", f"since {_time_text(entry.since)}" if entry.since else "") if part]
    return f"{entry.name} ({', '.join(parts)})" if parts else entry.name


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {printable_line(line)}" for line in lines)] if lines else []


def _shortened(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - MOST_NAMES} more"] if len(lines) > MOST_NAMES else []
    return [*lines[:MOST_NAMES], *more]


def _unaccounted_text(host: str, names: Sequence[str], has_others: bool) -> str:
    """Return the text about domains of a host that nothing reports.

    :arg has_others: whether the host reports any domain. L(DomainSaver) does not believe a host that has lost several and reports none.
    """
    them, protect = "it" if len(names) == 1 else "them", f"protect the host: kvmfleet.migration.protect -e target={host}"
    intended = f"If that is intended, {protect}."
    if len(names) > 1 and not has_others:
        intended = (
            f"As {host} reports no domain at all, it may have been asked for those of another libvirt, and protect would not note this. If it is intended,"
            f" define any domain there, and {protect}."
        )
    return (
        f"{host} should have {_names(names)} according to the ledger, and does not report {them}; nor does another host that answers. {intended}"
        " If not, find out what happened; the ledger has the definition that protect saved (docs/ledger.md)."
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"


def _its(hosts: Sequence[str]) -> str:
    return "its" if len(hosts) == 1 else "their"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _time_text(at: str) -> str:
    """Return a timestamp to the minute, e.g. C(2026-11-21 03:00 UTC)."""
    return f"{at[:16].replace('T', ' ')} UTC"


def _age_text(hours: int) -> str:
    return f"{hours // 24} days" if hours >= 48 else f"{hours} h" if hours else "less than 1 h"
