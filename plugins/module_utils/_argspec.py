# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The argument specifications of all modules. A module and its action plugin share one; options that several modules have are defined once."""

from __future__ import annotations

import typing as t

from ._model.libvirt_formats import TRANSPORTS
from ._model.policies import COMPRESSIONS, COPY_CHOICES, DRAIN_STRATEGIES, GROUP_POLICIES, NO_COPY, POLICY_FIELDS, STRATEGIES, TIMEOUT_ACTIONS
from ._model.record_parts import COLD_METHODS
from ._model.statuses import HOST_STATES


class Option(t.TypedDict, total=False):
    """One option of a module, by the keys that Ansible's argument specifications have."""

    type: str
    required: bool
    default: t.Union[bool, int, float, str, t.Sequence[str], t.Mapping[str, str]]
    choices: t.Sequence[str]
    elements: str
    options: t.Mapping[str, Option]
    no_log: bool
    aliases: t.Sequence[str]


Spec = t.Dict[str, Option]

# The options of domain_spec exclude each other.
ONE_DOMAIN_RULE: t.Final = [("name", "uuid")]


def libvirt_spec() -> Spec:
    """Return the options of every module that connects to libvirt. Matches the fragment C(_libvirt)."""
    return {"uri": {"type": "str", "default": "qemu:///system"}}


def domain_spec() -> Spec:
    """Return the options that name a domain. Matches the fragment C(_domain), for modules that require exactly one domain."""
    return {"name": {"type": "str", "aliases": ["domain", "guest"]}, "uuid": {"type": "str"}}


def ledger_spec() -> Spec:
    """Return the options of every module whose action plugin uses the ledger. Matches the fragment C(_ledger)."""
    return {"ledger": {"type": "str"}}


def internal_spec() -> Spec:
    """Return the option by which an action plugin passes a phase and its input to the module. Matches the fragment C(_internal)."""
    return {"_work": {"type": "dict"}}


def move_spec() -> Spec:
    """Return the options that each move of C(live_migrate) has: task-wide, and again in every entry of C(moves)."""
    return {
        **domain_spec(),
        "destination": {"type": "str"},
        "destination_uri": {"type": "str", "aliases": ["desturi"]},
        "transport": {"type": "str", "choices": list(TRANSPORTS)},
        "migrate_uri": {"type": "str", "aliases": ["migrateuri"]},
        "timeout_seconds": {"type": "int", "aliases": ["timeout"]},
        "on_timeout": {"type": "str", "choices": ["abort", "force_complete"]},
        "stall_seconds": {"type": "int"},
        "queue_timeout_seconds": {"type": "int"},
        "busy_wait_seconds": {"type": "int"},
        "downtime_ms": {"type": "int", "aliases": ["downtime"]},
        "downtime_steps": {"type": "int"},
        "downtime_delay_seconds_per_gib": {"type": "int"},
        "downtime_strategy": {"type": "str", "choices": list(STRATEGIES)},
        "force_suspend_seconds": {"type": "int"},
        "force_pause_max_seconds": {"type": "int"},
        "link_mib": {"type": "int"},
        "auto_converge": {"type": "bool"},
        "post_copy": {"type": "bool", "aliases": ["postcopy"]},
        "override_policy": {"type": "bool"},
        "bandwidth_mib": {"type": "int", "aliases": ["bandwidth"]},
        "post_copy_bandwidth_mib": {"type": "int", "aliases": ["postcopy_bandwidth"]},
        "parallel_connections": {"type": "int"},
        "compression": {"type": "str", "choices": list(COMPRESSIONS)},
        "tls": {"type": "bool"},
        "copy_storage": {"type": "str", "choices": list(COPY_CHOICES)},
        "copy_storage_overwrite": {"type": "list", "elements": "str"},
        "unsafe": {"type": "bool"},
        "one_way": {"type": "bool"},
        "force": {"type": "bool"},
    }


