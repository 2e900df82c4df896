"""The base tree: a Debian system with Slurm, built once by debootstrap and shared read-only by all nodes."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from clusterlab import recipe
from clusterlab.commands import must
from clusterlab.errors import LabError
from clusterlab.mirror import KEYRING, debian_mirror, proxy_environment
from clusterlab.naming import CACHE
from clusterlab.terminal import say

BUILD_TIMEOUT_S = 580.0
UNUSED_S = 86400.0


def base_tree_path(suite: str) -> Path:
    """Return where the suite's tree is or will be; the name holds the recipe's digest."""
    return CACHE / suite / f"base-{recipe.digest(suite)}"


def ensure_base_tree(suite: str) -> Path:
    """Return the suite's tree, building it when there is none of this recipe.

    The caller holds the cache's lock. Trees of other recipes that no lab has used for a day are deleted.
    """
    tree = base_tree_path(suite)
    if tree.is_dir():
        os.utime(tree)
        _delete_old_trees(tree)
        return tree
    tree.parent.mkdir(parents=True, exist_ok=True)
    for left_over in tree.parent.glob("base-*.partial"):
        shutil.rmtree(left_over)
    partial = tree.with_name(f"{tree.name}.partial")
    say(f"building the {suite} tree with debootstrap (about a minute, once)")
    began = time.monotonic()
    must(
        (
            "debootstrap",
            "--variant=minbase",
            f"--keyring={KEYRING}",
            f"--include={','.join(recipe.PACKAGES)}",
            suite,
            str(partial),
            debian_mirror(),
        ),
        f"building the {suite} tree",
        timeout_s=BUILD_TIMEOUT_S,
        env=proxy_environment(),
    )
    _configure(partial)
    partial.rename(tree)
    os.utime(tree)
    _delete_old_trees(tree)
    say(f"built {tree} in {time.monotonic() - began:.0f} s")
    return tree


def old_trees(current: Path, now: float, mounted: str) -> list[Path]:
    """Return the suite's other trees that nothing mounts and no lab was started on within a day.

    `now` is in seconds since 1970, `mounted` the text of /proc/mounts (an overlay names its layers there). A day's
    grace lets checkouts of different recipes work in turn.
    """
    return [
        tree
        for tree in sorted(current.parent.glob("base-*"))
        if tree not in (current, current.with_name(f"{current.name}.partial"))
        and tree.stat().st_mtime < now - UNUSED_S
        and f"{tree}" not in mounted
    ]


def _delete_old_trees(current: Path) -> None:
    for tree in old_trees(current, time.time(), Path("/proc/mounts").read_text(encoding="utf-8")):
        say(f"deleting {tree}, which is of another recipe and was not used for a day")
        shutil.rmtree(tree)


def user_ids(tree: Path, name: str) -> tuple[int, int]:
    """Return a user's uid and gid as the tree's own passwd file has them."""
    for line in (tree / "etc/passwd").read_text(encoding="utf-8").splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise LabError(f"{tree}/etc/passwd has no user {name}")


def _configure(tree: Path) -> None:
    """Make the recipe's users, units, files and folders in a freshly unpacked tree."""
    for name, uid in recipe.USERS:
        must(
            ("chroot", str(tree), "useradd", "--uid", str(uid), "--user-group", "--shell", "/bin/bash", "-M", name),
            f"adding user {name}",
            timeout_s=30,
        )
    for file in recipe.FILES:
        path = tree / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    for place, owner, mode in recipe.FOLDERS:
        path = tree / place
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, *user_ids(tree, owner))
        path.chmod(mode)
    _choose_units(tree / "etc/systemd/system")
    # A node's identity is its own: machine-id, host keys and the munge key come from the lab's layer.
    for pattern in recipe.REMOVED:
        for path in tree.glob(pattern):
            if path.is_file():
                path.unlink()


def _choose_units(units: Path) -> None:
    """Disable, mask and enable the recipe's units below etc/systemd/system."""
    for folder in units.glob("*.wants"):
        # Not by a pattern with the unit's name: pathlib skips the links, which dangle outside the tree.
        for link in folder.iterdir():
            if link.name in recipe.DISABLED_UNITS:
                link.unlink()
    for unit in recipe.MASKED_UNITS:
        _link(units / unit, "/dev/null")
    for unit in recipe.ENABLED_UNITS:
        _link(units / "multi-user.target.wants" / unit, f"/etc/systemd/system/{unit}")


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    path.symlink_to(target)
