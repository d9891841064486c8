#!/usr/bin/env bash
# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The product's main job, shown on three real libvirt hosts on this machine: guests run on kvm1, kvm1 is drained.
# KEEP=1 leaves the hosts up to play with. LEDGER=etcd keeps the ledger on three members of etcd, and kills their leader in the middle of the drain.

set -eu
cd "$(dirname "$0")/../.."

prefix=kvm
lab() { tests/lab/lab --prefix "$prefix" "$@"; }
on_etcd() { [ "${LEDGER:-}" = etcd ]; }
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

if [ -n "${LEDGER:-}" ] && ! on_etcd; then
    echo "LEDGER is '$LEDGER'. The demo knows 'etcd', or nothing for a folder." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "The demo makes network namespaces and starts libvirt in them, so it has to run as root." >&2
    exit 1
fi

killing=
# shellcheck disable=SC2317
finish() {
    status=$?
    if [ -n "$killing" ]; then kill "$killing" 2>/dev/null || true; fi
    if [ "${KEEP:-}" = 1 ]; then
        cat <<TEXT

The hosts are still up. To play with them:

  . .build/demo.env
  tests/lab/lab status
  ansible kvm2 -m kvmfleet.migration.live_migrate -a "name=web1 destination=kvm1"
  ansible-playbook kvmfleet.migration.drain -e target=kvm2
  tests/lab/lab down
TEXT
        if on_etcd; then echo "  tests/lab/lab etcd down"; fi
    else
        say "The lab goes down"
        lab down
        if on_etcd; then lab etcd down; fi
    fi
    exit "$status"
}
trap finish EXIT

say "Three libvirt hosts come up on this machine"
lab up --hosts 3

inventory=$(lab inventory)
if on_etcd; then
    say "The ledger is kept by three members of etcd, with certificates and a password"
    lab etcd down
    lab etcd up --tls --users
    (umask 077 && printf '{"all": {"vars": %s}}\n' "$(lab etcd variables)" >.build/demo-ledger.json)
    inventory=$inventory,$PWD/.build/demo-ledger.json
fi

cat >.build/demo.env <<TEXT
export PATH=$PWD/.build/venv/bin:\$PATH
export ANSIBLE_COLLECTIONS_PATH=$PWD/.build
export ANSIBLE_INVENTORY=$inventory
export ANSIBLE_HOST_KEY_CHECKING=true ANSIBLE_NOCOWS=1 ANSIBLE_DEPRECATION_WARNINGS=false
export XDG_STATE_HOME=$PWD/.build/demo-state
TEXT
# shellcheck disable=SC1091
. .build/demo.env
rm -rf .build/demo-state

say "Five guests on kvm1: three quiet ones, one that writes memory all the time, one that is shut off; one more on kvm2"
lab guest web1 --host kvm1 --mib 128 --dirty-mib 8 --rate 200
lab guest web2 --host kvm1 --mib 128 --dirty-mib 8 --rate 200
lab guest web3 --host kvm1 --mib 192 --dirty-mib 8 --rate 200
lab guest db1 --host kvm1 --mib 512 --dirty-mib 128 --rate 4000
lab guest old1 --host kvm1 --mib 64 --dirty-mib 1 --rate 0 --off
lab guest web4 --host kvm2 --mib 256 --dirty-mib 8 --rate 200
lab status

say "What would a drain of kvm1 do?   ansible-playbook kvmfleet.migration.drain -e target=kvm1 --check --diff"
ansible-playbook kvmfleet.migration.drain -e target=kvm1 --check --diff

cat >.build/demo-drain.yml <<'TEXT'
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

say "The drain   ansible-playbook kvmfleet.migration.drain -e target=kvm1"
if on_etcd; then
    kill_leader &
    killing=$!
fi
ansible-playbook kvmfleet.migration.drain -e target=kvm1 -e @.build/demo-drain.yml
if on_etcd; then
    wait "$killing"
    killing=
fi

say "The same again: nothing is left to do"
ansible-playbook kvmfleet.migration.drain -e target=kvm1

say "Where the guests are now"
lab status

say "What the ledger says"
cat >.build/demo-query.yml <<'TEXT'
summary: "[*].join('  ', [updated_at, domain.name, source.host, destination.host, status])"
TEXT
ansible localhost -m ansible.builtin.debug -e @.build/demo-query.yml -a "msg={{ lookup('kvmfleet.migration.ledger', 'migrations', query=summary) }}"