def live_migrate_spec() -> Spec:
    """Return the options of C(live_migrate)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        **move_spec(),
        "moves": {"type": "list", "elements": "dict", "options": move_spec()},
        "parallel": {"type": "str", "default": "auto"},
        "progress": {"type": "str", "choices": ["lines", "none"], "default": "lines"},
    }


def cold_move_spec() -> Spec:
    """Return the options that each move of C(cold_migrate) has: task-wide, and again in every entry of C(moves)."""
    return {
        **domain_spec(),
        "destination": {"type": "str"},
        "destination_uri": {"type": "str", "aliases": ["desturi"]},
        "transport": {"type": "str", "choices": list(TRANSPORTS)},
        "method": {"type": "str", "choices": list(COLD_METHODS)},
        "start": {"type": "bool"},
        "shutdown_wait_seconds": {"type": "int"},
        "save_folder": {"type": "str"},
        "unsafe": {"type": "bool"},
        "force": {"type": "bool"},
    }


def cold_migrate_spec() -> Spec:
    """Return the options of C(cold_migrate)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        **cold_move_spec(),
        "moves": {"type": "list", "elements": "dict", "options": cold_move_spec()},
        "progress": {"type": "str", "choices": ["lines", "none"], "default": "lines"},
    }


def migration_abort_spec() -> Spec:
    """Return the options of C(migration_abort)."""
    return {
        **_intervention_spec(),
        "wait_seconds": {"type": "int", "default": 30, "aliases": ["wait_timeout"]},
        "missing_ok": {"type": "bool", "default": False},
    }


def migration_force_complete_spec() -> Spec:
    """Return the options of C(migration_force_complete)."""
    return {
        **_intervention_spec(),
        "bandwidth_mib": {"type": "int", "aliases": ["bandwidth"]},
        "complete": {"type": "bool", "default": True},
        "wait_seconds": {"type": "int", "default": 60, "aliases": ["wait_timeout"]},
    }


def _intervention_spec() -> Spec:
    return {**libvirt_spec(), **ledger_spec(), **domain_spec(), "id": {"type": "str"}, **internal_spec()}


def scheduler_check_spec() -> Spec:
    """Return the options of C(scheduler_check)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        **domain_spec(),
        "request": {"type": "dict"},
        "destination": {"type": "str"},
        "candidates": {"type": "list", "elements": "str"},
        "destination_uri": {"type": "str", "aliases": ["desturi"]},
        "transport": {"type": "str", "choices": list(TRANSPORTS)},
        "copy_storage": {"type": "str", "choices": list(COPY_CHOICES), "default": NO_COPY},
        "one_way": {"type": "bool", "default": True},
        "scheduler": {"type": "dict"},
    }


def drain_plan_spec() -> Spec:
    """Return the options of C(drain_plan)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "sources": {"type": "list", "elements": "str", "required": True},
        "candidates": {"type": "list", "elements": "str", "required": True},
        "options": {"type": "dict", "default": {}},
        "parallel": {"type": "str", "default": "auto"},
        "n_plus_one": {"type": "bool", "default": False},
        "strategies": {"type": "list", "elements": "str"},
        "shut_off": {"type": "str", "choices": ["leave", "move"]},
        "restart": {"type": "bool"},
        "save_folder": {"type": "str"},
        "check_saved": {"type": "bool", "default": False},
        "plan": {"type": "raw"},
        "file": {"type": "str"},
        "only": {"type": "bool", "default": False},
        "publish_as": {"type": "str"},
    }


BALANCE_PLAN, BALANCE_VERIFY = "plan", "verify"


def balance_plan_spec() -> Spec:
    """Return the options of C(balance_plan)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "step": {"type": "str", "choices": [BALANCE_PLAN, BALANCE_VERIFY], "default": BALANCE_PLAN},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "goal": {"type": "str", "choices": ["pressure", "even"], "default": "pressure"},
        "max_moves": {"type": "int", "default": 20},
        "weights": {"type": "dict", "default": {}},
        "tolerated_pressure": {"type": "float", "default": 0.1},
        "tolerated_unevenness": {"type": "float", "default": 0.0},
        "min_gain": {"type": "float", "default": 0.02},
        "horizon_seconds": {"type": "float", "default": 3600},
        "cooldown_seconds": {"type": "float", "default": 86400},
        "max_age_seconds": {"type": "float", "default": 600},
        "maintenance_allowed": {"type": "bool", "default": False},
        "take_over": {"type": "bool", "default": False},
        "run": {"type": "str"},
        "options": {"type": "dict", "default": {}},
        "parallel": {"type": "str", "default": "auto"},
        "empty": {"type": "int", "default": 0},
        "check_saved": {"type": "bool", "default": False},
        "plan": {"type": "raw"},
        "file": {"type": "str"},
        "only": {"type": "bool", "default": False},
        "publish_as": {"type": "str"},
    }


def drain_verify_spec() -> Spec:
    """Return the options of C(drain_verify)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "plan": {"type": "dict", "required": True},
        "only": {"type": "bool", "default": False},
        "publish_as": {"type": "str"},
    }


