#!/usr/bin/env bash
# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The product's main jobs, shown on three real libvirt hosts on this machine: the fleet is protected and checked, a night of maintenance drains, reboots and
# recovers kvm1 and then kvm2, and moves their guests home; kvm2 dies, is evacuated, and taken back. The files of that night are in .build/demo; an end that is not the one of docs/demo/outcome.txt is a failure.
# HA=1 shows a death without a person: the hosts renew leases in etcd, and a real ansible-rulebook detects the death of kvm2 and evacuates it. It installs Java if that is missing.
# KEEP=1 leaves the hosts up to play with. LEDGER=etcd keeps the ledger on three members of etcd, and kills their leader in the middle of the drain.

set -eu
cd "$(dirname "$0")/../.."

# The names are those of the documentation, and of the hosts that KEEP=1 leaves.
unset KVMFLEET_LAB_PREFIX KVMFLEET_LAB_STATE
files=.build/demo
# What it needs in Python.
demo=ansible_collections.kvmfleet.migration.tests.demo
lab() { tests/lab/lab "$@"; }
without_person() { [ "${HA:-}" = 1 ]; }
on_etcd() { [ "${LEDGER:-}" = etcd ]; }
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
# Shows a command as one types it, and runs it; OPTIONS is what is typed less often.
play() {
    say "$1   ansible-playbook kvmfleet.migration.${*:2}"
    ansible-playbook "kvmfleet.migration.$2" "${@:3}" ${OPTIONS:+-e "@$OPTIONS"}
}

if without_person; then LEDGER=etcd; fi
if [ -n "${LEDGER:-}" ] && ! on_etcd; then
    echo "LEDGER is '$LEDGER'. The demo knows 'etcd', or nothing for a folder." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "The demo makes network namespaces and starts libvirt in them, so it has to run as root." >&2
    exit 1
fi

if without_person; then
    sh tests/tools/setup.sh eda
    if ! PYTHONPATH=tests/tools .build/venv/bin/python -m suites.eda; then
        echo "There is no ansible-rulebook, without which nobody detects the death." >&2
        exit 1
    fi
fi

killing=
receiver=
rulebook=
# shellcheck disable=SC2317
finish() {
    status=$?
    if [ -n "$killing" ]; then kill "$killing" 2>/dev/null || true; fi
    if [ -n "$receiver" ]; then kill "$receiver" 2>/dev/null || true; fi
    if [ -n "$rulebook" ]; then kill "$rulebook" 2>/dev/null || true; fi
    if [ "${KEEP:-}" = 1 ]; then
        cat <<TEXT

The hosts are still up. To play with them:

  . .build/demo.env
  tests/lab/lab status
  ansible kvm1 -m kvmfleet.migration.live_migrate -a "name=web1 destination=kvm2"
  ansible-playbook kvmfleet.migration.drain -e target=kvm3
  tests/lab/lab down
TEXT
        if on_etcd; then echo "  tests/lab/lab etcd down"; fi
    else
        say "The lab goes down"
        lab down
        if on_etcd; then lab etcd down; fi
    fi
    if [ "$status" -eq 0 ]; then tell_files; fi
    exit "$status"
}

# shellcheck disable=SC2317
tell_files() {
    say "The files of this night, in $PWD/$files"
    cat <<TEXT
  report.html                  to open in a browser: every move and evacuation (docs/demo/README.md says more)
  report.json .csv .md .xml    the same for programs, a spreadsheet, a chat, a CI system; report-hosts.csv: by host
  kvmfleet.prom                the metrics, as Prometheus' node exporter reads them
  notices.jsonl                the $(wc -l <"$files/notices.jsonl") events that a webhook was sent meanwhile
TEXT
}

# What the inventory says besides the hosts; without the receiver's URL nobody is told.
fleet_variables() {
    fencing='"kvmfleet_fencing": {"agent": "'$PWD'/tests/lab/fence_lab", "options": {"plug": "{{ inventory_hostname }}"}}'
    printf '{"all": {"vars": {%s%s}}}\n' "$fencing" "${1:+, \"kvmfleet_notices\": {\"url\": \"$1\"\}}" >.build/demo-fleet.json
}

trap finish EXIT
rm -rf "$files" .build/demo-state
mkdir -p "$files"

say "Three libvirt hosts come up on this machine"
lab up --hosts 3

