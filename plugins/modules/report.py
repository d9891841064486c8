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
  - Reads records from the ledger and writes a report of a maintenance window as one HTML page that can be opened from disk, and as JSON, CSV, Markdown and
    JUnit XML.
  - The page has a timeline of all moves by host, the convergence of each move, the distribution of downtimes, moves that were refused with their reasons,
    forced moves, the evidence of evacuations, and whether each host is safe to reboot. Its tables can be sorted and searched. It loads nothing from the
    network.
  - A report covers the records that match all of O(since), O(until), O(host) and O(domain), or those of O(ids). Without any of them, it covers the whole
    ledger.
  - Everything runs on the control node. No host is asked, and the ledger is only read.
  - A report never contains the definition of a domain, and therefore no graphics password. It contains names of domains and hosts, and the output of fence
    agents.
options:
  dest:
    description:
      - Folder on the control node for the files. It is created if it does not exist, with mode C(0700).
      - A relative path is below the folder in which C(ansible-playbook) was started.
    type: str
    required: true
  name:
    description: Name of the files, without their extensions.
    type: str
    default: report
  formats:
    description:
      - Formats to write. V(html) is C(NAME.html), V(json) C(NAME.json), V(markdown) C(NAME.md) and V(junit) C(NAME.xml).
      - V(csv) is C(NAME.csv) with the moves and C(NAME-hosts.csv) with the hosts. Text that a spreadsheet would treat as a formula gets a leading apostrophe.
    type: list
    elements: str
    choices: [html, json, csv, markdown, junit]
    default: [html]
  mode:
    description: Permissions of the files as octal text.
    type: raw
    default: '0600'
  title:
    description: Heading of the report. The default is C(Migration report).
    type: str
  since:
    description:
      - Only records last written at this time or later.
      - RFC 3339, for example V(2026-11-21T03:00:00Z). A date without a time means midnight UTC.
    type: str
  until:
    description: Only records last written before this time, in the form of O(since).
    type: str
  host:
    description: Only records with this host as source or destination. An inventory name, a host ID (C(host_id)) or libvirt's host UUID.
    type: str
  domain:
    description: Only records of this domain, by name or UUID.
    type: str
  ids:
    description:
      - Only the records with these IDs, for example those that the tasks of a run have returned.
      - Mutually exclusive with O(since), O(until), O(host) and O(domain).
    type: list
    elements: str
  drain_host_result:
    description:
      - The result of the role P(kvmfleet.migration.drain_host#role) with that name. The role has asked the hosts themselves whether they are safe to reboot.
      - Without it, only the ledger is read. The ledger can show that a host must not be rebooted, but never that it is safe to reboot.
      - A host is no longer reported as safe to reboot if it has an unsettled record, if a guest has come to it since the plan of the drain, if it is in
        service again, or if its document in the ledger cannot be read. As long as it is not known of which host such a document is, this counts for every
        host without an entry.
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
      - Every report contains the time at which it was created.
notes:
  - In a play with several hosts, set C(run_once). Otherwise every host writes the same files.
  - Each file is replaced in one step. In check mode nothing is written.
  - A ledger that does not exist yet results in an empty report, with a warning.
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
  description: The path of each file that was written, or would be in check mode, by its content.
  returned: success
  type: dict
  sample: {html: /var/lib/reports/night.html, csv: /var/lib/reports/night.csv, hosts_csv: /var/lib/reports/night-hosts.csv}
counts:
  description: Number of records in the report, by type and by outcome; number of forced records; number of transferred bytes.
  returned: success
  type: dict
  sample:
    records: 42
    live_migrations: 39
    cold_migrations: 1
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
attention:
  description:
    - What needs a person now according to the ledger, each with what to do. Moves and evacuations whose result is not proved or that failed are in RV(counts)
      and in the report.
    - These are the domains that run on no host, because their host was evacuated and they were not started elsewhere; the maintenance runs of the report that
      are paused, were left by their process, or stopped on a host that failed and was not maintained, put into service or discarded since; the last drill,
      if it was not passed; the last fleet check, if the fleet is not as it should be; and the hosts whose document in the ledger cannot be read.
  returned: success
  type: list
  elements: str
  sample:
    - >-
      kvm1 is fenced, and web1 runs on no host according to the ledger. web1 was not started elsewhere: kvm2: It is 512 MiB of memory short. To start what can
      run elsewhere: kvmfleet.migration.evacuate -e source=kvm1. The rest waits for the return of the host: kvmfleet.migration.recover -e target=kvm1
downtimes:
  description: Downtimes of the completed live migrations, in milliseconds; null if there were none.
  returned: success
  type: dict
  sample: {count: 35, least_ms: 12, median_ms: 96, p95_ms: 240, p99_ms: 410, most_ms: 410}
safe_to_reboot:
  description: For each host, whether it is safe to reboot; null if only a drain could determine this.
  returned: success
  type: dict
  sample: {kvm1: true, kvm2: null}
summary:
  description: Summary of the report in one or two sentences.
  returned: success
  type: str
  sample: "42 moves: 36 completed, 2 evacuated, 2 refused, 1 cancelled, 1 failed."
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import report_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=report_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None}))


if __name__ == "__main__":
    main()