STATE_AS_RECORDED, STATE_RUNNING, STATE_DEFINED = "as_recorded", "running", "defined"
EVACUATE_CHECK, EVACUATE_QUERY, EVACUATE_SURVIVORS, EVACUATE_PROBE = "check", "query", "survivors", "probe"
EVACUATE_ASSESS, EVACUATE_PROVE, EVACUATE_PLAN = "assess", "prove", "plan"
_EVACUATE_STEPS = [EVACUATE_CHECK, EVACUATE_QUERY, EVACUATE_SURVIVORS, EVACUATE_PROBE, EVACUATE_ASSESS, EVACUATE_PROVE, EVACUATE_PLAN]


def evacuate_spec() -> Spec:
    """Return the options of C(evacuate)."""
    return {**_evacuation_spec(), "domains": {"type": "list", "elements": "str"}, "_definitions": {"type": "dict", "no_log": True}}


def evacuate_plan_spec() -> Spec:
    """Return the options of C(evacuate_plan)."""
    return {
        **_evacuation_spec(),
        "step": {"type": "str", "choices": _EVACUATE_STEPS, "required": True},
        "domains": {"type": "list", "elements": "str"},
        "destination": {"type": "str"},
        "survivors": {"type": "list", "elements": "str", "default": []},
        "since": {"type": "dict"},
    }


def evacuate_verify_spec() -> Spec:
    """Return the options of C(evacuate_verify)."""
    return {**ledger_spec(), **internal_spec(), "plan": {"type": "dict", "required": True}, "publish_as": {"type": "str"}}


def _evacuation_spec() -> Spec:
    # Every module on a host imports this file, but not the nouns of an evacuation.
    from ._model.saved_domains import REPLACEABLE

    return {
        **libvirt_spec(),
        **ledger_spec(),
        **internal_spec(),
        "source": {"type": "str", "required": True},
        "fencing": {"type": "list", "elements": "dict"},
        "force_down": {"type": "dict", "options": {"reason": {"type": "str", "required": True}, "by": {"type": "str"}}},
        "accept_silent": {"type": "list", "elements": "str", "default": []},
        "accept_fresh": {"type": "list", "elements": "str", "choices": list(REPLACEABLE), "default": []},
        "force": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": [STATE_AS_RECORDED, STATE_RUNNING, STATE_DEFINED], "default": STATE_AS_RECORDED},
        "parallel": {"type": "int", "default": 4},
        "lock_wait_seconds": {"type": "int"},
        "accept_locked": {
            "type": "dict",
            "options": {
                "images": {"type": "list", "elements": "str", "required": True},
                "reason": {"type": "str", "required": True},
                "by": {"type": "str"},
            },
        },
        "restart_limit": {"type": "dict", "options": {"hosts": {"type": "int", "required": True}, "hours": {"type": "int", "required": True}}},
        "detection": {"type": "dict", "options": {name: {"type": "str", "required": True} for name in ("silent_since", "detected_at", "by")}},
    }


CLEANUP_STORAGES = ("quarantine", "keep", "delete")


def evacuation_cleanup_spec() -> Spec:
    """Return the options of C(evacuation_cleanup)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "storage": {"type": "str", "choices": list(CLEANUP_STORAGES), "default": "quarantine"},
        "retention_days": {"type": "int", "default": 14},
        **internal_spec(),
    }


def boot_guard_spec() -> Spec:
    """Return the options of C(boot_guard)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "state": {"type": "str", "choices": ["released"]},
        "forget": {"type": "list", "elements": "str", "default": []},
        **internal_spec(),
    }


