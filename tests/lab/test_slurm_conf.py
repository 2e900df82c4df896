"""slurm.conf and gres.conf on a real Slurm: the printed recipe drains nothing, and what the lint calls refused is."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from fleet import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Cluster
    from fleet import Fleet

PROGRAM = "/root/mpsfleet.pyz"
CONF, GRES = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf"
WAIT_S = 30.0


def write(cluster: Cluster, node: str, path: str, text: str) -> None:
    cluster.must(node, "sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}", stdin=text)


def lint(cluster: Cluster, node: str, *words: str) -> dict[str, Any]:
    """Lint with the program as one file, on the node."""
    done = cluster.exec(node, ("python3", "-IS", PROGRAM, "slurm", "lint", "--json", *words))
    assert done.stderr == "", done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def codes(answer: dict[str, Any], severity: str = "critical") -> set[str]:
    return {each["code"] for each in answer["findings"] if each["severity"] == severity}


@pytest.fixture(scope="module")
def program(bare_fleet: Fleet) -> Cluster:
    """Provide the cluster with the program as one file on the controller and on n1."""
    content = (REPOSITORY / "build" / "mpsfleet.pyz").read_bytes()
    for node in (bare_fleet.cluster.controller, "n1"):
        (bare_fleet.cluster.lab.root(node) / PROGRAM.lstrip("/")).write_bytes(content)
    return bare_fleet.cluster


class Site(NamedTuple):
    """A cluster that does not know MPS yet: the files as its owner has them."""

    cluster: Cluster
    conf: str
    gres: str

    def states(self) -> dict[str, str]:
        return {node: self.cluster.node_state(node) for node in self.cluster.nodes}

    def give(self, node: str, conf: str, gres: str | None) -> None:
        write(self.cluster, node, CONF, conf)
        if gres is not None:
            write(self.cluster, node, GRES, gres)

    def restart_slurmd(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.must(node, "systemctl", "restart", "slurmd")

    def restart_slurmctld(self) -> None:
        self.cluster.must(self.cluster.controller, "systemctl", "restart", "slurmctld")

    def registered(self) -> dict[str, str]:
        """Wait until every node has registered with this slurmctld, and give their states."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            done = self.cluster.exec(self.cluster.controller, ("scontrol", "show", "nodes"))
            if done.returncode == 0 and done.stdout.count("SlurmdStartTime=2") == len(self.cluster.nodes):
                states = self.states()
                if not any(word in state for state in states.values() for word in ("UNKNOWN", "*", "NOT_RESPONDING")):
                    return states
            time.sleep(0.3)
        return self.states()

    def go_back(self, conf: str, gres: str) -> None:
        """Take MPS away or bring it back while nobody runs a job, and leave every node in service."""
        self.give(self.cluster.controller, conf, None)
        for node in self.cluster.nodes:
            self.give(node, conf, gres)
        self.restart_slurmd()
        self.restart_slurmctld()
        for node, state in self.registered().items():
            if "DRAIN" in state:
                self.cluster.must("ctl", "scontrol", "update", f"NodeName={node}", "State=RESUME")
        assert not any("DRAIN" in state for state in self.registered().values())


@pytest.fixture
def site(program: Cluster) -> Iterator[Site]:
    conf = program.must("n1", "cat", CONF)
    gres = program.must("n1", "cat", GRES)
    bare = "\n".join(_without_shares(line) for line in conf.splitlines())
    bare += "\nProlog=/bin/true\nEpilog=/bin/true\nTaskProlog=/bin/true\n"
    gpus = "\n".join(line for line in gres.splitlines() if "Name=gpu" in line) + "\n"
    made = Site(program, bare, gpus)
    made.go_back(bare, gpus)
    yield made
    for user in ("alice", "bob"):
        program.must("ctl", "scancel", f"--user={user}")
    made.go_back(conf, gres)


