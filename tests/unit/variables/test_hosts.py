# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which host's variable counts: the host of the task, the host it is delegated to, or another one; what cannot be read is an error. In real plays."""

from __future__ import annotations

import typing as t

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from .site import LOOKUP, Site, Task, finding, showing, written

TRANSPORT, URI, LEDGER, ETCD = "kvmfleet_transport", "kvmfleet_libvirt_uri", "kvmfleet_ledger", "kvmfleet_etcd"
PASSWORD = "correct horse"
SECRET = "s3cret-of-the-fleet"

# Vaulted texts need YAML.
INVENTORY = """\
all:
  vars: {{ansible_connection: local, ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"}}
  children:
    kvmfleet_hosts:
      vars: {{kvmfleet_libvirt_uri: "qemu+tcp://{{{{ inventory_hostname }}}}/system", kvmfleet_ledger: {ledger}}}
      hosts:
        kvm1: {{kvmfleet_ledger: {own_ledger}, kvmfleet_transport: tls}}
        kvm2: {{kvmfleet_transport: "{{{{ chosen }}}}", chosen: tcp}}
        kvm3:
          kvmfleet_transport: "{{{{ nobody }}}}"
          kvmfleet_etcd: {{user: me, password: "{secret}{{{{ pin }}}}"}}
          kvmfleet_fencing: {{agent: "{{{{ broken.agent }}}}"}}
          broken: {{}}
        kvm4:
          kvmfleet_transport: !vault |
            {vaulted}
          kvmfleet_fencing: {{agent: fence_x, options: {{ip: !vault "{flat}", passwd: plain}}}}
        kvm5:
          kvmfleet_transport: !vault |
            {spoilt}
"""


def _play(*tasks: list[Task], host: str = "kvm1", **play: t.Any) -> dict[str, t.Any]:
    return {"hosts": host, "tasks": [task for some in tasks for task in some], **play}


TCP = {TRANSPORT: "tcp"}
PLAYS = [
    _play(showing("own", TRANSPORT), showing("other", TRANSPORT, "kvm2"), showing("unknown", TRANSPORT, "elsewhere"), vars=TCP),
    _play(showing("delegated_play", TRANSPORT, delegate_to="kvm2"), showing("delegated_own", TRANSPORT, "kvm1", delegate_to="kvm2"), vars=TCP),
    _play(
        showing("delegated", TRANSPORT, delegate_to="kvm2"),
        showing("delegated_task", TRANSPORT, delegate_to="kvm2", vars=TCP),
        showing("own_uri", URI),
        showing("other_uri", URI, "kvm2"),
        showing("delegated_uri", URI, delegate_to="kvm2"),
        showing("delegated_from_uri", URI, "kvm1", delegate_to="kvm2"),
        showing("loop", TRANSPORT, loop=["ssh", "tcp"], vars={TRANSPORT: "{{ item }}"}),
        showing("delegated_loop", TRANSPORT, loop=["ssh", "tcp"], loop_control={"loop_var": "way"}, vars={TRANSPORT: "{{ way }}"}, delegate_to="kvm2"),
        showing("loop_of_hosts", URI, loop=["kvm1", "kvm2"], delegate_to="{{ item }}"),
        showing("address", TRANSPORT, delegate_to="192.0.2.9", vars={**TCP, "ansible_connection": "local"}),
    ),
    _play(showing("shared", LEDGER, "kvm2"), showing("shared_delegated", LEDGER, delegate_to="kvm2"), finding("agree_delegated", delegate_to="kvm2")),
    _play(finding("to_localhost", delegate_to="localhost"), host="kvm2"),
    _play(showing("only_delegate", LEDGER, delegate_to="kvm2"), host="localhost"),
    _play(
        [
            {"ansible.builtin.set_fact": {"__got": f"{{{{ lookup('{LOOKUP}', 'hosts') }}}}"}, "delegate_to": "kvm2", "register": "__looked"},
            written("only_delegate_lookup", "__looked"),
        ],
        host="localhost",
    ),
    _play(showing("once", LEDGER, run_once=True), host="kvm2,kvm1", order="sorted"),
    _play([{"ansible.builtin.set_fact": {"kvmfleet_migration_address": "192.0.2.4"}}], host="kvm4"),
    _play(showing("fact_of_other", "kvmfleet_migration_address", "kvm4")),
    _play(
        showing("undefined_other", TRANSPORT, "kvm3"),
        showing("undefined_delegated", TRANSPORT, delegate_to="kvm3"),
        showing("vaulted_other", TRANSPORT, "kvm4"),
        showing("spoilt_other", TRANSPORT, "kvm5"),
    ),
    _play(
        showing("undefined_own", TRANSPORT),
        showing("undefined_secret", ETCD),
        showing("undefined_part", "kvmfleet_fencing"),
        [
            {"ansible.builtin.set_fact": {"__got": f"{{{{ lookup('{LOOKUP}', 'hosts') }}}}"}, "register": "__looked"},
            written("undefined_lookup", "__looked"),
        ],
        showing("silent", ETCD, no_log=True),
        host="kvm3",
    ),
    _play(showing("vaulted_own", TRANSPORT), showing("vaulted_part", "kvmfleet_fencing"), host="kvm4"),
    _play(
        [
            {"kvmfleet.migration.ledger_info": {}, "register": "__module"},
            {"ansible.builtin.set_fact": {"__got": f"{{{{ lookup('{LOOKUP}', 'hosts') }}}}"}, "register": "__looked"},
            written("etcd_module", "__module.msg"),
            written("etcd_lookup", "__looked.msg"),
        ],
        vars={LEDGER: "etcd://etcd.invalid:2379/fleet", ETCD: "{{ site_etcd }}", "site_etcd": {"user": "me", "password": "{{ word }}"}, "word": SECRET},
    ),
]


