# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""An evacuation by one host: source, domains, fleet, evidence, locks, booking, starts. Each step only when the one before speaks for it."""

from __future__ import annotations

import concurrent.futures
import itertools
import time
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, InvalidArgument, KvmfleetError, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import locks
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import lockable
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

from .._hosts.identity import Identity, entry_of
from .._ledger.places import same_host
from .._ledger.store import Body
from .._memory.missing import check_known, missing_records, sentence
from .._memory.told import told_by_fleet
from .._moves.arrivals import Arrivals
from .._moves.fleet_view import FleetView
from .._protect.answer import age_seconds
from . import decide as d
from .booking import Booking
from .evidence import Proofs
from .fleet import Fleet, SourceAnswers, doors_of, uris_of
from .image_locks import Acceptance, ending, images_of, is_fenced, refuse_locked, wait_seconds
from .job import Context, Job, wanted_state
from .placing import request_of
from .read_once import ReadOnce
from .shape import check_document, has_disks
from .source import candidates, check_still_not_granted, resolve, select
from .starting import Starting

# So many bookings are made under one lock on the host: live migrations towards it wait for no more.
_BOOKED_AT_ONCE = 16
# What hosts said longer ago is asked for again before anything is decided by it.
_FRESH_SECONDS = 30.0


@dataclass
class Evacuation:
    """One task. C(jobs) are the domains that are wanted, by importance."""

    context: Context
    check: bool = False
    jobs: list[Job] = field(default_factory=list)
    before: list[Body] = field(default_factory=list)
    not_selected: list[Body] = field(default_factory=list)
    unaccounted: list[Body] = field(default_factory=list)
    missing_records: list[Body] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = self.context
        self.entries = [document.body for document in context.ledger.hosts()]
        self.source = resolve(self.entries, context.wish.source)
        self.settings = ReadOnce(context.settings)
        self.proofs = Proofs(self.settings, self.source, self.entries, context.by)
        self.arrivals = Arrivals(context.ledger)
        self.acceptance = Acceptance(context.wish.accept_locked, context.by)
        self.damaged: list[str] = []

    def look(self) -> None:
        """Find out which domains are meant, what the fleet says, and what speaks against each; raises what speaks against all. Changes nothing."""
        self.looked_at = time.monotonic()
        self._choose()
        self.damaged = self.context.ledger.damaged_domains()
        uris = uris_of(self.context.settings, self.entries, self.context.here, self.source)
        asked = self._asked(uris)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            silence = pool.submit(self.proofs.check_silence)
            seen = self.context.phase("look", asked)
            self.silence = silence.result()
        # When everything was silent last; the agent is asked later.
        self.silent_at = time.monotonic()
        self.proofs.check_doors(seen["doors"], self.context.here)
        self.here = self._place_of(seen["facts"])
        d.check_destination(self.here, self.source.place)
        own = {domain["uuid"]: domain for domain in seen["facts"]["domains"]}
        answers = seen["fleet"]
        self.fleet = Fleet(self.source, self.here, own, answers, self.entries, self._host_ids(answers), frozenset(self.context.settings.fleet()))
        self.fleet.check_source_is_silent()
        self._check_no_twin()
        self.others = self.fleet.silent_places(where for job in self.jobs if job.is_open for where in job.candidate.places)
        self.silent = self.fleet.check_silent(self.context.wish.accept_silent, self.others)
        self.uris = {name: uri for name, uri in uris.items() if name in self.fleet.answering}
        self.seen = seen
        self.missing_records = missing_records(self.context.ledger, told_by_fleet(self.context.settings, self.context.here, seen["facts"].get("remembered")))
        for job in self.jobs:
            self._guarded(job, lambda job: d.check_inactive(job, self.fleet))
            self._guarded(job, lambda job: check_known(job.name, job.uuid, self.missing_records))
        held = {str(record["domain"]["uuid"]) for record in self.context.ledger.records(unsettled_only=True)}
        self.unaccounted = self.fleet.unaccounted([document.body for document in self.context.ledger.domains()], held)
        self._warn()

    def prove(self, starts: bool = True) -> None:
        """Take the evidence that the source is off. Raises what L(Proofs.take) does. A domain whose image is still written is not started.

        :arg starts: this task starts domains itself. One that does not leaves the silence after the fencing to those that do.
        """
        wish = self.context.wish
        self.proofs.take(wish.fencing, wish.force_down, self.others, may_fence=not self.check)
        given = self.proofs.documents[: len(wish.fencing or ()) + bool(wish.force_down)]
        if given:
            # Those that were asked just now need not be asked twice.
            self.proofs.confirm()
        begun = time.monotonic()
        if self.check or any(one["host_id"] == self.source.host_id for one in given):
            self.images = self._locks(seen_since=True)
        else:
            self._knock_and_probe(starts)
        waited = time.monotonic() - begun
        if waited > _FRESH_SECONDS and not self.check:
            self.proofs.outlast(waited)

    def _knock_and_probe(self, knocks: bool) -> None:
        """Prove that the source has fallen silent since it was fenced, while its leases are waited for."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            silence = pool.submit(self.proofs.check_silence) if knocks else None
            self.silent_at = time.monotonic()
            self.images = self._locks(seen_since=False)
            self.silence = silence.result() if silence else self.silence

    def rely(self) -> None:
        """Take the evidence that an earlier step has taken, for a plan. Nothing is waited for: who starts domains proves it all once more."""
        self.proofs.take(self.context.wish.fencing, self.context.wish.force_down, self.others, may_fence=False)
        self.images = self._locks(seen_since=True, waits=False)

    def judge(self) -> None:
        """Say of each domain what speaks against its start on this host."""
        for job in self.jobs:
            self._guarded(job, self._judge)

    def execute(self) -> None:
        """Start the domains, or in check mode say what would become of them."""
        try:
            self.look()
        except SourceAnswers as error:
            raise self._settled_at_least(error) from error
        # Nothing is fenced for nothing.
        if not self.open_jobs():
            return
        self.prove()
        if not self.check and time.monotonic() - self.looked_at > _FRESH_SECONDS:
            # The agent, or leases, were waited for: what hosts said before that says nothing of now.
            self.look()
            self.images = self._locks(seen_since=True, waits=False)
        # After the proof that the host is off: since then it can neither be granted a token nor leave one.
        check_still_not_granted(self.context.ledger, self.source)
        self.judge()
        self._book_all(Booking(self.context, self._view(self.seen["facts"]), self.here, self.seen["cpu"]))
        if not self.check:
            here = str(self.here["host_id"])
            starting = Starting(self.context, self.proofs, self.uris, here, self._all_tokens(), self.silent_at, self.acceptance)
            starting.carry_out(self.open_jobs())

    def _settled_at_least(self, refusal: SourceAnswers) -> SourceAnswers:
        """Settle what an earlier run has begun here, which needs no evidence for nothing is started; return the refusal of all else."""
        if not any(job.candidate.record for job in self.jobs):
            return refusal
        facts = self.context.phase("look", {**self._asked({}), "knock": [], "domains": [], "paths": []})["facts"]
        self.here = self._place_of(facts)
        begun = [job for job in self.jobs if job.is_open and d.has_begun(job, self.here)]
        if self.check or not begun:
            return refusal
        booking = Booking(self.context, self._view(facts), self.here, {})
        for job in begun:
            job.rejoin = True
            self._guarded(job, lambda job: booking.rejoin(job, []))
        Starting(self.context, self.proofs, {}, str(self.here["host_id"]), self._all_tokens()).settle([job for job in begun if job.is_open])
        told = [f"{job.name} is '{job.record['status']}'" for job in begun if job.record]
        settled = f" What an earlier run had begun here was settled: {', '.join(told)}."
        changed = any(job.changed for job in begun)
        return SourceAnswers(refusal.message + settled, refusal.next_step, changed=changed, evacuations=[job.record for job in begun if job.record])

    def evidence(self, job: Job) -> list[Body]:
        """Return all that speaks for the source being off, as the domain's record keeps it: of the images its own."""
        accepted = [{"kind": "accepted_silence", "hosts": self.silent, "by": self.context.by, "at": utc_now()}] if self.silent else []
        own = {path: self.images[path] for path in lockable(job.disks) if path in self.images}
        images = [{"kind": "locks", "from": self.context.here, "images": own, "at": utc_now()}] if own else []
        return [*self.proofs.documents, self.silence, *images, *self.acceptance.document(job, self.images), *accepted]

    def _choose(self) -> None:
        context, wish = self.context, self.context.wish
        found = candidates(context.ledger, self.source)
        chosen, self.before = select(found, wish.domains, context.ledger, self.source)
        jobs = [Job(one, self.source, wanted_state(one.document.get("protected"), wish.state)) for one in found]
        wanted = {one.uuid for one in chosen}
        self.jobs = sorted((job for job in jobs if job.uuid in wanted), key=lambda job: job.rank)
        self.not_selected = [job.as_entry() for job in jobs if job.uuid not in wanted]
        for job in self.jobs:
            self._guarded(job, self._check_saved)
        self.acceptance.check_known(path for job in jobs if has_disks(job.candidate.document) for path in lockable(job.disks))

    def _check_saved(self, job: Job) -> None:
        check_document(job.candidate.document)
        request_of(job)
        d.check_saved(job, self.context.wish.accept_fresh)
        self.context.warnings += [d.fresh_warning(job, file) for file in job.fresh if job.is_open]

    def _asked(self, uris: dict[str, str]) -> Body:
        wanted = [job for job in self.jobs if job.is_open]
        domains = [self._about(job) for job in wanted]
        paths = images_of(job for job in wanted if job.wanted != h.SHUTOFF)
        doors = doors_of(self.settings, self.source)
        return {"ledger_id": self.context.ledger.ledger_id, "ask": uris, "knock": doors, "domains": domains, "paths": paths}

    def _about(self, job: Job) -> Body:
        files = {"files": job.files, "fresh": [file["path"] for file in job.fresh]}
        return {"uuid": job.uuid, "disks": job.disks, **files, "request": job.saved["request"], "tokens": self._tokens(job)}

    def _tokens(self, job: Job) -> Body:
        """Return the tokens of the host that the domain was saved on; its disks are known by them, wherever it was moved since."""
        saved_on = str((job.saved.get("host") or {}).get("host_id") or "")
        entry = next((entry for entry in self.entries if saved_on and entry.get("host_id") == saved_on), {})
        return {"host_id": saved_on, "folders": entry.get("folders") or {}}

    def _all_tokens(self) -> dict[str, Body]:
        return {job.uuid: self._tokens(job) for job in self.jobs if job.is_open}

    def _place_of(self, facts: Body) -> Body:
        identity = Identity(self.context.here, facts["host_id"], facts["host_uuid"], facts["machine_id"])
        found = entry_of(self.context.ledger, identity)
        return place(self.context.here, found.body.get("host_id") if found else None, facts["host_uuid"])

    def _host_ids(self, answers: Mapping[str, Body]) -> dict[str, str]:
        """Return who hosts are by their own facts, where these have the UUID that answered."""
        told = {name: self.context.settings.fresh_facts(name) for name, answer in answers.items() if answer["answered"]}
        return {name: facts["host_id"] for name, facts in told.items() if facts and facts.get("host_id") and facts["host_uuid"] == answers[name]["host_uuid"]}

    def _check_no_twin(self) -> None:
        """Raise L(Unsafe) where a host that told of itself lately says that it is the source, whatever it is called."""
        for name in self.context.settings.fleet():
            facts = self.context.settings.fresh_facts(name)
            # Its own facts may be from before it died; only another one's say that it lives.
            if facts is not None and name != self.source.name and facts.get("host_id") == self.source.host_id:
                raise Unsafe(f"{name} answers, and says that it is {self.source.host_id}: the host to be evacuated.", "Nothing was started.")

    def _warn(self) -> None:
        context = self.context
        context.warnings += map(sentence, self.missing_records)
        if not self.source.is_held_at_boot:
            context.warnings.append(f"Nothing holds {self.source.name} at its next boot: keep it off the network until it has been cleaned up.")
        for job in self.jobs:
            if job.saved.get("host") and not same_host(job.saved["host"], self.source.place):
                at = f"{job.saved['host'].get('host')} (saved {age_seconds(job.saved.get('at'))} s ago)"
                context.warnings.append(f"Domain {job.name} was saved on {at}, before it came to {self.source.name}: what has changed since is not in it.")

    def _locks(self, seen_since: bool, waits: bool = True) -> dict[str, Body]:
        """Return what is known of the images' locks. A domain whose image is locked after the wait is not started.

        :arg seen_since: the source was switched off before the first look, which saw the locks, too; those that were free are not asked for again. Locks
          that outlive their host (NFS 3) are: there only a trial shows some of them, and it has to wait for the proof.
        """
        starting = [job for job in self.open_jobs() if job.wanted != h.SHUTOFF and not d.was_started(job, self.fleet)]
        wait = wait_seconds(starting, self.context.wish.lock_wait_seconds) if waits and not self.check else 0
        found = {path: self.seen["locks"][path] for path in images_of(starting)}
        kept = sorted(set(images_of(starting)) - set(ending(starting)))
        found |= self._probed(kept if seen_since else images_of(starting), 0)
        held = {path for path, one in found.items() if one["state"] == locks.LOCKED}
        # What outlives its host would be waited for in vain, and keep all others waiting.
        if wait and held.intersection(ending(starting)):
            found |= self._probed(ending(starting), wait)
        fenced = is_fenced(self.proofs.of_source) or (self.check and self.proofs.would_fence)
        refuse_locked(starting, found, wait, self.acceptance, fenced)
        return found

    def _probed(self, paths: list[str], seconds: int) -> dict[str, Body]:
        work = {"paths": paths, "wait_seconds": seconds, "may_take": not self.check}
        return t.cast("dict[str, Body]", self.context.phase("locks", work)["locks"]) if paths else {}

    def _judge(self, job: Job) -> None:
        d.decide_record(job, self.fleet)
        d.check_absent(job, self.fleet)
        d.check_covered(job, self.fleet, self.proofs, source_counts=self.check and self.proofs.would_fence)
        if not job.rejoin:
            d.check_disks(job, self.here, self.seen["unseen"].get(job.uuid, {}))

    def _book_all(self, booking: Booking) -> None:
        """Open the records; in check mode predict them."""
        for job in self.jobs:
            self._guarded(job, lambda job: self._prepare(job, booking))
        waiting = iter([job for job in self.open_jobs() if not (self.check or job.rejoin)])
        while some := list(itertools.islice(waiting, _BOOKED_AT_ONCE)):
            with booking.held():
                for job in some:
                    self._guarded(job, lambda job: booking.book(job, self.evidence(job)))

    def _prepare(self, job: Job, booking: Booking) -> None:
        if self.check:
            booking.predict(job)
        elif job.rejoin:
            booking.rejoin(job, self.evidence(job))
        else:
            booking.give_up_older(job, self.evidence(job))

    def _view(self, seen: Body) -> FleetView:
        context, facts = self.context, {"answered": True, **seen}
        survey = {"source": facts, "destinations": {context.uri: facts}}
        leaving = frozenset(job.uuid for job in self.jobs)
        return FleetView(context.ledger, context.settings, context.here, survey, {context.here: context.uri}, self.arrivals, leaving)

    def _guarded(self, job: Job, step: Callable[[Job], None]) -> None:
        """Keep what speaks against one domain beside it: the others go on."""
        if not job.is_open:
            return
        try:
            step(job)
        except Forbidden:
            raise
        except KvmfleetError as error:
            job.error = error

    def open_jobs(self) -> list[Job]:
        """Return the domains that nothing speaks against so far."""
        return [job for job in self.jobs if job.is_open]


def check_wish(parallel: int, lock_wait_seconds: t.Optional[int]) -> None:
    """Raise L(InvalidArgument) for numbers that cannot be."""
    if not 1 <= parallel <= 64:
        raise InvalidArgument(f"parallel is {parallel}.", "Give a number from 1 to 64. Nothing was started.")
    if lock_wait_seconds is not None and not 0 <= lock_wait_seconds <= 3600:
        raise InvalidArgument(f"lock_wait_seconds is {lock_wait_seconds}.", "Give a number from 0 to 3600. Nothing was started.")
