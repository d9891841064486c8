# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a C(scheduler_check) asks: its options, read into one question, before any host was asked."""

from __future__ import annotations

import typing as t
import uuid as uuid_module
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import check_uri, is_local
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest, canonical_uuid, named_in
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

# How sentences call a saved request of no domain in particular.
UNNAMED = "The request"

Body = Mapping[str, t.Any]


@dataclass(frozen=True)
class Question:
    """A domain, by name, by UUID or as a saved request, and the hosts it might go to.

    :arg source: inventory name of the host that C(uri) leads to.
    :arg move: the domain, the candidates' URIs and what is done with disks, as a move has them.
    :arg saved: the saved request; None for a domain of this host.
    :arg scheduler: settings for this question alone.
    """

    source: str
    move: MoveRequest
    saved: dict[str, t.Any] | None
    scheduler: Body | None

    def wanted(self) -> dict[str, t.Any]:
        """Return what the survey on the host has to look for."""
        wanted = self.move.wanted()
        return wanted if self.saved is None else {**wanted, "request": self.saved}


def question_of(args: Body, settings: Settings, here: str) -> Question:
    """Return the question. Raises L(InvalidArgument); nothing was asked of any host yet.

    :arg args: the validated options of C(scheduler_check).
    :arg here: inventory name of the host that the task runs on.
    """
    if sum(args[option] is not None for option in ("name", "uuid", "request")) != 1:
        raise InvalidArgument("Exactly one of name, uuid and request is needed.")
    check_domain_name(args["name"])
    saved = None if args["request"] is None else _saved(args["request"])
    name, uuid = (args["name"], canonical_uuid(args["uuid"])) if saved is None else (None, saved["uuid"])
    source = here if is_local(check_uri(args["uri"], "uri")) else settings.host_at(args["uri"])
    uris = _candidates(args, settings, source, saved is not None)
    options = MoveOptions(copy_storage=args["copy_storage"])
    move = MoveRequest(name, uuid, args["destination"], uris, None, options, {}, label=name or (saved or {}).get("name") or str(uuid))
    return Question(source, move, saved, args["scheduler"])


def _saved(request: Body) -> dict[str, t.Any]:
    """Return the saved request with a UUID and a name, both made up where it is of no domain in particular."""
    uuid, name = request.get("uuid"), request.get("name")
    if not isinstance(uuid, (str, type(None))) or not isinstance(name, (str, type(None))):
        raise InvalidArgument(f"The request has uuid {uuid!r} and name {name!r}.", "Give texts, or leave them out.")
    known = {**request, "uuid": canonical_uuid(uuid) or str(uuid_module.uuid4()), "name": name or UNNAMED}
    Request.of(known, known["uuid"], known["name"], "", "")
    return known


def _candidates(args: Body, settings: Settings, source: str, with_source: bool) -> dict[str, str]:
    """Return the URIs of the hosts to judge. The source is asked over its own C(uri), and is a candidate by itself only for a saved request."""
    given, destination, uri = args["candidates"], args["destination"], args["destination_uri"]
    if given is not None and (destination is not None or uri is not None):
        raise InvalidArgument("candidates was given together with destination or destination_uri.", "Give either.")
    if uri is not None:
        name = named_in(check_uri(uri, "destination_uri"), destination)
        return {name: uri}
    fleet = [host for host in settings.fleet() if with_source or host != source]
    hosts = given if given is not None else [destination] if destination is not None else fleet
    if not all(hosts):
        raise InvalidArgument("A candidate has an empty name.", "Give inventory names.")
    if not hosts:
        raise InvalidArgument("There is no candidate.", "Name hosts in candidates, or put them into the inventory group kvmfleet_hosts.")
    return {host: args["uri"] if host == source else settings.libvirt_uri(host, source, args["transport"]) for host in hosts}