def _vaulted(text: str, password: str) -> str:
    secret = VaultSecret(password.encode())
    return VaultLib([("default", secret)]).encrypt(text.encode(), secret, vault_id="default").decode()


class Run(t.NamedTuple):
    """What the plays wrote down, and on the screen."""

    site: Site
    output: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All plays in one run, as verbose as can be."""
    made = Site(tmp_path_factory.mktemp("site"))
    vaulted, spoilt = _vaulted("tcp", PASSWORD), _vaulted("tcp", "another")
    texts = {"vaulted": vaulted.replace("\n", "\n" + 12 * " "), "spoilt": spoilt.replace("\n", "\n" + 12 * " "), "flat": vaulted.replace("\n", "\\n")}
    made.write("inventory.yml", INVENTORY.format(ledger=made.ledger("fleet"), own_ledger=made.ledger("own"), secret=SECRET, **texts))
    made.write("password", PASSWORD)
    return Run(made, made.run(PLAYS, "-i", "inventory.yml", "-vvv", ANSIBLE_VAULT_PASSWORD_FILE="password"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("own", "tcp"),
        ("other", "tcp"),
        ("unknown", None),
        ("delegated", "tcp"),
        ("delegated_play", "tcp"),
        ("delegated_own", "tcp"),
        ("delegated_task", "tcp"),
        ("own_uri", "qemu+tcp://kvm1/system"),
        ("other_uri", "qemu+tcp://kvm2/system"),
        ("delegated_uri", "qemu+tcp://kvm2/system"),
        ("delegated_from_uri", "qemu+tcp://kvm1/system"),
        ("loop", ["ssh", "tcp"]),
        ("delegated_loop", ["ssh", "tcp"]),
        ("loop_of_hosts", ["qemu+tcp://kvm1/system", "qemu+tcp://kvm2/system"]),
        ("address", "tcp"),
        ("fact_of_other", "192.0.2.4"),
        ("vaulted_own", "tcp"),
        ("vaulted_other", "tcp"),
        ("vaulted_part", {"agent": "fence_x", "options": {"ip": "tcp", "passwd": "plain"}}),
    ],
)
def test_a_variable_has_the_value_of_the_host_concerned(run: Run, name: str, value: t.Any) -> None:
    assert run.site.found(name) == value


def test_fleet_wide_variables_come_from_the_host_of_the_task(run: Run) -> None:
    assert run.site.found("shared") == run.site.found("shared_delegated") == run.site.ledger("own")
    assert run.site.found("agree_delegated") == {"module": "own", "lookup": "own"}
    assert run.site.found("to_localhost") == {"module": "fleet", "lookup": "fleet"}


def test_a_task_that_runs_once_has_the_variables_of_its_first_host(run: Run) -> None:
    assert run.site.found("once") == run.site.ledger("own")


def test_a_ledger_that_only_the_delegated_host_names_is_refused(run: Run) -> None:
    sentence = "kvmfleet_ledger is set for kvm2, to which the task is delegated, and not for localhost, for which the task runs."
    refused = run.site.found("only_delegate")
    assert refused["error_code"] == "invalid_argument"
    assert sentence in refused["msg"]
    assert sentence in run.site.found("only_delegate_lookup")["msg"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("undefined_own", "kvmfleet_transport of kvm3 cannot be read: 'nobody' is undefined."),
        ("undefined_other", "kvmfleet_transport of kvm3 cannot be read: 'nobody' is undefined."),
        ("undefined_delegated", "kvmfleet_transport of kvm3 cannot be read: 'nobody' is undefined."),
        ("undefined_secret", "kvmfleet_etcd of kvm3 cannot be read: 'pin' is undefined."),
        ("undefined_lookup", "kvmfleet_etcd of kvm3 cannot be read: 'pin' is undefined."),
        ("undefined_part", "kvmfleet_fencing of kvm3 cannot be read: "),
        ("spoilt_other", "kvmfleet_transport of kvm5 cannot be read: "),
    ],
)
def test_an_unreadable_variable_is_refused_with_its_name_and_host(run: Run, name: str, sentence: str) -> None:
    found = run.site.found(name)
    assert found["failed"]
    assert sentence in found["msg"]
    assert name.endswith("lookup") or found["error_code"] == "invalid_argument"


def test_no_secret_variable_is_shown(run: Run) -> None:
    assert SECRET not in run.output
    assert "s3cret" not in run.site.found("silent")["msg"]


def test_kvmfleet_etcd_may_be_one_template(run: Run) -> None:
    told = run.site.found("etcd_module")
    assert "password" in told
    assert told.split(".")[0] in run.site.found("etcd_lookup")