def host_lease_spec() -> Spec:
    """Return the options of C(host_lease)."""
    return {**libvirt_spec(), **ledger_spec(), "state": {"type": "str", "choices": ["present", "absent"], "default": "present"}, **internal_spec()}


def protect_spec() -> Spec:
    """Return the options of C(protect)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "guard": {"type": "bool", "default": False},
        "clean_shutdown_token": {"type": "bool", "default": False},
        **internal_spec(),
    }


# The decisions of a person. Each requires a reason, and a task has at most one.
HOST_DECISIONS = ("adopt_identity", "source_discarded", "domains_lost", "revoke_token", "settle")
# The statuses with which a person can settle a record.
SETTLED_STATUSES = ("completed", "done", "failed", "cancelled")


def host_spec() -> Spec:
    """Return the options of C(host)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "state": {"type": "str", "choices": list(HOST_STATES)},
        "reason": {"type": "str"},
        "name": {"type": "str"},
        "adopt_identity": {"type": "bool", "default": False},
        "source_discarded": {"type": "bool", "default": False},
        "domains_lost": {"type": "list", "elements": "str"},
        "revoke_token": {"type": "bool", "default": False},
        "settle": {
            "type": "dict",
            "options": {"id": {"type": "str", "required": True}, "status": {"type": "str", "required": True, "choices": list(SETTLED_STATUSES)}},
        },
        **internal_spec(),
    }


def displaced_domains_spec() -> Spec:
    """Return the options of C(displaced_domains)."""
    return {**ledger_spec(), "name": {"type": "str"}}


# What can be listed, each under its own key of the result.
LEDGER_LISTS = ("migrations", "evacuations", "hosts", "domains", "maintenance_runs", "balance_runs")


def ledger_query_spec() -> Spec:
    """Return the options that select records and documents. Matches the fragment C(_ledger_query)."""
    return {
        "status": {"type": "list", "elements": "str"},
        "host": {"type": "str"},
        "domain": {"type": "str"},
        "since": {"type": "str"},
        "until": {"type": "str"},
        "forced": {"type": "bool"},
        "query": {"type": "str"},
        "include_definitions": {"type": "bool", "default": False},
    }


def ledger_info_spec() -> Spec:
    """Return the options of C(ledger_info)."""
    return {
        **ledger_spec(),
        "list": {"type": "list", "elements": "str", "choices": list(LEDGER_LISTS)},
        "id": {"type": "str"},
        **ledger_query_spec(),
        "verify": {"type": "bool", "default": False},
    }


def ledger_copy_spec() -> Spec:
    """Return the options of C(ledger_copy)."""
    return {**ledger_spec(), "to": {"type": "str", "required": True}, "force": {"type": "bool", "default": False}}


def ledger_archive_spec() -> Spec:
    """Return the options of C(ledger_archive)."""
    return {**ledger_spec(), "to": {"type": "str", "required": True}, "older_than_days": {"type": "int", "default": 90}}


def ledger_settings_spec() -> Spec:
    """Return the options of C(ledger_settings)."""
    return {**ledger_spec(), "override_policy_allowed": {"type": "bool"}, "reason": {"type": "str"}}


LOCATE_CHECK, LOCATE_FIND = "check", "find"
# What people start for one domain, by the names of the playbooks.
PURPOSES = (FOR_ABORT, FOR_CHECK, FOR_FORCE_COMPLETE, FOR_MIGRATE, FOR_POLICY) = ("abort", "check", "force_complete", "migrate", "policy")


def domain_location_spec() -> Spec:
    """Return the options of C(domain_location)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "step": {"type": "str", "choices": [LOCATE_CHECK, LOCATE_FIND], "required": True},
        "purpose": {"type": "str", "choices": list(PURPOSES), "required": True},
        "domain": {"type": "str"},
        "id": {"type": "str"},
        "source": {"type": "str"},
        "destination": {"type": "str"},
        "fleet": {"type": "list", "elements": "str", "required": True},
        "options": {"type": "raw"},
        "survey": {"type": "dict", "default": {}},
    }


def fleet_status_spec() -> Spec:
    """Return the options of C(fleet_status)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        **internal_spec(),
        "fleet": {"type": "list", "elements": "str", "default": []},
        "protect_max_hours": {"type": "int", "default": 24},
    }


