# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a watcher is told of one move, and whether both hypervisors can do it so."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import check_versions, migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import value
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.targets import copies_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Facts, Job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror


def order_of(context: Context, job: Job, adopt: bool) -> Facts:
    """Return what the watcher is told; an adopted move is told from its own state file where that knows more than the ledger."""
    record = d.newest(t.cast(Mirror, job.mirror).record, job.domain.get("watch"))
    options = job.request.options
    persistent = bool(job.domain["found"] and job.domain["info"]["view"]["persistent"])
    migrate_uri = job.request.migrate_uri or context.settings.migrate_uri(record["destination"]["host"])
    copied = [disk["target"] for disk in copies_of(record)]
    parameters = migration_parameters(options, copied)
    if migrate_uri:
        parameters["migrate_uri"] = migrate_uri
    return {
        "record": record,
        "source_uri": context.uri,
        "destination_uri": _destination_uri(context, record),
        "flags": migration_flags(options, persistent, value(record["policy"], "auto_converge"), value(record["policy"], "post_copy"), copied),
        "parameters": parameters,
        "adopt": adopt,
    }


def check_hosts(context: Context, survey: Facts, job: Job, candidates: t.Iterable[str]) -> None:
    """Raise L(NotSupported) for options that the hypervisors of the source and one of the candidates do not have."""
    options = job.request.options
    flags = migration_flags(options, True, value(job.request.policy, "auto_converge"), value(job.request.policy, "post_copy"))
    for host in candidates:
        versions = {context.source.name: survey["source"]["versions"], host: survey["destinations"][job.request.uris[host]]["versions"]}
        check_versions(options, flags, versions)


def _destination_uri(context: Context, record: schema.Record) -> str:
    recorded = record.get("connection", {}).get("destination_uri")
    return str(recorded or context.settings.libvirt_uri(record["destination"]["host"], context.source.name))