def _without_shares(line: str) -> str:
    words = line.replace("GresTypes=gpu,mps", "GresTypes=gpu").split(" ")
    kept = [
        "Gres=" + ",".join(each for each in word[5:].split(",") if not each.startswith("mps"))
        if word.startswith("Gres=")
        else word
        for word in words
    ]
    return " ".join(kept)


def recipe(site: Site) -> tuple[str, str]:
    """Give slurm.conf with the lines that the program prints, and gres.conf with mps on one GPU of each node."""
    answer = lint(site.cluster, "n1", "--want", "mps", "--node", "n1")
    conf = site.conf
    for change in answer["changes"]:
        before = f"{change['before']}\n" if change["before"] else ""
        assert before in conf
        conf = conf.replace(before, "", 1) + f"{change['after']}\n"
    return conf, site.gres + "".join(f"Name=mps Count=100 File=/dev/nvidia{gpu}\n" for gpu in range(4))


def test_adding_mps_by_the_printed_recipe_drains_nothing(site: Site, bare_fleet: Fleet) -> None:
    cluster = site.cluster
    job = cluster.submit("sleep 300", "--gres=gpu:1", "--nodelist=n1")
    bare_fleet.wait_for("a job")
    conf, gres = recipe(site)
    seen = [site.states()]

    for node in cluster.nodes:
        site.give(node, conf, gres)
    assert codes(lint(cluster, "n1", "--node", "n1")) == set()
    site.restart_slurmd()
    seen.append(site.registered())
    site.give(cluster.controller, conf, None)
    site.restart_slurmctld()
    seen.append(site.registered())

    assert not any("DRAIN" in state or "INVAL" in state for states in seen for state in states.values()), seen
    shown = cluster.must("ctl", "scontrol", "show", "job", str(job))
    assert ("JobState=RUNNING" in shown, "Restarts=0" in shown) == (True, True), shown
    assert cluster.must("ctl", "srun", "--gres=mps:50", "--nodelist=n2", "hostname", user="alice").strip() == "n2"


def test_the_controller_first_drains_the_nodes(site: Site) -> None:
    if site.cluster.must("ctl", "scontrol", "--version").split()[1].startswith("20.11."):
        pytest.skip("Slurm 20.11 leaves the nodes in service")
    conf, _ = recipe(site)
    site.give(site.cluster.controller, conf, None)
    site.restart_slurmctld()
    end = time.monotonic() + WAIT_S
    while "DRAIN" not in site.cluster.node_state("n1") and time.monotonic() < end:
        time.sleep(0.3)
    assert "INVAL" in site.cluster.node_state("n1")


def test_the_role_writes_its_file_once_and_shows_the_lines(site: Site, bare_fleet: Fleet) -> None:
    variables: dict[str, Any] = {"mps_slurm_gpu_files": ["/dev/nvidia0"], "mps_slurm_share": "mps"}
    path = "/etc/slurm/gres-mpsfleet.conf"
    planned = bare_fleet.play("tell_slurm", "--check", "--diff", **variables)
    assert planned.rc == 0, planned.out
    assert planned.recap("n1")["changed"] == 1
    assert site.cluster.exec("n1", ("test", "-e", path)).returncode == 1

    done = bare_fleet.play("tell_slurm", **variables)
    again = bare_fleet.play("tell_slurm", **variables)
    written = site.cluster.must("n2", "cat", path).splitlines()
    unchanged = site.cluster.must("n1", "cat", CONF), site.cluster.must("n1", "cat", GRES)
    site.cluster.must("n1", "sh", "-c", f"echo 'Name=gpu Cuont=1' >> {GRES}")
    broken = bare_fleet.play("tell_slurm", **variables)
    for node in site.cluster.nodes:
        site.cluster.must(node, "rm", path)

    assert (done.rc, done.recap("n1")["changed"], again.recap("n1")["changed"]) == (0, 1, 0), done.out
    assert written[1:] == ["NodeName=n2 Name=mps Count=100 File=/dev/nvidia0"]
    assert "GresTypes=gpu,mps" in done.out
    assert re.search(r"\+NodeName=n\[1-4\] .*Gres=gpu:a100:4,mps:100 ", done.out), done.out
    assert unchanged == (site.conf, site.gres)
    assert (broken.rc, broken.recap("n1")["failed"], broken.recap("n2")["failed"]) == (2, 1, 0)
    assert "Cuont is no key of gres.conf; Count is one" in broken.out