# What a task does with a maintenance run. People use the first four, the role rolling_maintenance the others.
RUN_SHOWN, RUN_PAUSED, RUN_RESUMED, RUN_STOPPED = "shown", "paused", "resumed", "stopped"
RUN_CHECKED, RUN_STARTED, RUN_NEXT, RUN_STEP, RUN_DONE, RUN_FAILED, RUN_LEFT = "checked", "started", "next", "step", "done", "failed", "left"
RUN_FENCED = "fenced"
RUN_TASK_STATES = (RUN_SHOWN, RUN_PAUSED, RUN_RESUMED, RUN_STOPPED, RUN_CHECKED, RUN_STARTED, RUN_NEXT, RUN_STEP, RUN_FENCED, RUN_DONE, RUN_FAILED, RUN_LEFT)


def maintenance_run_spec() -> Spec:
    """Return the options of C(maintenance_run)."""
    from ._model.maintenance_runs import ALL_STEPS, REACTIONS

    return {
        **ledger_spec(),
        "state": {"type": "str", "choices": list(RUN_TASK_STATES), "default": RUN_SHOWN},
        "run": {"type": "str"},
        "reason": {"type": "str"},
        "process_is_gone": {"type": "bool", "default": False},
        "hosts": {"type": "list", "elements": "str", "default": []},
        "lost_hosts": {"type": "list", "elements": "str", "default": []},
        "planned": {"type": "dict", "default": {}},
        "max_unavailable": {"type": "int", "default": 1},
        "max_failures": {"type": "int", "default": 0},
        "canary": {"type": "bool", "default": False},
        "canary_minutes": {"type": "int"},
        "canary_alarm": {"type": "str"},
        "until": {"type": "str"},
        "expected_minutes": {"type": "int"},
        "host": {"type": "str"},
        "step": {"type": "str", "choices": list(ALL_STEPS)},
        "boot_id": {"type": "str"},
        "error": {"type": "str"},
        "drill": {
            "type": "dict",
            "options": {
                "limit_seconds": {"type": "int", "default": 90},
                "deadline_seconds": {"type": "int", "default": 300},
                "reaction": {"type": "str", "choices": list(REACTIONS), "default": REACTIONS[0]},
                "accept_lost": {"type": "list", "elements": "str", "default": []},
                "guests": {"type": "dict", "default": {}},
            },
        },
    }


DRILL_CHECK, DRILL_CUT, DRILL_PROBLEM, DRILL_WATCH, DRILL_SWITCH_ON, DRILL_JUDGE = "check", "cut", "problem", "watch", "switch_on", "judge"


