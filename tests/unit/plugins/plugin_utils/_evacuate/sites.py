# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three hosts with domains in memory; their tokens, locks and notes, the ledger, the fence agent and the SSH ports are real."""

from __future__ import annotations

import pathlib
import socket
import typing as t
import uuid as uuid_module
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import evacuate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import SSH_REFUSED, SSH_SILENT, probe_ssh
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.restart import Restart, build_restart_result
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import find_unproved
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import saved_domains as r
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.job import EvacuationContext, EvacuationTask
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import RunProcess
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import FakeStartingHost, definition
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import Agent
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

Body = dict[str, t.Any]
HOSTS = ("kvm1", "kvm2", "kvm3")
WORD = {"reason": "I pulled the plug", "by": "Ada"}


def host_id(name: str) -> str:
    return str(uuid_module.uuid5(uuid_module.NAMESPACE_URL, name))


def image_of(uuid: str) -> str:
    """Return the name that the image of a domain has in the whole fleet."""
    return f"nas:/srv/{uuid}.qcow2"


class SiteRunProcess(RunProcess):
    """The process that runs the play, as long as the site says that it lives."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def has_ended(self) -> bool:
        return not self._site.parent_lives


class Site:
    """A fleet whose first host is dead unless C(answering), and its control node."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.ledger = FileLedger(str(folder / "ledger"))
        self.images = folder / "images"
        self.images.mkdir()
        self.hosts = {name: FakeStartingHost() for name in (*HOSTS, "kvm4")}
        self.silent: set[str] = {"kvm1"}
        # Of facts: the hosts' own clock, how long ago they were received, and by which start of which control node, if not by this one.
        self.gathered_at = utc_now()
        self.received_ago = 0.0
        self.boot_id = ""
        # Hosts whose host ID libvirt can read.
        self.told_ids: set[str] = set()
        # Names of the inventory, those that told their facts, and whose addresses lead to another host.
        self.listed = list(HOSTS)
        self.without_root: set[str] = set()
        self.told_facts = set(HOSTS)
        self.leads_to: dict[str, str] = {}
        # Whether something at the address of the dead host refuses connections, or answers Ansible; the hosts to which Ansible has tried to connect.
        self.refuses = False
        self.answers_ansible = False
        self.connected: list[str] = []
        self.locked: set[str] = set()
        self.waits: list[tuple[list[str], int]] = []
        self.uuids = {name: f.uuid_of(name) for name in self.hosts}
        self.memory = dict.fromkeys(self.hosts, 65536)
        # Variables of hosts, and facts that differ.
        self.variables: dict[str, Body] = {}
        self.own_facts: dict[str, Body] = {}
        self.agents: dict[str, Agent] = {}
        self.phases: list[tuple[str, str]] = []
        self.remembered: dict[str, list[Body]] = {}
        self.before_start: t.Callable[[], None] = lambda: None
        # As SSH does with a command whose connection was lost before its answer.
        self.repeats_start = False
        # How long the next orders are under way, in seconds.
        self.delays: list[float] = []
        self.after_start: t.Callable[[], None] = lambda: None
        self.deferred: set[str] = set()
        self.passed_on: list[float | None] = []
        self.parent_lives = True
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self.nonces = images.leave_tokens([str(self.images)], host_id("kvm1"))[0]
        for name in HOSTS:
            self.write_host(name)

    def write_host(self, host: str, **changes: t.Any) -> None:
        entry = {"name": host, "host_id": host_id(host), "host_uuid": self.uuids[host], "machine_id": host, "state": "enabled", "reason": None}
        address = {"ansible_host": "127.0.0.1", "ssh_port": self.port, "libvirt_uri": f"qemu+tcp://{host}/system"}
        protected = {"guard": {"held_at_boot": True}, "token_id": None}
        folders = self.nonces if host == "kvm1" else {}
        found = self.ledger.read_host(host_id(host))
        self.ledger.put_host(
            host_entry({**entry, "addresses": address, "folders": folders, "protected": protected, **changes}), found.version if found else None
        )

    def agent(self, name: str = "kvm1", power: str = "off") -> Agent:
        folder = self.folder / f"agent-{name}"
        folder.mkdir()
        self.agents[name] = Agent(folder, power=power)
        return self.agents[name]

    def save(self, name: str, on: str = "kvm1", seen_by: t.Sequence[str] = HOSTS, memory_mib: int = 1024, **changes: t.Any) -> str:
        """Put a domain of the dead host into the ledger, as C(protect) does; return its UUID."""
        uuid, path = f.uuid_of(name), str(self.images / f"{name}.qcow2")
        pathlib.Path(path).touch()
        disk = {"target": "vda", "kind": "file", "path": path, "readonly": False, "optional": False, "backing": [], "folders": [str(self.images)], "wwn": None}
        kind = changes.pop("mount_kind", None)
        disk |= {"mount": {"path": "/srv", "kind": kind, "store": "nas:/srv"} if kind else None, "locks": changes.pop("locks", None)}
        where = encode(HostRef(on, host_id(on), self.uuids[on]))
        request = f.request(memory_mib, disks=[f.disk("vda", source=path, store=image_of(uuid))], uuid=uuid, name=name, priority=changes.pop("priority", 0))
        protected = {
            "at": utc_now(),
            "by": "a test",
            "host": encode(HostRef("kvm1", host_id("kvm1"), self.uuids["kvm1"])),
            "definition": definition(uuid, name, path),
            "persistent": True,
            "autostart": False,
            "state": "running",
            "state_at": utc_now(),
            "request": request,
            "policy": {},
            "nvram": None,
            "tpm": None,
            "disks": [{**disk, "seen_by": [host_id(one) for one in seen_by]}],
            **changes,
        }
        document = {"uuid": uuid, "name": name, "possible_hosts": [where], "last_record": None, "protected": protected, "updated_at": utc_now()}
        self.ledger.put_domain(domain_entry(document), None)
        return uuid

    def lose(self, name: str, host: str = "kvm1") -> None:
        """Let the host not have had the domain any more when it was protected last."""
        where = encode(HostRef(host, host_id(host), self.uuids[host]))
        self.change(name, lambda body: body.update(missing={"at": "2026-11-23T18:00:00.000Z", "by": "a test", "host": where}))

    def change(self, name: str, change: t.Callable[[Body], t.Any]) -> None:
        (document,) = self.ledger.find_domains(name)
        change(document.body)
        self.ledger.put_domain(domain_entry(document.body), document.version)

    def place(self, name: str) -> HostRef:
        return HostRef(name, host_id(name), self.uuids[name])

    # The control node

    def settings(self) -> Settings:
        def variables(name: str) -> Body:
            fencing = {"kvmfleet_fencing": {"agent": str(self.agents[name].path), "options": {}}} if name in self.agents else {}
            told = name not in self.silent and name in self.told_facts
            own = {"ansible_facts": {"kvmfleet_host": self.received(self.leads_to.get(name, name))}} if told else {}
            return {"ansible_host": "127.0.0.1", "ansible_port": self.port, "kvmfleet_transport": "tcp", **fencing, **own, **self.variables.get(name, {})}

        return Settings({"hostvars": {name: variables(name) for name in self.listed}, "groups": {"all": self.listed, "kvmfleet_hosts": self.listed}})

    def evacuation(self, on: str = "kvm2", check: bool = False, **given: t.Any) -> Evacuation:
        defaults = {option: spec.get("default") for option, spec in evacuate_spec().items()}
        own = {name: given.pop(name) for name in ("restart_limit", "detection") if name in given}
        task = decode(EvacuationTask, {**defaults, "source": "kvm1", "lock_wait_seconds": 0, **given})
        context = EvacuationContext(
            self.ledger, self.settings(), on, task.uri, "a test", task, lambda phase, work: self.phase(on, phase, work), SiteRunProcess(self), **own
        )
        run = Evacuation(context, check)
        run.proofs.try_connection = self.knock
        return run

    def knock(self, address: str, port: int) -> str:
        """Knock for real; that nobody listens stands for a host without power."""
        says = probe_ssh(address, port)
        return SSH_SILENT if says == SSH_REFUSED and not self.refuses else says

    def evacuate(self, on: str = "kvm2", **given: t.Any) -> Evacuation:
        run = self.evacuation(on, **{"force_down": None if "fencing" in given or "kvm1" in self.agents else WORD, **given})
        run.evacuate_domains()
        return run

    def received(self, name: str) -> Body:
        """Return the facts of a host as the control node has them."""
        facts = with_receipt(self.facts(name))
        stamp = {"boot_id": self.boot_id or facts["received"]["boot_id"], "seconds": facts["received"]["seconds"] - self.received_ago}
        return {**facts, "received": stamp}

    # The host that the task runs on

    def facts(self, name: str) -> Body:
        guests = self.hosts[name].guests.items()
        images = {uuid: [f.disk("vda", store=image_of(uuid))] for uuid, _guest in guests}
        active = {uuid: self.hosts[name].view_domain(uuid).active for uuid, _guest in guests}
        domains = [f.domain(guest["name"], uuid=uuid, active=active[uuid], state=guest["state"], disks=images[uuid]) for uuid, guest in guests]
        known = {"domains": domains, "host_uuid": self.uuids[name], "host_id": host_id(name), "machine_id": name, "gathered_at": self.gathered_at}
        rights = {"unverified_reasons": {"paths": "libvirt withholds it"}} if name in self.without_root else {}
        return f.host(name, self.memory[name], remembered=self.remembered.get(name, []), **{**known, **rights, **self.own_facts.get(name, {})})

    def phase(self, on: str, phase: str, work: t.Mapping[str, t.Any]) -> Body:
        self.phases.append((on, phase))
        if phase == "start" and self.repeats_start:
            self._start(on, work)
        return {"look": self._look, "locks": self._locks, "start": self._start}[phase](on, work)

    def _look(self, on: str, work: t.Mapping[str, t.Any]) -> Body:
        doors = [{**door, "says": self.knock(door["address"], door["port"])} for door in work["knock"]]
        domains = [decode(r.DomainToProbe, domain) for domain in work["domains"]]
        seen = {domain.uuid: find_unproved(domain) for domain in domains}
        fleet = {name: self._answer(name) for name in work["ask"]}
        return {"at": encode(boot_moment()), "facts": self.facts(on), "fleet": fleet, "doors": doors, "unseen": seen, "cpu": {}, **self._locks(on, work)}

    def _answer(self, name: str) -> Body:
        name = self.leads_to.get(name, name)
        if name not in self.hosts or name in self.silent:
            return {"answered": False, "msg": f"{name} is silent.", "error_code": "unreachable"}
        guests = self.hosts[name].guests.items()
        domains = {uuid: {"name": guest["name"], "active": self.hosts[name].view_domain(uuid).active} for uuid, guest in guests}
        own = host_id(name) if name in self.told_ids else None
        return {"answered": True, "host_id": own, "host_uuid": self.uuids[name], "domains": domains}

    def _locks(self, on: str, work: t.Mapping[str, t.Any]) -> Body:
        if "wait_seconds" in work:
            self.waits.append((list(work["paths"]), work["wait_seconds"]))
        return {"locks": {path: {"state": "locked" if pathlib.Path(path).stem in self.locked else "free", "why": ""} for path in work["paths"]}}

    def _start(self, on: str, work: t.Mapping[str, t.Any]) -> Body:
        self.before_start()
        if on in self.silent:
            raise Unreachable(f"{on} cannot be reached.")
        run, notes = self.folder / f"run-{on}", self.folder / f"notes-{on}"
        run.mkdir(mode=0o700, exist_ok=True)
        results, delay = [], self.delays.pop(0) if self.delays else 0.0
        until = decode(BootMoment, work["start_until"]) if work["start_until"] else None
        is_late = until is not None and until.has_passed(replace(boot_moment(), seconds=boot_moment().seconds + delay))
        for order in (decode(r.RestartOrder, order) for order in work["orders"]):
            if order.name in self.deferred and not order.settle_only:
                self.deferred -= set() if "for ever" in self.deferred else {order.name}
                results.append(build_restart_result(order, r.DEFERRED))
            else:
                results.append(self._restart(self.hosts[on], order, run, notes, is_late))
        self.after_start()
        self.passed_on.append(work["elsewhere"]["moment"]["seconds"] if work["elsewhere"] else None)
        answers = r.PeerAnswers({}, ("kvm3: busy.",) if self.deferred else (), (), BootMoment("this start", len(self.passed_on)))
        return {"at": encode(boot_moment()), "results": encode(results), "elsewhere": encode(answers)}

    def _restart(self, host: FakeStartingHost, order: r.RestartOrder, run: pathlib.Path, notes: pathlib.Path, is_late: bool) -> r.RestartResult:
        refusal = build_restart_result(order, r.DEFERRED) if is_late else None
        restart = Restart(host, order, str(run), str(notes), sleep=lambda seconds: None, refuse=lambda: refusal, is_late=lambda: is_late)
        return restart.carry_out_order()

    # What there is

    def running(self) -> dict[str, list[str]]:
        """Return the names of the active domains of each host that has some."""
        active = {name: sorted(guest["name"] for uuid, guest in host.guests.items() if host.view_domain(uuid).active) for name, host in self.hosts.items()}
        return {name: names for name, names in active.items() if names}

    def record_summaries(self) -> list[tuple[str, str, str]]:
        """Return domain, status and destination of each record, oldest first."""
        records = sorted(self.ledger.list_records(), key=lambda record: str(record.created_at))
        return [(record.domain.name, record.status, record.destination.host) for record in records]

    def possible(self, name: str) -> list[str]:
        (document,) = self.ledger.find_domains(name)
        return [where["host"] for where in document.body["possible_hosts"]]