def test_configless_slurm_gets_one_file_with_the_lines_of_all_nodes(site: Site, bare_fleet: Fleet) -> None:
    path = "/etc/slurm/gres-mpsfleet.conf"
    variables: dict[str, Any] = {
        "mps_slurm_configless": True,
        "mps_slurm_share": "shard",
        "mps_slurm_gpu_files": ["/dev/nvidia0", "/dev/nvidia1"],
        "mps_slurm_fail_on": "never",
    }
    some = bare_fleet.play("tell_slurm", limit="n1,n2", **variables)
    done = bare_fleet.play("tell_slurm", **variables)
    written = site.cluster.must("ctl", "cat", path).splitlines()
    site.cluster.must("ctl", "rm", path)

    assert (some.rc, "n3, n4 would be missing in it" in " ".join(some.out.split())) == (2, True), some.out
    assert done.rc == 0, done.out
    assert sorted(written[1:]) == [
        f"NodeName={node} Name=shard Count=4 File=/dev/nvidia{gpu}" for node in site.cluster.nodes for gpu in (0, 1)
    ]
    assert site.cluster.exec("n1", ("test", "-e", path)).returncode == 1


# What is refused. A second slurmctld or slurmd with ports, files and state of its own meets the broken files.

OWN = "/root/lint"
BASE = f"""\
ClusterName=lint
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={OWN}/state
SlurmdSpoolDir={OWN}/spool
SlurmctldPidFile={OWN}/slurmctld.pid
SlurmdPidFile={OWN}/slurmd.pid
SlurmctldPort=7817
SlurmdPort=7818
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu,mps
NodeName=n1 CPUs=64 RealMemory=256000 Gres=gpu:a100:4,mps:400 State=UNKNOWN
PartitionName=gpu Nodes=n1 ExclusiveUser=YES
"""
GPUS = "Name=gpu Type=a100 File=/dev/nvidia[0-3]\n"
SHARES = "".join(f"Name=mps Count=100 File=/dev/nvidia{gpu}\n" for gpu in range(4))


LINEAR = BASE.replace("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core", "SelectType=select/linear")


class Broken(NamedTuple):
    """A mistake, who refuses it, and a part of its last word."""

    code: str
    daemon: str
    words: str
    conf: str = BASE
    gres: str = GPUS + SHARES


def of_node(gres: str) -> str:
    return BASE.replace("gpu:a100:4,mps:400", gres)


