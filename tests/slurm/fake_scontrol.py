"""A stand-in for scontrol and slurmctld, run as a program of its own: the door's other side, and nothing more.

Written from what Slurm 22.05.8 does (texts, exit statuses, an update that overwrites a reason without a word). It keeps
its cluster in cluster.json beside itself, and writes down each call with its environment in calls.jsonl. `mode` in the
cluster makes it fail the ways the real one was seen to fail.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

TYPE_CHECKING = False  # it is started some hundred times: what pathlib and typing cost is not theirs to see
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.realpath(__file__))
RECORD = """NodeName={name} Arch=x86_64 CoresPerSocket=1\x20
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.10
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres={gres}
   GresUsed={gres_used}
   NodeAddr={hostname} NodeHostName={hostname} Version=22.05.8
   OS=Linux 6.1.0 #1 SMP\x20
   RealMemory=256000 AllocMem=0 FreeMem=N/A Sockets=64 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu\x20
   BootTime=2026-12-01T14:40:23 SlurmdStartTime=2026-12-01T15:09:41
   LastBusyTime=2026-12-01T15:09:41
   CfgTRES=cpu=64,mem=250G,billing=64
   AllocTRES={tres_used}
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
"""


def record_of(name: str, node: dict[str, Any]) -> str:
    text = RECORD.format(
        name=name,
        gres=node.get("gres", "gpu:a100:4,mps:a100:400"),
        gres_used=node.get("gres_used", "gpu:a100:0(IDX:N/A),mps:a100:0(IDX:N/A)"),
        tres_used=node.get("tres_used", ""),
        hostname=node.get("hostname", name),
        state=node["state"],
    )
    text = text if "--details" in sys.argv else re.sub(" *GresUsed=.*\n", "", text)
    if node.get("reason"):
        text += f"   Reason={node['reason']} [{node.get('user', 'root')}@2026-12-01T15:10:00]\n"
    return text + "\n"


def show(words: list[str], cluster: dict[str, Any]) -> int:
    if words[0] == "config":
        sys.stdout.write(
            f"Configuration data as of 2026-12-01T15:10:00\nClusterName             = {cluster['name']}" + "\n"
            f"StateSaveLocation       = {cluster.get('state') or HERE}" + "\n"
        )
        return 0
    if words[0] == "nodes":
        sys.stdout.write("".join(record_of(name, node) for name, node in cluster["nodes"].items()))
        return 0
    name = words[1]
    if name not in cluster["nodes"]:
        sys.stdout.write(f"Node {name} not found" + "\n")
        return 1
    sys.stdout.write(record_of(name, cluster["nodes"][name]))
    return 0


def update(words: list[str], cluster: dict[str, Any]) -> int:
    settings = dict(word.split("=", 1) for word in words)
    if settings["NodeName"] not in cluster["nodes"]:
        sys.stderr.write("slurm_update error: Invalid node name specified" + "\n")
        return 1
    if cluster["mode"] == "no permission":
        sys.stderr.write("slurm_update error: Invalid user id" + "\n")
        return 1
    if cluster["mode"] == "without effect":
        return 0
    node = cluster["nodes"][settings["NodeName"]]
    flags = node["state"].split("+")
    if settings["State"] == "DRAIN":
        node.update(state="+".join([*flags, *(["DRAIN"] if "DRAIN" not in flags else [])]), user="root")
        node["reason"] = settings["Reason"] if cluster["mode"] != "somebody is faster" else "somebody else's"
    else:
        left = [each for each in flags if each != "DRAIN"]
        node.update(state="+".join([*left, *(["NOT_RESPONDING"] if cluster["mode"] == "registers later" else [])]))
        node["reason"] = settings["Reason"] if cluster["mode"] == "keeps reasons" else None
    with open(f"{HERE}/cluster.json", "w", encoding="utf-8") as file:
        json.dump(cluster, file)
    return 0


def as_json(words: list[str], cluster: dict[str, Any]) -> int:
    """Answer as 24.11.5 does: a node that is not there is an empty answer and no failure."""
    if words[0] == "node" and words[1] not in cluster["nodes"]:
        cluster = {**cluster, "nodes": {}}
    found = [
        {
            "name": name,
            "hostname": node.get("hostname", name),
            "gres": node.get("gres", "gpu:a100:4,mps:a100:400"),
            "gres_used": node.get("gres_used", ""),
            "tres_used": node.get("tres_used", ""),
            "state": node["state"].split("+"),
            "reason": node.get("reason") or "",
            "reason_set_by_user": node.get("user", "root"),
            "reason_changed_at": {"set": True, "infinite": False, "number": 1796137800},
        }
        for name, node in cluster["nodes"].items()
        if words[0] == "nodes" or name == words[1]
    ]
    sys.stdout.write(cluster.get("noise", "") + json.dumps({"nodes": found, "errors": cluster.get("errors", [])}))
    return 0


def stored() -> dict[str, Any]:
    with open(f"{HERE}/cluster.json", encoding="utf-8") as file:
        return dict(json.load(file))


def main() -> int:
    if sys.argv[1:] == ["--version"]:
        cluster = stored()
        sys.stdout.write(cluster.get("version", "slurm-wlm 22.05.8") + "\n")
        return 0
    with open(f"{HERE}/calls.jsonl", "a", encoding="utf-8") as calls:
        calls.write(json.dumps({"words": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd()}) + "\n")
    cluster = stored()
    mode = cluster["mode"]
    if mode == "silent" or (mode == "silent at updates" and sys.argv[1] == "update"):
        sys.stderr.write("half a sentence")
        sys.stderr.flush()
        time.sleep(60)
    if mode == "refused":
        sys.stderr.write("slurm_load_node error: Unable to contact slurm controller (connect failure)" + "\n")
        return 1
    if mode == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if mode == "binary":
        sys.stdout.buffer.write(bytes(range(256)) * 8)
        return 0
    if sys.argv[1].startswith("--json"):
        if cluster.get("has_no_json"):
            sys.stderr.write("scontrol: error: load_plugins: unable to find plugin: serializer/json" + "\n")
            return 1
        return as_json(sys.argv[3:], cluster)
    verb, *words = [word for word in sys.argv[1:] if word != "--details"]
    return {"show": show, "update": update}[verb](words, cluster)


if __name__ == "__main__":
    sys.exit(main())