def drill_run_spec() -> Spec:
    """Return the options of C(drill_run)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "step": {"type": "str", "choices": [DRILL_CHECK, DRILL_CUT, DRILL_PROBLEM, DRILL_WATCH, DRILL_SWITCH_ON, DRILL_JUDGE], "required": True},
        "host": {"type": "str", "required": True},
        "fleet": {"type": "list", "elements": "str", "default": []},
        "accept_lost": {"type": "list", "elements": "str", "default": []},
        "accept_unguarded": {"type": "bool", "default": False},
        "protect_max_hours": {"type": "int", "default": 24},
        "bring_home": {"type": "bool", "default": True},
        "problem": {"type": "str"},
    }


FLEET_CHECK_KINDS = ("capacity", "reach", "cpu", "network", "protection", "fencing", "clock", "silent")


def fleet_check_spec() -> Spec:
    """Return the options of C(fleet_check)."""
    from ._model.saved_domains import REPLACEABLE

    return {
        **libvirt_spec(),
        **ledger_spec(),
        **internal_spec(),
        "fleet": {"type": "list", "elements": "str", "default": []},
        "hosts_lost": {"type": "int"},
        "lost": {"type": "list", "elements": "str", "default": []},
        "accept_fresh": {"type": "list", "elements": "str", "choices": list(REPLACEABLE), "default": []},
        "ignore": {"type": "list", "elements": "str", "choices": list(FLEET_CHECK_KINDS), "default": []},
        "max_clock_skew_seconds": {"type": "int", "default": 2},
        "protect_max_hours": {"type": "int", "default": 24},
    }


REPORT_FORMATS = ("html", "json", "csv", "markdown", "junit")


def report_spec() -> Spec:
    """Return the options of C(report)."""
    return {
        **ledger_spec(),
        "dest": {"type": "str", "required": True},
        "name": {"type": "str", "default": "report"},
        "formats": {"type": "list", "elements": "str", "choices": list(REPORT_FORMATS), "default": ["html"]},
        "mode": {"type": "raw", "default": "0600"},
        "title": {"type": "str"},
        "since": {"type": "str"},
        "until": {"type": "str"},
        "host": {"type": "str"},
        "domain": {"type": "str"},
        "ids": {"type": "list", "elements": "str"},
        "drain_host_result": {"type": "dict"},
    }


# The folder that Debian's node exporter reads.
METRICS_PATH = "/var/lib/prometheus/node-exporter/kvmfleet.prom"


def metrics_spec() -> Spec:
    """Return the options of C(metrics)."""
    return {**ledger_spec(), "path": {"type": "path", "default": METRICS_PATH}, "mode": {"type": "raw", "default": "0644"}}


def event_brake_spec() -> Spec:
    """Return the options of C(event_brake)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "host": {"type": "str"},
        "reaction": {"type": "str", "default": "evacuate"},
        "hosts": {"type": "int", "default": 1},
        "window_minutes": {"type": "int", "default": 60},
        "silent": {"type": "list", "elements": "str"},
        "isolated": {"type": "str"},
        "folder": {"type": "path"},
        "state": {"type": "str", "default": "taken", "choices": ["taken", "checked", "released", "armed", "disarmed"]},
    }


def domain_policy_spec() -> Spec:
    """Return the options of C(domain_policy)."""
    return {
        **libvirt_spec(),
        **domain_spec(),
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "auto_converge": {"type": "bool"},
        "post_copy": {"type": "bool", "aliases": ["postcopy"]},
        "timeout_seconds": {"type": "int", "aliases": ["timeout"]},
        "on_timeout": {"type": "str", "choices": list(TIMEOUT_ACTIONS)},
        "downtime_ms": {"type": "int", "aliases": ["downtime"]},
        "force_pause_max_seconds": {"type": "int"},
        "priority": {"type": "int"},
        "drain": {"type": "list", "elements": "str", "choices": list(DRAIN_STRATEGIES)},
        "group": {
            "type": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "policy": {"type": "str", "choices": list(GROUP_POLICIES), "required": True},
                "max_per_host": {"type": "int"},
            },
        },
        "labels": {"type": "list", "elements": "str"},
        "profile": {"type": "str"},
        "unset": {"type": "list", "elements": "str", "choices": list(POLICY_FIELDS), "default": []},
    }


RECOVER_OPTIONS, RECOVER_CHECK, RECOVER_START, RECOVER_BRING_HOME = "options", "check", "start", "bring_home"


def recover_plan_spec() -> Spec:
    """Return the options of C(recover_plan)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "step": {"type": "str", "choices": [RECOVER_OPTIONS, RECOVER_CHECK, RECOVER_START, RECOVER_BRING_HOME], "required": True},
        "name": {"type": "str"},
        "fleet": {"type": "list", "elements": "str", "required": True},
        "to_start": {"type": "list", "elements": "dict", "default": []},
        "start": {"type": "raw", "default": "autostart"},
        "accept_silent": {"type": "list", "elements": "str", "default": []},
        "displaced": {"type": "list", "elements": "dict", "default": []},
        "options": {"type": "dict", "default": {}},
        "parallel": {"type": "str", "default": "auto"},
    }


def recover_verify_spec() -> Spec:
    """Return the options of C(recover_verify)."""
    return {
        **ledger_spec(),
        **internal_spec(),
        "hosts": {"type": "list", "elements": "str", "required": True},
        "publish_as": {"type": "str"},
    }