REFUSED = (
    Broken("select-type", "slurmctld", "requires the use of select/cons_tres", LINEAR),
    Broken("node-repeated", "slurmctld", "Duplicated NodeHostName n1", BASE + "NodeName=n1 CPUs=4\n"),
    Broken("line-not-understood", "slurmctld", "Parse error", BASE + "PrologFlags=Alloc Contain\n"),
    Broken("shared-count-low", "slurmd", "multiple configurations", gres=GPUS + SHARES.replace("=100", "=50")),
    Broken("shared-files-mixed", "slurmd", 'some records have "File"', gres=f"{GPUS}{SHARES}Name=mps Count=100\n"),
    Broken("shared-without-gpu", "slurmd", "failed to merge", of_node("mps:400"), SHARES),
    Broken("gpu-type", "slurmd", "failed to merge", of_node("gpu:v100:4,mps:400")),
    Broken("gpu-repeated", "slurmd", "duplicate records for gpu", of_node("gpu:2"), "Name=gpu\nName=gpu\n"),
    Broken(
        "count-not-files", "slurmd", "count does not match File", gres=GPUS.replace("File", "Count=5 File") + SHARES
    ),
    Broken("count-invalid", "slurmd", "invalid count", gres=GPUS + SHARES + "Name=mps Count=-1\n"),
    Broken("key-unknown", "slurmd", "unrecognized key: Cuont", gres=GPUS + SHARES.replace("Count", "Cuont")),
    Broken("key-unknown", "slurmd", "unrecognized key: NodeName", gres=f"Name=gpu NodeName=n1\n{GPUS}{SHARES}"),
    Broken("include-missing", "slurmd", "retrying in 1sec", gres=f"Include more.conf\n{GPUS}{SHARES}"),
    Broken(
        "gpu-not-on-node",
        "slurmd",
        "Waiting for gres.conf file /dev/nvidia9",
        gres=f"{GPUS}Name=gpu File=/dev/nvidia9\n",
    ),
)


def tried(cluster: Cluster, daemon: str, conf: str, gres: str) -> tuple[int, str]:
    """Start the daemon with these files beside its own; give the exit status (124: it was still running) and words."""
    node = "n1" if daemon == "slurmd" else cluster.controller
    write(cluster, node, f"{OWN}/slurm.conf", conf)
    write(cluster, node, f"{OWN}/gres.conf", gres)
    start = "slurmd -G -N n1" if daemon == "slurmd" else "slurmctld -D"
    shell = (
        f"rm -rf {OWN}/state; mkdir -p {OWN}/state {OWN}/spool; cp /etc/slurm/cgroup.conf {OWN}/; "
        f"exec timeout 4 {start} -f {OWN}/slurm.conf"
    )
    done = cluster.exec(node, ("sh", "-c", shell))
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("broken", REFUSED, ids=lambda broken: f"{broken.code} {broken.words}")
def test_what_the_lint_calls_refused_is_refused_by_slurm(program: Cluster, broken: Broken) -> None:
    status, words = tried(program, broken.daemon, broken.conf, broken.gres)
    assert (status != 0, broken.words in words) == (True, True), (status, words)

    node = "n1" if broken.daemon == "slurmd" else program.controller
    files = ("--slurm-conf", f"{OWN}/slurm.conf", "--gres-conf", f"{OWN}/gres.conf", "--node", "n1")
    gpus = {"schema": 1, "gpus": [{"minor": minor, "name": "A100", "instance": "0"} for minor in range(4)]}
    write(program, node, f"{OWN}/gpus.json", json.dumps(gpus))
    answer = lint(program, node, *files, "--gpus-json", f"{OWN}/gpus.json")
    assert broken.code in codes(answer), answer


def test_sound_files_are_taken_by_slurm_and_lint(program: Cluster) -> None:
    status, words = tried(program, "slurmd", BASE, GPUS + SHARES)
    assert status == 0, words
    status, words = tried(program, "slurmctld", BASE, GPUS + SHARES)
    assert status == 124, words
    files = ("--slurm-conf", f"{OWN}/slurm.conf", "--gres-conf", f"{OWN}/gres.conf")
    assert codes(lint(program, program.controller, *files)) == set()


@pytest.mark.parametrize("name", ["mps", "shard"])
def test_a_name_that_is_not_in_grestypes_is_ignored_by_slurm(program: Cluster, name: str) -> None:
    conf = of_node(f"gpu:a100:4,{name}:400").replace("GresTypes=gpu,mps", "GresTypes=gpu")
    status, words = tried(program, "slurmd", conf, GPUS)
    assert (status, f"Invalid GRES configured on node n1: {name}:400" in words) == (0, True), words
    files = ("--slurm-conf", f"{OWN}/slurm.conf", "--gres-conf", f"{OWN}/gres.conf")
    assert "gres-types" in codes(lint(program, "n1", *files))
