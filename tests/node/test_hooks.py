"""The hooks on a node under a temporary root: a job is recorded, told its daemon, and forgotten; nothing fails a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.errors import UsageError
from mpsfleet.node import hook_environment, hook_files, hooks, jobs
from mpsfleet.node.cards import Card
from mpsfleet.node.desired import Desired
from mpsfleet.node.hook_environment import Told, understand
from mpsfleet.node.host import Host
from mpsfleet.node.jobs import Job
from mpsfleet.node.model import Unreadable

SOURCE = Path(__file__).parents[2] / "src"
UUIDS = tuple(f"GPU-{number:08d}-0000-0000-0000-000000000000" for number in range(4))
ORDER = (2, 0, 3, 1)  # Slurm's
MINORS = (3, 2, 1, 0)  # of nvidia-smi's 0 to 3
MPS = {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": "0", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
GPU = {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": "0,1"}
PER_GPU = Desired(daemons="gpu")


def cards(*instances: str) -> tuple[Card, ...]:
    names = instances or ("0", "1", "2", "3")
    return tuple(
        Card(index, uuid, MINORS[index], f"00000000:{index}7:00.0", "NVIDIA A100", instance=names[index])
        for index, uuid in enumerate(UUIDS)
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for each in ("run", "etc/slurm", "etc/mpsfleet", "usr/sbin"):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("")
    lines = "".join(f"Gres Name=gpu Type=a100 Count=1 Index={each} File=/dev/nvidia{each}\n" for each in ORDER)
    (tmp_path / "usr/sbin/slurmd").write_text(f"#!/bin/sh\ncat <<'X'\n{lines}X\n")
    (tmp_path / "usr/sbin/slurmd").chmod(0o755)
    record(tmp_path, cards())
    configure(tmp_path, 'schema = 1\n[mps]\ndaemons = "gpu"\n')
    return Host.at(str(tmp_path))


def record(root: Path, found: tuple[Card, ...]) -> None:
    document = {"schema": 1, "gpus": [each._asdict() for each in found]}
    (root / "etc/mpsfleet/gpus.json").write_text(json.dumps(document))


def configure(root: Path, text: str) -> None:
    path = root / "etc/mpsfleet/node.toml"
    path.write_text(text)
    path.chmod(0o644)


def run(host: Host, hook: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a hook as Slurm does: a process with this environment and no more."""
    script = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from mpsfleet.cli import main; sys.exit(main())"
    return subprocess.run(
        (sys.executable, "-IS", "-c", script, "--root", host.root, "node", "hook", hook),
        env=environment, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


def records(host: Host) -> tuple[jobs.Record, ...]:
    found = jobs.read_all(host)
    assert not isinstance(found, Unreadable)
    return found


def test_a_job_with_mps_is_recorded_with_its_gpu_by_minor_number(host: Host) -> None:
    done = run(host, "prolog", MPS)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (job,) = records(host)
    assert isinstance(job, Job)
    assert job._replace(start=0) == Job(
        17, 1000, "mps", (UUIDS[1],), (0,), 0
    )  # index 0 is /dev/nvidia2, which is GPU 1


def test_a_job_with_whole_gpus_is_recorded(host: Host) -> None:
    run(host, "prolog", GPU)

    (job,) = records(host)
    assert isinstance(job, Job)
    assert (job.gres, job.gpus) == ("gpu", (UUIDS[1], UUIDS[3]))


def test_a_job_without_gpus_is_not_recorded(host: Host) -> None:
    done = run(host, "prolog", {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000"})

    assert (done.returncode, done.stderr, records(host)) == (0, "", ())


def test_a_task_of_a_job_with_mps_is_told_its_gpus_daemon(host: Host) -> None:
    run(host, "prolog", MPS)

    told = run(host, "task-prolog", {"SLURM_JOB_ID": "17", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})

    assert told.stdout == f"export CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/1\nexport CUDA_VISIBLE_DEVICES={UUIDS[1]}\n"


def test_a_task_of_a_job_with_a_shard_is_told_its_gpus_daemon_though_its_prolog_saw_a_gpu(host: Host) -> None:
    run(host, "prolog", {**GPU, "SLURM_JOB_GPUS": "3"})

    told = run(host, "task-prolog", {"SLURM_JOB_ID": "17", "SLURM_SHARDS_ON_NODE": "1"})

    assert told.stdout == f"export CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/2\nexport CUDA_VISIBLE_DEVICES={UUIDS[2]}\n"


def test_a_task_of_a_job_with_a_whole_gpu_is_told_nothing(host: Host) -> None:
    run(host, "prolog", {**GPU, "SLURM_JOB_GPUS": "3"})

    told = run(host, "task-prolog", {"SLURM_JOB_ID": "17", "SLURM_JOB_GPUS": "3"})

    assert (told.stdout, told.stderr) == ("", "")


def test_the_tasks_of_a_heterogeneous_job_ask_by_their_leaders_number(host: Host) -> None:
    component = {**MPS, "SLURM_JOB_ID": "18", "SLURM_HET_JOB_ID": "17"}
    run(host, "prolog", component)

    told = run(host, "task-prolog", {"SLURM_JOB_ID": "17", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})

    assert told.stdout.startswith("export CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps/1\n")
    run(host, "epilog", {"SLURM_JOB_ID": "18"})
    assert os.listdir(host.path(jobs.EXPORTS)) == []


def test_components_of_one_job_with_different_gpus_on_a_node_are_told_nothing(host: Host) -> None:
    for job, index in (("17", "0"), ("18", "1")):
        run(host, "prolog", {**MPS, "SLURM_JOB_ID": job, "SLURM_HET_JOB_ID": "17", "SLURM_JOB_GPUS": index})

    told = run(host, "task-prolog", {"SLURM_JOB_ID": "17", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})

    assert (told.returncode, told.stdout) == (0, "")
    assert "components with different GPUs" in told.stderr


def test_a_job_is_forgotten_by_its_number_alone(host: Host) -> None:
    run(host, "prolog", MPS)

    done = run(host, "epilog", {"SLURM_JOB_ID": "17"})

    assert (done.returncode, done.stderr, records(host)) == (0, "", ())
    assert jobs.exports(host, 17) == ()


def test_five_jobs_that_start_and_end_at_once_on_a_fresh_boot(host: Host) -> None:
    numbers = [str(each) for each in range(1, 6)]
    with ThreadPoolExecutor(5) as pool:
        done = list(pool.map(lambda each: run(host, "prolog", {**MPS, "SLURM_JOB_ID": each}), numbers))
        assert {(each.returncode, each.stderr) for each in done} == {(0, "")}
        found = records(host)
        assert [isinstance(each, Job) and each.gpus for each in found] == [(UUIDS[1],)] * 5
        done = list(pool.map(lambda each: run(host, "epilog", {"SLURM_JOB_ID": each}), numbers))
    assert {(each.returncode, each.stderr) for each in done} == {(0, "")}
    assert records(host) == ()
    assert os.listdir(host.path(jobs.DIRECTORY)) == []


@pytest.mark.parametrize("hook", ["prolog", "epilog", "task-prolog"])
def test_the_kill_switch_makes_every_hook_do_nothing(host: Host, hook: str) -> None:
    run(host, "prolog", MPS)
    before = records(host)
    Path(host.root, "etc/mpsfleet/off").touch()

    done = run(host, hook, {**MPS, "SLURM_JOB_ID": "17" if hook != "prolog" else "18"})

    assert (done.returncode, done.stdout, done.stderr, records(host)) == (0, "", "", before)


def broken(host: Host, how: str) -> None:
    root = Path(host.root)
    if how == "no configuration":
        (root / "etc/mpsfleet/node.toml").unlink()
    elif how == "a wrong configuration":
        configure(root, "schema = 7\n")
    elif how == "no record of the GPUs":
        (root / "etc/mpsfleet/gpus.json").unlink()
    elif how == "a garbled record of the GPUs":
        (root / "etc/mpsfleet/gpus.json").write_text("{")
    elif how == "no slurmd":
        (root / "usr/sbin/slurmd").unlink()
    else:
        record(root, cards()[:2])


@pytest.mark.parametrize(
    ("how", "known"),
    [
        ("no configuration", True),
        ("a wrong configuration", True),
        ("no record of the GPUs", False),
        ("a garbled record of the GPUs", False),
        ("no slurmd", False),
        ("a GPU that the record lacks", False),
    ],
)
def test_whatever_is_broken_the_job_is_recorded_and_starts(host: Host, how: str, known: bool) -> None:  # noqa: FBT001
    broken(host, how)

    done = run(host, "prolog", {**MPS, "SLURM_JOB_GPUS": "1"})  # /dev/nvidia0, which is GPU 3

    assert done.returncode == 0
    assert done.stderr.startswith("mpsfleet: hook prolog: ")
    (job,) = records(host)
    assert isinstance(job, Job)
    assert job.gpus == ((UUIDS[3],) if known else ())
    assert jobs.exports(host, 17) == ()


@pytest.mark.parametrize("where", ["run/mpsfleet", "run/mpsfleet-jobs"])
def test_a_file_in_the_place_of_our_directory_fails_no_job(host: Host, where: str) -> None:
    Path(host.root, where).write_text("")

    done = [run(host, hook, MPS) for hook in ("prolog", "task-prolog", "epilog")]

    assert [each.returncode for each in done] == [0, 0, 0]
    assert done[0].stderr.startswith("mpsfleet: hook prolog: ")


def test_a_hook_that_takes_too_long_ends_with_0_and_one_sentence(host: Host) -> None:
    Path(host.root, "usr/sbin/slurmd").write_text("#!/bin/sh\nexec sleep 60\n")
    script = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from mpsfleet.node import hooks; hooks.LIMIT_S = 0.5;"
        f" sys.exit(hooks.main(['prolog'], {host.root!r}))"
    )

    done = subprocess.run(
        (sys.executable, "-IS", "-c", script), env=MPS, capture_output=True, text=True, timeout=20, check=False
    )

    assert (done.returncode, done.stderr) == (0, "mpsfleet: hook prolog: given up after 0.5 s\n")
    assert len(records(host)) == 1


@pytest.mark.parametrize("words", [[], ["prolgo"], ["prolog", "x"]])
def test_wrong_words_are_a_persons_mistake(words: list[str]) -> None:
    with pytest.raises(UsageError, match="takes one of prolog, epilog, task-prolog"):
        hooks.main(words)


def test_a_hook_loads_nothing_dear() -> None:
    script = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import mpsfleet.cli, mpsfleet.node.hooks; print(*sys.modules)"

    done = subprocess.run((sys.executable, "-IS", "-c", script), check=True, capture_output=True, text=True)

    loaded = set(done.stdout.split())
    assert loaded & {"argparse", "subprocess", "pathlib", "tomllib", "ctypes", "socket", "mpsfleet.node.probe"} == set()


# Pure parts


@pytest.mark.parametrize(
    ("desired", "found", "chosen", "told"),
    [
        (PER_GPU, cards(), (1,), ("/run/nvidia-mps/1", UUIDS[1])),
        (PER_GPU._replace(pipe_directory="/tmp/nvidia-mps"), cards(), (3,), ("/tmp/nvidia-mps_3", UUIDS[3])),  # noqa: S108
        (PER_GPU, cards(), (0, 1), ()),  # two daemons
        (PER_GPU, cards(), (), ()),
        (PER_GPU, cards("0", "", "", ""), (1,), ()),  # left as it is
        (Desired(), cards(*["node"] * 4), (0, 2), ("/run/nvidia-mps/node", f"{UUIDS[0]},{UUIDS[2]}")),
        (Desired(), cards(*["node"] * 4), (), ("/run/nvidia-mps/node",)),
        (Desired(), cards("node", "node", "", ""), (), ()),
        (Desired(), (), (), ()),
        (None, cards(), (1,), ()),
    ],
)
def test_a_task_is_told_of_one_daemon_or_of_none(
    desired: Desired | None, found: tuple[Card, ...], chosen: tuple[int, ...], told: tuple[str, ...]
) -> None:
    variables = hooks.exports(desired, found, tuple(found[each] for each in chosen))

    assert tuple(value for _, value in variables) == told


@pytest.mark.parametrize(
    ("order", "indices", "uuids"),
    [
        (ORDER, (0,), (UUIDS[1],)),
        (ORDER, (3, 0), (UUIDS[2], UUIDS[1])),
        (ORDER, (4,), ()),
        (ORDER, (), ()),
        ((), (0,), ()),
        ((0, 9), (0, 1), ()),
    ],
)
def test_slurms_index_is_a_place_in_slurms_order(
    order: tuple[int, ...], indices: tuple[int, ...], uuids: tuple[str, ...]
) -> None:
    assert tuple(each.uuid for each in hooks.choose(cards(), order, indices)) == uuids


@pytest.mark.parametrize(
    ("environment", "gres"),
    [
        (MPS, "mps"),
        ({**MPS, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1250"}, "mps"),  # mps and shard on one node, 22.05 and 24.11
        (GPU, "gpu"),
        ({"SLURM_JOB_ID": "17", "SLURM_SHARDS_ON_NODE": "1", "GPU_DEVICE_ORDINAL": "0"}, "shard"),
        ({"SLURM_JOB_ID": "17"}, ""),
        ({**GPU, "SLURM_JOB_GPUS": "NoDevFiles"}, "gpu"),
        ({"SLURM_JOB_ID": "17", "CUDA_VISIBLE_DEVICES": "0,1"}, "gpu"),  # a Prolog of 20.11
        ({"SLURM_JOB_ID": "17", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ""),
    ],
)
def test_the_kind_of_a_job(environment: dict[str, str], gres: str) -> None:
    assert understand(environment).gres == gres


def test_of_a_slurm_without_slurm_job_gpus_the_visible_devices_are_minor_numbers() -> None:
    old, new = understand({"CUDA_VISIBLE_DEVICES": "2,3"}), understand({**GPU, "CUDA_VISIBLE_DEVICES": "2,3"})

    assert (old.indices, old.has_gpus, old.has_minors) == ((2, 3), True, True)
    assert (new.indices, new.has_minors) == (understand(GPU).indices, False)


@pytest.mark.parametrize(
    "text", ["-1", "1,", "0,0", "0-1", "0x1", "1e3", " 1", "\u0661", "9999", "0;reboot", "\udcff", "1\n"]
)
def test_indices_that_are_not_of_the_pattern_are_not_known(text: str) -> None:
    told = understand({**GPU, "SLURM_JOB_GPUS": text})

    assert (told.indices, told.has_gpus) == ((), True)


NAMES = st.sampled_from(
    [
        hook_environment.JOB,
        hook_environment.UID,
        hook_environment.GPUS,
        hook_environment.VISIBLE,
        hook_environment.PERCENTAGE,
        hook_environment.SHARDS,
        "PATH",
    ]
)


@given(st.dictionaries(NAMES, st.text() | st.integers().map(str) | st.from_regex(r"[0-9,]{0,30}")))
def test_any_environment_gives_bounded_numbers_or_none(environment: dict[str, str]) -> None:
    told = understand(environment)

    assert told.job == -1 or 0 < told.job < 2**32
    assert -1 <= told.uid < 2**32
    assert all(0 <= each < 1024 for each in told.indices)
    assert len(set(told.indices)) == len(told.indices)


@given(
    st.builds(
        Told,
        st.integers(1, 2**32 - 1),
        st.integers(0, 2**32 - 1),
        st.lists(st.integers(0, 1023), unique=True, min_size=1, max_size=16).map(tuple),
        st.just(value=True),
        st.integers(1, 999_999),
        st.just(-1),
        st.just(-1) | st.integers(1, 2**32 - 1),
        st.just(value=False),
    )
)
def test_what_slurm_writes_is_understood(told: Told) -> None:
    environment = {
        "SLURM_JOB_ID": str(told.job),
        "SLURM_JOB_UID": str(told.uid),
        "SLURM_JOB_GPUS": ",".join(map(str, told.indices)),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(told.percentage),
        **({"SLURM_HET_JOB_ID": str(told.leader)} if told.leader > 0 else {}),
    }

    assert understand(environment) == told


# The shell around them


def shell(tmp_path: Path, name: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run a hook's shell with a program that tells how it was called; return its exit status and that."""
    (content,) = (each.content.decode() for each in hook_files.owned() if each.path.endswith(f"/{name}.sh"))
    called = tmp_path / "called"
    program = tmp_path / "mpsfleet"
    program.write_text(f'#!/bin/sh\n{{ echo "$*"; /usr/bin/env; }} > {called}\nexit 7\n')
    program.chmod(0o755)
    text = content.replace("/usr/sbin/mpsfleet", str(program)).replace("/run/", f"{tmp_path}/run/")
    script = tmp_path / "hook.sh"
    script.write_text(text.replace("/etc/mpsfleet/off", f"{tmp_path}/off"))
    script.chmod(0o755)
    done = subprocess.run((str(script),), env=environment, check=False, timeout=20)
    return done.returncode, called.read_text() if called.exists() else ""


def test_the_shell_passes_on_only_what_is_read_and_ends_with_0(tmp_path: Path) -> None:
    hostile = {
        **MPS,
        "LD_AUDIT": "",
        "PYTHONPATH": "/x",
        "SLURM_JOB_COMMENT": "$(reboot)",
        "SLURM_JOB_GPUS": '0"; $(touch x) `id`',
    }

    status, called = shell(tmp_path, "prolog", hostile)

    assert status == 0
    words, *variables = called.splitlines()
    assert words == "node hook prolog"
    names = {each.partition("=")[0] for each in variables} - {"PWD", "_", "SHLVL"}  # the stand-in's own shell
    assert names == {*MPS, "SLURM_HET_JOB_ID", "CUDA_VISIBLE_DEVICES"}
    assert f"SLURM_JOB_GPUS={hostile['SLURM_JOB_GPUS']}" in variables


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("prolog", {"SLURM_JOB_ID": "17"}),
        ("prolog", {**MPS, "SLURM_JOB_ID": "17/../18"}),
        ("prolog", {}),
        ("epilog", {"SLURM_JOB_ID": "17"}),
        ("task_prolog", {**GPU}),
        ("task_prolog", {**MPS}),  # nothing is published
    ],
)
def test_the_shell_leaves_before_python_where_there_is_nothing_to_do(
    tmp_path: Path, name: str, environment: dict[str, str]
) -> None:
    assert shell(tmp_path, name, environment) == (0, "")


@pytest.mark.parametrize("name", ["17", "17.18"])
def test_the_shell_of_a_task_goes_on_where_something_is_published(tmp_path: Path, name: str) -> None:
    (tmp_path / "run/mpsfleet-jobs").mkdir(parents=True)
    (tmp_path / "run/mpsfleet-jobs" / name).touch()

    assert shell(tmp_path, "task_prolog", MPS)[1].startswith("node hook task-prolog\n")


def test_the_shell_of_the_epilog_goes_on_for_a_job_that_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "run/mpsfleet/jobs").mkdir(parents=True)
    (tmp_path / "run/mpsfleet/jobs/17").touch()

    assert shell(tmp_path, "epilog", {"SLURM_JOB_ID": "17"})[1].startswith("node hook epilog\n")


@pytest.mark.parametrize("name", ["prolog", "epilog", "task_prolog"])
def test_the_shell_leaves_where_the_kill_switch_is_set(tmp_path: Path, name: str) -> None:
    (tmp_path / "off").touch()

    assert shell(tmp_path, name, MPS) == (0, "")
