# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may happen to the data of an etcd cluster: compaction, a database without room, a backup, and what comes of one that is restored."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import subprocess
import typing as t

from . import etcd
from .errors import LabError, UsageError

# What fills the database lies beside every ledger.
_FILLING = "lab/filling/"
_PIECE_BYTES = 2**20
_NO_SPACE = "NOSPACE"
# At last so little has no room either.
_SMALLEST_BYTES = 2**10


def compact(cluster: etcd.Cluster) -> None:
    """Forget every older revision, and give the room back."""
    revision = cluster.call("kv/range", {"key": _coded(_FILLING)}, token=cluster.root_token())["header"]["revision"]
    try:
        cluster.call("kv/compaction", {"revision": revision, "physical": True}, token=cluster.root_token())
    except LabError as error:
        if "has been compacted" not in str(error):
            raise
    for number in cluster.members:
        cluster.call("maintenance/defragment", {}, number, cluster.root_token())


def fill(cluster: etcd.Cluster) -> None:
    """Write until nothing more fits. Raises L(UsageError) for a cluster that was made without a limit of its own."""
    if not any(word.startswith("--quota-backend-bytes") for word in cluster.settings["more"]):
        raise UsageError("This etcd has room for gigabytes. Make it with: lab etcd up --quota-mib 16")
    size, number = _PIECE_BYTES, 0
    while size >= _SMALLEST_BYTES:
        try:
            cluster.call("kv/put", {"key": _coded(f"{_FILLING}{number}"), "value": base64.b64encode(os.urandom(size)).decode()}, token=cluster.root_token())
        except LabError as error:
            if "space exceeded" not in str(error):
                raise
            size //= 32
        number += 1


def make_room(cluster: etcd.Cluster) -> None:
    """Take out what filled it, and let it be written again."""
    payload = {"key": _coded(_FILLING), "range_end": _coded(_FILLING[:-1] + "0")}
    cluster.call("kv/deleterange", payload, token=cluster.root_token())
    compact(cluster)
    alarms = cluster.call("maintenance/alarm", {"action": "GET", "alarm": _NO_SPACE}, token=cluster.root_token()).get("alarms", [])
    for alarm in alarms:
        cluster.call("maintenance/alarm", {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": _NO_SPACE}, token=cluster.root_token())


def back_up(cluster: etcd.Cluster, file: pathlib.Path) -> None:
    """Write all that is there into a file, as C(etcdctl snapshot save) does."""
    password = cluster.settings.get("root_password")
    _etcdctl(cluster, "snapshot", "save", str(file), *(["--user", f"root:{password}"] if password else []))


def restore(cluster: etcd.Cluster, file: pathlib.Path, as_new: bool) -> None:
    """Put the members back to what is in the file: all that was written later is gone.

    :arg as_new: the cluster gets another id, as one that was made anew out of its backup by other hands.
    """
    for number in cluster.members:
        cluster.signal(number, "kill")
        shutil.rmtree(cluster.data(number))
    if as_new:
        cluster.renew_token()
    for number in cluster.members:
        _etcdctl(None, "snapshot", "restore", str(file), *etcd.as_words(cluster.founding(number)))
        cluster.start(number)
    cluster.wait(cluster.members)


def accept(cluster: etcd.Cluster) -> None:
    """Write the cluster's id where a ledger under the usual prefix keeps that of the cluster it was made in: a person's decision."""
    key = _coded(f"{etcd.PREFIX}/cluster")
    found = cluster.call("kv/range", {"key": key}, token=cluster.root_token())
    if not found.get("kvs"):
        raise UsageError(f"There is no ledger under {etcd.PREFIX}.")
    value = base64.b64encode(str(found["header"]["cluster_id"]).encode()).decode()
    cluster.call("kv/put", {"key": key, "value": value}, token=cluster.root_token())


def _etcdctl(cluster: t.Optional[etcd.Cluster], *words: str) -> None:
    """Run etcdctl, for a running cluster with its addresses and certificates."""
    if not shutil.which("etcdctl"):
        raise LabError("etcdctl is missing. Install it with: apt install -y --no-install-recommends etcd-client")
    environment = {"PATH": os.defpath, "ETCDCTL_API": "3", **(access_environment(cluster) if cluster else {})}
    done = subprocess.run(["etcdctl", *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"etcdctl {words[0]} {words[1]} failed: {done.stdout}{done.stderr}")


def access_environment(cluster: etcd.Cluster) -> t.Dict[str, str]:
    """Return the variables by which C(etcdctl) reaches a member, without those of a user."""
    options = cluster.options
    scheme = "https" if "ca_file" in options else "http"
    files = {"ETCDCTL_CACERT": "ca_file", "ETCDCTL_CERT": "cert_file", "ETCDCTL_KEY": "key_file"}
    # A snapshot is of one member.
    return {"ETCDCTL_ENDPOINTS": f"{scheme}://{cluster.endpoints[0]}", **{name: options[key] for name, key in files.items() if key in options}}


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