inventory=$(lab inventory),$PWD/.build/demo-fleet.json
if on_etcd; then
    say "The ledger is kept by three members of etcd, with certificates and a password"
    lab etcd down
    # With leases, the hosts reach it too.
    if without_person; then lab etcd up --tls --users --network; else lab etcd up --tls --users; fi
    (umask 077 && printf '{"all": {"vars": %s}}\n' "$(lab etcd variables)" >.build/demo-ledger.json)
    inventory=$inventory,$PWD/.build/demo-ledger.json
fi

cat >.build/demo.env <<TEXT
unset KVMFLEET_LAB_PREFIX KVMFLEET_LAB_STATE
export PATH=$PWD/.build/venv/bin:\$PATH
export ANSIBLE_COLLECTIONS_PATH=$PWD/.build
export ANSIBLE_INVENTORY=$inventory
export ANSIBLE_HOST_KEY_CHECKING=true ANSIBLE_NOCOWS=1
export XDG_STATE_HOME=$PWD/.build/demo-state
TEXT
# shellcheck disable=SC1091
. .build/demo.env
export ANSIBLE_LOG_PATH=$PWD/.build/demo.log
rm -f "$ANSIBLE_LOG_PATH"

coproc listen { PYTHONPATH=.build exec .build/venv/bin/python -m "$demo.receiver" "$files/notices.jsonl"; }
# shellcheck disable=SC2154
receiver=$listen_PID
read -r url <&"${listen[0]}"
fleet_variables "$url"

say "Four guests on kvm1: two quiet ones, one that writes memory all the time, one that is shut off; two more on kvm2. Their disks are shared."
lab guest web1 --host kvm1 --mib 128 --dirty-mib 8 --rate 200 --storage bindfs
lab guest web2 --host kvm1 --mib 128 --dirty-mib 8 --rate 200 --storage bindfs
lab guest web3 --host kvm2 --mib 192 --dirty-mib 8 --rate 200 --storage bindfs
lab guest db1 --host kvm1 --mib 512 --dirty-mib 128 --rate 4000 --storage bindfs
lab guest old1 --host kvm1 --mib 64 --dirty-mib 1 --rate 0 --storage bindfs --off
lab guest web4 --host kvm2 --mib 256 --dirty-mib 8 --rate 200 --storage bindfs
lab status

play "While all is well, the fleet is protected" protect -e target=kvmfleet_hosts

if without_person; then
    say "Each host renews a lease in etcd: its user may write this one key, and read nothing"
    (
        umask 077
        lab etcd host-users >.build/demo-users.json
        PYTHONPATH=.build .build/venv/bin/python -m "$demo.death" leases .build/demo-ledger.json .build/demo-users.json >.build/demo-leases.json
    )
    inventory=$inventory,$PWD/.build/demo-leases.json
    sed -i "s|^export ANSIBLE_INVENTORY=.*|export ANSIBLE_INVENTORY=$inventory|" .build/demo.env
    export ANSIBLE_INVENTORY=$inventory
    # The lab runs the service, as no systemd runs its hosts. The warning that says so is expected, and stays out of the log.
    env -u ANSIBLE_LOG_PATH ansible kvmfleet_hosts -m kvmfleet.migration.host_lease
fi

play "Which hosts could the fleet lose now?" fleet_check

# The power of a host of the lab is cut and switched on again, as its BMC would do it.
cat >.build/demo-patch.yml <<'TEXT'
- name: Upgrade the host
  ansible.builtin.debug:
    msg: "On a real host: playbooks/tasks/upgrade_hypervisor.yml"
TEXT
cat >.build/demo-reboot.yml <<TEXT
- name: Switch the host off and on
  ansible.builtin.command:
    argv: [$PWD/tests/lab/lab, "{{ item }}", "{{ inventory_hostname }}"]
  changed_when: true
  delegate_to: localhost
  loop: [poweroff, poweron]
TEXT
cat >.build/demo-night.yml <<TEXT
rolling_maintenance_tasks: $PWD/.build/demo-patch.yml
rolling_maintenance_reboot: true
rolling_maintenance_reboot_tasks: $PWD/.build/demo-reboot.yml
rolling_maintenance_verify_tasks: $PWD/playbooks/tasks/verify_hypervisor.yml
verify_hypervisor_qemu: "7.0"
verify_hypervisor_libvirt: "9.0"
verify_hypervisor_kernel: "4.0"
rolling_maintenance_home: true
# As on a busy network: 48 MiB/s for each move, so that there is something to watch.
drain_host_options: {bandwidth_mib: 48, timeout_seconds: 120}
TEXT
# Once memory of db1 moves.
kill_leader() {
    for _ in $(seq 240); do
        if lab virsh kvm1 domjobinfo db1 2>/dev/null | grep -q "Memory processed"; then
            say "In the middle of it the leader of etcd is killed"
            lab etcd kill leader
            return
        fi
        sleep 0.5
    done
    echo "The drain has ended before the leader of etcd could be killed." >&2
    return 1
}

