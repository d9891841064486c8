#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Write a report of moves and evacuations
version_added: 0.1.0
description:
  - Reads records from the ledger and writes what a maintenance night did as one HTML page that opens from disk, and the same as JSON, CSV, Markdown
    and JUnit XML.
  - The page has a timeline of all moves by host, the convergence of each move, the distribution of downtimes, what was not moved and why, what was forced,
    the evidence of evacuations, and whether each host may be rebooted. Its tables can be sorted and searched. It loads nothing from anywhere.
  - A report is about the records that meet all of O(since), O(until), O(host) and O(domain), or about those of O(ids). Without any of them it is about the
    whole ledger.
  - Everything happens on the control node. No host is asked, and the ledger is only read.
  - A definition of a domain, and so a graphics password, is never in a report. Names of domains and hosts are, and the output of fence agents.
options:
  dest:
    description:
      - Folder on the control node to write to. It is made where it is missing, with mode C(0700).
      - A relative one is below the folder in which C(ansible-playbook) was started.
    type: str
    required: true
  name:
    description: What the files are called, without their endings.
    type: str
    default: report
  formats:
    description:
      - What to write. V(html) is C(NAME.html), V(json) C(NAME.json), V(markdown) C(NAME.md) and V(junit) C(NAME.xml).
      - V(csv) is C(NAME.csv) with the moves and C(NAME-hosts.csv) with the hosts. A text that a spreadsheet would take for a formula
        gets an apostrophe before it.
    type: list
    elements: str
    choices: [html, json, csv, markdown, junit]
    default: [html]
  mode:
    description: Permissions of the files, an octal text.
    type: raw
    default: '0600'
  title:
    description: Heading of the report. When not given, it is C(Migration report).
    type: str
  since:
    description:
      - Only records last written at this time or later.
      - RFC 3339, for example V(2026-11-21T03:00:00Z). A date alone is its first moment in UTC.
    type: str
  until:
    description: Only records last written before this time, in the form of O(since).
    type: str
  host:
    description: Only records with this host at either end. An inventory name, a host's own id (C(host_id)) or libvirt's host UUID.
    type: str
  domain:
    description: Only records of this domain, by name or UUID.
    type: str
  ids:
    description:
      - Only the records with these ids, for example those that a run's tasks have returned.
      - Excludes O(since), O(until), O(host) and O(domain).
    type: list
    elements: str
  drain_host_result:
    description:
      - What the role P(kvmfleet.migration.drain_host#role) has returned under that name. It has asked the hosts themselves whether they may be rebooted.
      - Without it the ledger alone is read, which can say that a host must not be rebooted, and never that it may.
    type: dict
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Every report says when it was made.
notes:
  - In a play over several hosts give C(run_once), or every host writes the same files.
  - Each file is replaced in one step. In check mode nothing is written.
  - A ledger that does not exist yet gives an empty report, with a warning.
seealso:
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Write what this night did
  kvmfleet.migration.report:
    dest: /var/lib/reports
    name: night
    since: '2026-11-20T22:00:00Z'
    title: Kernel updates in November
  run_once: true

- name: Keep what happened to one host, for people and for programs
  kvmfleet.migration.report:
    dest: /var/lib/reports
    name: kvm1
    host: kvm1
    formats: [html, json, csv, markdown, junit]
    mode: '0640'
  run_once: true

- name: Write down what one task has moved
  kvmfleet.migration.report:
    dest: /var/lib/reports
    ids: "{{ moved.migrations | map(attribute='id') }}"
  run_once: true
"""

RETURN = r"""
files:
  description: The path of each file that was written, or would be in check mode, by what is in it.
  returned: success
  type: dict
  sample: {html: /var/lib/reports/night.html, csv: /var/lib/reports/night.csv, hosts_csv: /var/lib/reports/night-hosts.csv}
counts:
  description: How many records the report has, of each type and of each outcome; how many were forced; how many bytes went over.
  returned: success
  type: dict
  sample:
    records: 42
    live_migrations: 40
    evacuations: 2
    completed: 36
    evacuated: 2
    under_way: 0
    refused: 2
    cancelled: 1
    failed: 1
    uncertain: 0
    forced: 1
    bytes: 151238656000
downtimes:
  description: Downtimes of the live migrations that completed, in milliseconds; nulls where there were none.
  returned: success
  type: dict
  sample: {count: 36, least_ms: 12, median_ms: 96, p95_ms: 240, p99_ms: 410, most_ms: 410}
safe_to_reboot:
  description: By host, whether it may be rebooted; null where only a drain could tell.
  returned: success
  type: dict
  sample: {kvm1: true, kvm2: null}
summary:
  description: The report in a sentence or two.
  returned: success
  type: str
  sample: "42 moves: 36 completed, 2 evacuated, 2 refused, 1 cancelled, 1 failed."
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._report_spec import report_spec


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=report_spec(), supports_check_mode=True)
    run(module, lambda dummy: in_phase({}, {"_work": None}))


if __name__ == "__main__":
    main()
