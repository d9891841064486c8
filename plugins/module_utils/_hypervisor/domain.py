# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reading libvirt's domains into the engine's words: states, jobs, figures, and what a definition says."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from .._facts.cpusets import bytes_of, count_of
from .._migration import hypervisor as h
from .._policy.document import element_of
from .._xml import parse_libvirts

# virDomainState; anything else is none of the states in which we act.
_STATES = {1: h.RUNNING, 2: h.RUNNING, 3: h.PAUSED, 5: h.SHUTOFF, 6: h.CRASHED}

# virDomain{Running,Paused,Shutoff,Crashed}Reason, in virsh's words.
_REASONS: t.Dict[int, t.Dict[int, str]] = {
    1: {1: "booted", 2: "migrated", 3: "restored", 4: "from snapshot", 5: "unpaused", 6: "migration canceled", 7: "save canceled", 8: "event wakeup",
        9: "crashed", 10: h.POST_COPY, 11: h.POST_COPY_FAILED},
    3: {1: "user", 2: h.MIGRATION, 3: "saving", 4: "dumping", 5: "I/O error", 6: "watchdog", 7: "from snapshot", 8: "shutting down",
        9: "creating snapshot", 10: "crashed", 11: h.STARTING_UP, 12: h.POST_COPY, 13: h.POST_COPY_FAILED, 14: "API error"},
    5: {1: "shutdown", 2: "destroyed", 3: "crashed", 4: "migrated", 5: "saved", 6: "failed", 7: "from snapshot", 8: "daemon"},
    6: {1: "panicked"},
}  # fmt: skip

_JOB_OPERATIONS = {4: h.JOB_INCOMING, 5: h.JOB_OUTGOING}
_JOB_UNDER_WAY = (1, 2)


def state_words(state: int, reason: int) -> t.Tuple[str, str]:
    """Return libvirt's state and reason numbers as words."""
    return _STATES.get(state, h.OTHER_STATE), _REASONS.get(state, {}).get(reason, "")


def job_words(stats: t.Mapping[str, t.Any]) -> str:
    """Return which kind of job libvirt's statistics are about."""
    if stats.get("type") not in _JOB_UNDER_WAY:
        return h.JOB_NONE
    return _JOB_OPERATIONS.get(stats.get("operation", 0), h.JOB_OTHER)


def job_stats(stats: t.Mapping[str, t.Any]) -> h.JobStats:
    """Return libvirt's job statistics in our names and units (bytes, bytes a second, milliseconds)."""
    page = stats.get("memory_page_size", 4096)
    return h.JobStats(
        elapsed_ms=stats.get("time_elapsed", 0),
        downtime_ms=stats.get("downtime"),
        setup_ms=stats.get("setup_time"),
        data_processed_bytes=stats.get("data_processed", 0),
        memory_total_bytes=stats.get("memory_total", 0),
        memory_processed_bytes=stats.get("memory_processed", 0),
        memory_remaining_bytes=stats.get("memory_remaining", 0),
        disk_total_bytes=stats.get("disk_total", 0),
        disk_processed_bytes=stats.get("disk_processed", 0),
        disk_remaining_bytes=stats.get("disk_remaining", 0),
        bandwidth_bytes=stats.get("memory_bps", 0),
        dirty_rate_bytes=stats.get("memory_dirty_rate", 0) * page,
        iteration=stats.get("memory_iteration", 0),
        throttle_percent=stats.get("auto_converge_throttle", 0),
    )


def parse_definition(xml: str) -> t.Dict[str, t.Any]:
    """Return the keys of L(DomainInfo) that a domain's XML tells. The XML is libvirt's own, never a file of somebody's."""
    return info_of(definition_root(xml))


def info_of(root: ElementTree.Element) -> t.Dict[str, t.Any]:
    """Return the keys of L(DomainInfo) that a domain's definition tells."""
    memory = root.find("memory")
    return {
        "memory_bytes": bytes_of(memory.text, memory.get("unit")) if memory is not None else 0,
        "vcpus": count_of(root.findtext("vcpu"), 1),
        "disks": tuple(_disk(element) for element in root.findall("devices/disk")),
        "has_nvram": root.find("os/nvram") is not None,
        "has_tpm": root.find("devices/tpm/backend[@type='emulator']") is not None,
        "policy_xml": element_of(root),
    }


def definition_root(xml: str) -> ElementTree.Element:
    """Return the parsed XML that libvirt gave of a domain."""
    return parse_libvirts(xml, "a domain definition")


def _disk(element: ElementTree.Element) -> h.Disk:
    target = element.find("target")
    source = element.find("source")
    attributes = source.attrib if source is not None else {}
    where = next((attributes[key] for key in ("file", "dev", "name", "volume", "dir") if key in attributes), "")
    return h.Disk(
        target=target.get("dev", "") if target is not None else "",
        kind=element.get("type", ""),
        source=where,
        # A CD-ROM is read-only without the element; a floppy is not.
        readonly=element.find("readonly") is not None or element.get("device") == "cdrom",
        shareable=element.find("shareable") is not None,
    )
