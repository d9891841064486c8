# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The collection's variables by host, read in one place: the policy of the source, the address of the destination.

What a running task sees of them is L(TaskSettings).
"""

from __future__ import annotations

import typing as t
import urllib.parse

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import TRANSPORTS, check_address, check_uri, remote_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import DEFAULTS
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import PROFILE_FIELDS, check_fields
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import Moment, age_seconds, is_since
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.settings import SchedulerSettings

FLEET_GROUP = "kvmfleet_hosts"
# Facts that are older say nothing about a host as it is now.
FACTS_MAX_AGE_SECONDS = 60
FACTS = "ansible_facts"
_HOST_FIELDS = (*DEFAULTS, "priority", "drain")


class LedgerPlace(t.NamedTuple):
    """What L(open_ledger) takes.

    :arg etcd: C(kvmfleet_etcd), with a password in it: never shown.
    """

    location: t.Optional[str]
    etcd: t.Any


class Settings:
    """Looks up variables by host.

    :arg task_vars: C(hostvars), the variables of each host, templated; C(groups), names of hosts by group.
    """

    def __init__(self, task_vars: t.Mapping[str, t.Any]) -> None:
        self._hostvars: t.Mapping[str, t.Any] = task_vars["hostvars"]
        self._groups: t.Mapping[str, t.Sequence[str]] = task_vars.get("groups", {})

    def of(self, host: str, variable: str, default: t.Any = None) -> t.Any:
        """Return that variable of that host; the default where the inventory has neither."""
        if host not in self._hostvars:
            return default
        value = self._hostvars[host].get(variable)
        return default if value is None else value

    def owner(self, host: str, variable: str) -> str:
        """Return the host whose variable answers for that host."""
        return host

    def is_known(self, host: str) -> bool:
        """Whether the inventory has the host."""
        return host in self._hostvars

    def fleet(self) -> t.List[str]:
        """Return the hosts of the group C(kvmfleet_hosts); all hosts where that group is missing."""
        return list(self._groups.get(FLEET_GROUP, self._groups.get("all", [])))

    def ledger(self, host: str, option: t.Optional[str]) -> LedgerPlace:
        """Return where the ledger is: the task's option, else C(kvmfleet_ledger); none means the default place."""
        return LedgerPlace(option or self.of(host, "kvmfleet_ledger"), self.of(host, "kvmfleet_etcd"))

    def libvirt_uri(self, host: str, source: str, transport: t.Optional[str] = None) -> str:
        """Return the URI by which the source's libvirt reaches that host: its C(kvmfleet_libvirt_uri), else one built from its address.

        A host that is not in the inventory is taken as an address.
        """
        own = self.of(host, "kvmfleet_libvirt_uri")
        if own:
            return check_uri(own, f"kvmfleet_libvirt_uri of {host}")
        chosen = transport or self.of(source, "kvmfleet_transport", "ssh")
        if chosen not in TRANSPORTS:
            raise InvalidArgument(f"kvmfleet_transport of {source} is {chosen!r}.", f"Give one of: {', '.join(TRANSPORTS)}.")
        return remote_uri(str(self.of(host, "ansible_host", host)), chosen)

    def host_at(self, uri: str) -> str:
        """Return the inventory name of the host that a libvirt URI leads to; the URI's own host where the inventory has none there.

        A host is known by its C(ansible_host), its name, or the host in its C(kvmfleet_libvirt_uri).
        """
        address = _host_in(uri) or uri
        for host in self._groups.get("all", self._hostvars):
            own = str(self.of(host, "kvmfleet_libvirt_uri") or "")
            if address in (str(self.of(host, "ansible_host", host)).lower(), str(host).lower(), _host_in(own)):
                return str(host)
        return address

    def migrate_uri(self, host: str) -> t.Optional[str]:
        """Return the URI for the memory stream: on the host's C(kvmfleet_migration_address) where it has one."""
        address = self.of(host, "kvmfleet_migration_address")
        if not address:
            return None
        text = check_address(str(address))
        return f"tcp://[{text}]" if ":" in text and not text.startswith("[") else f"tcp://{text}"

    def policy(self, host: str) -> t.Mapping[str, t.Any]:
        """Return C(kvmfleet_migration_policy) of the host: its default for moves that start there."""
        policy = self.of(host, "kvmfleet_migration_policy", {})
        if not isinstance(policy, t.Mapping):
            raise InvalidArgument(f"kvmfleet_migration_policy of {host} is {policy!r}, which is no dictionary.")
        unknown = [str(field) for field in policy if field not in _HOST_FIELDS]
        if unknown:
            raise InvalidArgument(f"kvmfleet_migration_policy of {host} has the unknown {', '.join(unknown)}.", f"Known are: {', '.join(_HOST_FIELDS)}.")
        return policy

    def scheduler(self, host: str) -> SchedulerSettings:
        """Return C(kvmfleet_scheduler) of the host. Raises L(InvalidArgument), naming host and variable, for what cannot be."""
        try:
            return SchedulerSettings.of(self.of(host, "kvmfleet_scheduler"), host)
        except AnsibleError as error:
            # A template in it is evaluated when its value is read.
            raise InvalidArgument(f"kvmfleet_scheduler of {host} cannot be read: {str(error).rstrip('.')}.") from None

    def profile(self, host: str, name: t.Optional[str]) -> t.Mapping[str, t.Any]:
        """Return that profile from C(kvmfleet_profiles); empty where no name is given.

        Raises L(InvalidArgument) for one that is not there, naming those that are, or that holds what no policy can.
        """
        if name is None:
            return {}
        profiles = self.of(host, "kvmfleet_profiles", {})
        variable = f"kvmfleet_profiles of {self.owner(host, 'kvmfleet_profiles')}"
        if not isinstance(profiles, t.Mapping):
            raise InvalidArgument(f"{variable} is {profiles!r}, which is no dictionary.")
        if name not in profiles:
            known = ", ".join(sorted(map(str, profiles))) or "none"
            raise InvalidArgument(f"There is no profile {name!r} in {variable}.", f"Known are: {known}.")
        profile = {} if profiles[name] is None else profiles[name]
        where = f"The profile {name} in {variable}"
        if not isinstance(profile, t.Mapping):
            raise InvalidArgument(f"{where} is {profile!r}, which is no dictionary.")
        check_fields(profile, PROFILE_FIELDS, where)
        return profile

    def facts(self, host: str) -> t.Optional[t.Mapping[str, t.Any]]:
        """Return C(kvmfleet_host) of the host as C(host_facts) gathered it, at whatever time."""
        gathered = self.of(host, FACTS, {})
        facts = gathered.get("kvmfleet_host") if isinstance(gathered, t.Mapping) else None
        return facts if isinstance(facts, t.Mapping) else None

    def fresh_facts(self, host: str) -> t.Optional[t.Mapping[str, t.Any]]:
        """Return the facts where this control node received them within the last minute."""
        facts = self.facts(host)
        return facts if not _why_stale(facts) else None

    def facts_since(self, host: str, since: Moment) -> t.Optional[t.Mapping[str, t.Any]]:
        """Return the facts where this control node received them at that moment or later."""
        facts = self.facts(host)
        return facts if facts is not None and is_since(facts, since) else None

    def why_stale(self, host: str) -> str:
        """Return why L(fresh_facts) has none of the host; empty where it has some."""
        return _why_stale(self.facts(host))


def port_of(value: t.Any, what: str) -> int:
    """Return the number of a TCP port; what was templated may come as text. Raises L(InvalidArgument) naming C(what)."""
    text = str(value).strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 2**16):
        raise InvalidArgument(f"{what} is {text[:40]!r}.", "Give the number of a TCP port.")
    return int(text)


def _why_stale(facts: t.Optional[t.Mapping[str, t.Any]]) -> str:
    if facts is None:
        return "it has told none in this run"
    age = age_seconds(facts)
    if age is None:
        return "it is not known when this control node received those that it has, for they come from a cache or from an async task"
    return "" if age <= FACTS_MAX_AGE_SECONDS else f"those that it has are {age:.0f} s old, and {FACTS_MAX_AGE_SECONDS} s at most count"


def _host_in(uri: str) -> t.Optional[str]:
    """Return the host that a URI names; None where it names none, or is none."""
    try:
        return urllib.parse.urlsplit(uri).hostname
    except ValueError:
        return None
