#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: metrics
short_description: Write what the ledger knows as metrics for Prometheus
version_added: 0.1.0
description:
  - Writes a file for the textfile collector of Prometheus' node exporter on the control node, in one step, so that the exporter never reads a part of it.
  - It has moves and evacuations by outcome, how long moves took and how long guests stood still, bytes, what is in flight, hosts by state, and how old
    protection and open records are. The labels are few and fixed; no domain, host or record becomes one.
  - Each ended record is read once. What was counted is kept in C(kvmfleet/metrics) of the user's XDG state directory, so that no counter falls. Without it
    everything is counted again.
  - Run it as often as Prometheus scrapes, e.g. once a minute. It asks the ledger alone, and no host.
options:
  path:
    description: The file on the control node. Its name has to end in C(.prom), and its folder has to exist.
    type: path
    default: /var/lib/prometheus/node-exporter/kvmfleet.prom
  mode:
    description: Permissions of the file, an octal text. The exporter usually runs as another user, who has to read it.
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
    details: When the metrics were written, and how long that took, are written anew each time and are no change.
notes:
  - What each metric says is in C(docs/metrics.md), with alerts, a dashboard, and a timer.
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
  description: How many time series it has.
  returned: success
  type: int
  sample: 74
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: forbidden
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._metrics_spec import metrics_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=metrics_spec(), supports_check_mode=True)
    run(module, lambda dummy: in_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