if on_etcd; then
    kill_leader &
    killing=$!
fi
OPTIONS=.build/demo-night.yml play "A night of two hosts: each is drained, upgraded, rebooted and verified, and gets its guests back" rolling_maintenance -e target=kvm1,kvm2
if on_etcd; then
    wait "$killing"
    killing=
fi
lab status

# A rulebook takes one folder as its inventory.
begin_rulebook() {
    rm -rf .build/demo-inventory
    (umask 077 && mkdir .build/demo-inventory && cp "$(lab inventory)" .build/demo-inventory/hosts.yml && cp .build/demo-{fleet,ledger,leases}.json .build/demo-inventory/)
    (umask 077 && PYTHONPATH=.build .build/venv/bin/python -m "$demo.death" events .build/demo-inventory/hosts.yml .build/demo-ledger.json >.build/demo-events.json)
    PATH=$PWD/.build/venv-eda/bin:$PATH ansible-rulebook --rulebook kvmfleet.migration.host_gone --inventory .build/demo-inventory --vars .build/demo-events.json \
        >.build/demo-rulebook.log 2>&1 &
    rulebook=$!
    if ! PYTHONPATH=.build .build/venv/bin/python -m "$demo.death" listen .build/demo-ledger.json; then
        tail -n 20 .build/demo-rulebook.log >&2
        return 1
    fi
}

if without_person; then
    say "A rulebook listens to the leases, to libvirt, to SSH, and is armed   ansible-rulebook --rulebook kvmfleet.migration.host_gone ..."
    begin_rulebook
    say "kvm2 dies, and nobody does anything"
    lab poweroff kvm2
    if ! PYTHONPATH=.build .build/venv/bin/python -m "$demo.death" wait .build/demo-ledger.json kvm2 2; then
        tail -n 40 .build/demo-rulebook.log >&2
        exit 1
    fi
    # It may still write down what it has done.
    for _ in $(seq 60); do
        if grep -q "PLAY RECAP" .build/demo-rulebook.log; then break; fi
        sleep 1
    done
    play "What a person sees in the morning" status
    kill "$rulebook"
    wait "$rulebook" || true
    rulebook=
else
    say "kvm2 dies"
    lab poweroff kvm2

    play "Its guests are started elsewhere, on the evidence of its fence agent" evacuate -e source=kvm2
fi

say "kvm2 is back"
lab poweron kvm2

play "What runs elsewhere now is removed from it, and it takes guests again" recover -e target=kvm2

say "Where the guests are now"
lab status

say "What the ledger says"
cat >.build/demo-query.yml <<'TEXT'
summary: "[*].join('  ', [updated_at, domain.name, source.host, destination.host, status])"
TEXT
ansible localhost -m ansible.builtin.debug -e @.build/demo-query.yml -a "msg={{ lookup('kvmfleet.migration.ledger', 'migrations', query=summary) }}"

cat >.build/demo-report.yml <<'TEXT'
report_title: The night of the demo
report_formats: [html, json, csv, markdown, junit]
report_mode: "0644"
TEXT
OPTIONS=.build/demo-report.yml play "What this night did" report -e "report_dest=$files"
play "The same as metrics" metrics -e "metrics_path=$PWD/$files/kvmfleet.prom"

kill "$receiver"
wait "$receiver"
receiver=
fleet_variables

say "Is this the end that was to be?"
lab status --json >.build/demo-status.json
PYTHONPATH=.build .build/venv/bin/python -m "$demo.outcome" "$files/report.json" .build/demo-status.json >"$files/outcome.txt"
if ! diff -u docs/demo/outcome.txt "$files/outcome.txt"; then
    echo "It is not: above is what differs from docs/demo/outcome.txt." >&2
    exit 1
fi
cat "$files/outcome.txt"
if ! PYTHONPATH=tests/tools .build/venv/bin/python -m suites.warnings_gate "$ANSIBLE_LOG_PATH"; then
    echo "The end is right, but Ansible warned of what nobody expects: see above." >&2
    exit 1
fi
