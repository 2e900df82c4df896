"""Layers of a node's root: the base tree, the MPS package, the lab's files, and the node's own on top."""

from __future__ import annotations

import os
import secrets
import stat
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from clusterlab import gpus, slurm_files
from clusterlab.base_tree import user_ids
from clusterlab.commands import must
from clusterlab.naming import CONTROLLER
from clusterlab.recipe import USERS
from clusterlab.suites import suite_called
from mpsfleet.sim.gpu.board import fresh

if TYPE_CHECKING:
    from clusterlab.naming import Lab
    from clusterlab.record import Record
    from mpsfleet.sim.gpu.board import Board

NVIDIA_SMI = Path(__file__).resolve().parent.parent / "node" / "nvidia-smi"


class Layer:
    """A folder that becomes one layer of an overlay.

    In an overlay a folder's owner and mode are those of its topmost layer, so each folder made here copies the base
    tree's.
    """

    def __init__(self, folder: Path, below: Path) -> None:
        """Start an empty layer in `folder` to lie over the tree `below`."""
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        self.folder = folder
        self._below = below

    def put(self, path: str, text: str, *, mode: int = 0o644, owner: str = "root") -> None:
        """Write a file, path relative to the node's root."""
        target = self._place(path)
        target.write_text(text, encoding="utf-8")
        os.chown(target, *user_ids(self._below, owner))
        target.chmod(mode)

    def link(self, path: str, to: str) -> None:
        """Make a symbolic link, path relative to the node's root."""
        self._place(path).symlink_to(to)

    def _place(self, path: str) -> Path:
        made = Path()
        for part in Path(path).parent.parts:
            made /= part
            folder, model = self.folder / made, self._below / made
            if folder.is_dir():
                continue
            folder.mkdir()
            if model.is_dir():
                attributes = model.stat()
                os.chown(folder, attributes.st_uid, attributes.st_gid)
                folder.chmod(stat.S_IMODE(attributes.st_mode))
            else:
                folder.chmod(0o755)
        return self.folder / path


def make_keys(lab: Lab, network: str) -> None:
    """Make the lab's ssh key, the nodes' one host key and known_hosts, under the state folder's ssh/.

    One host key for all nodes lets every node be known by a single line.
    """
    folder = lab.state / "ssh"
    folder.mkdir(mode=0o700)
    for name, comment in (("id", f"mpsfleet {lab.name}"), ("host", "lab")):
        must(
            ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(folder / name)),
            "making an ssh key",
            timeout_s=30,
        )
    host_key = (folder / "host.pub").read_text(encoding="utf-8").rsplit(" ", 1)[0]
    (folder / "known_hosts").write_text(f"{network}.* {host_key}\n", encoding="utf-8")


def make_lab_layer(lab: Lab, record: Record) -> Path:
    """Write the layer that all nodes of this lab share: Slurm's files, keys and /etc/hosts."""
    wanted = record.wanted
    layer = Layer(lab.state / "layer", Path(record.base))
    suite = suite_called(wanted.suite)
    names = (CONTROLLER, *wanted.nodes)
    hosts = "".join(f"{record.address(node)} {node}\n" for node in names)
    layer.put("etc/hosts", f"127.0.0.1 localhost\n{hosts}")
    layer.put("etc/slurm/slurm.conf", slurm_files.slurm_conf(wanted, record.address(CONTROLLER)))
    layer.put("etc/slurm/gres.conf", slurm_files.gres_conf(wanted))
    layer.put("etc/slurm/cgroup.conf", slurm_files.cgroup_conf(suite))
    if wanted.has_private_tmp:
        layer.put("etc/slurm/job_container.conf", slurm_files.private_tmp_conf())
    layer.put("etc/munge/munge.key", secrets.token_hex(512), mode=0o400, owner="munge")
    keys = lab.state / "ssh"
    layer.put("etc/ssh/ssh_host_ed25519_key", (keys / "host").read_text(encoding="utf-8"), mode=0o600)
    layer.put("etc/ssh/ssh_host_ed25519_key.pub", (keys / "host.pub").read_text(encoding="utf-8"))
    layer.put("root/.ssh/authorized_keys", (keys / "id.pub").read_text(encoding="utf-8"), mode=0o600)
    return layer.folder


def make_node_layer(lab: Lab, record: Record, node: str, board: Board, driver_version: str) -> Path:
    """Write a node's own upper layer: name, address, its Slurm daemon; where it has GPUs those and nvidia-smi."""
    layer = Layer(lab.folder(node) / "upper", Path(record.base))
    layer.put("etc/hostname", f"{node}\n")
    layer.put("etc/machine-id", f"{uuid.uuid4().hex}\n", mode=0o444)
    layer.put("etc/lab/network", f"ADDRESS={record.address(node)}\n")
    daemon = "slurmctld" if node == CONTROLLER else "slurmd"
    layer.link(f"etc/systemd/system/multi-user.target.wants/{daemon}.service", f"/lib/systemd/system/{daemon}.service")
    if not board.kinds:
        return layer.folder
    layer.put("usr/bin/nvidia-smi", NVIDIA_SMI.read_text(encoding="utf-8"), mode=0o755)
    unit = f"etc/systemd/system/{gpus.DRIVER_UNIT}"
    layer.put(unit, gpus.DRIVER_UNIT_TEXT)
    layer.link(f"etc/systemd/system/sysinit.target.wants/{gpus.DRIVER_UNIT}", f"/{unit}")
    gpus.write_state(layer.folder, fresh(node, board, driver_version))
    return layer.folder


def make_homes(lab: Lab) -> Path:
    """Make the home folders that all nodes share, as a cluster's home file system."""
    homes = lab.state / "home"
    homes.mkdir(mode=0o755)
    for name, uid in USERS:
        folder = homes / name
        folder.mkdir(mode=0o700)
        os.chown(folder, uid, uid)
    return homes
