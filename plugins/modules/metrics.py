#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: metrics
short_description: Export figures of the ledger as metrics for Prometheus
version_added: 0.1.0
description:
  - Writes a file for the textfile collector of Prometheus' node exporter on the control node. The file is replaced in one step, so that the exporter never
    reads a part of it.
  - The metrics are moves and evacuations by outcome, durations of moves and downtimes of guests, bytes, moves in flight, hosts by state, and timestamps of
    protection and of open records. The labels are few and fixed; no domain, host or record is a label.
  - Each closed record is read once. The counts are kept in C(kvmfleet/metrics) of the user's XDG state directory, so that no counter falls. Without this
    file, all records are counted again.
  - Run it as often as Prometheus scrapes, for example once a minute. It reads only the ledger, and asks no host.
options:
  path:
    description: The file on the control node. Its name must end in C(.prom), and its folder must exist.
    type: path
    default: /var/lib/prometheus/node-exporter/kvmfleet.prom
  mode:
    description: Permissions of the file as octal text. The exporter usually runs as another user, who must be able to read it.
    type: raw
    default: '0644'
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
attributes:
  idempotent:
    support: full
    details: The time at which the metrics were written, and how long that took, are written each time and are not a change.
notes:
  - C(docs/metrics.md) describes each metric, with alerts, a dashboard, and a timer.
seealso:
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Let the node exporter of the control node show the fleet
  kvmfleet.migration.metrics:

- name: Write them elsewhere, for one group
  kvmfleet.migration.metrics:
    path: /srv/textfiles/kvmfleet.prom
    mode: '0640'
"""

RETURN = r"""
path:
  description: The file that was written, or would be in check mode.
  returned: success
  type: str
  sample: /var/lib/prometheus/node-exporter/kvmfleet.prom
series:
  description: Number of time series in the file.
  returned: success
  type: int
  sample: 74
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: forbidden
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import metrics_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=metrics_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
