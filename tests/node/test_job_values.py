"""Records of jobs: what a Prolog publishes is read back; what is anything else still counts as somebody."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mpsfleet.node import jobs
from mpsfleet.node.host import Host
from mpsfleet.node.jobs import Garbled, Job
from mpsfleet.node.model import Unreadable

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
JOB = Job(17, 1000, "mps", (A,), (2,), 1_764_612_345)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "run").mkdir()
    return Host.at(str(tmp_path))


def folder(host: Host) -> Path:
    return Path(host.path(jobs.DIRECTORY))


def only(host: Host) -> jobs.Record:
    records = jobs.read_all(host)
    assert not isinstance(records, Unreadable)
    (record,) = records
    return record


def test_a_record_is_read_as_it_was_written(host: Host) -> None:
    jobs.write(host, JOB)

    assert only(host) == JOB


def test_a_record_is_for_root_alone(host: Host) -> None:
    before = os.umask(0)
    try:
        jobs.write(host, JOB)
    finally:
        os.umask(before)

    modes = [stat.S_IMODE(path.lstat().st_mode) for path in (folder(host).parent, folder(host), folder(host) / "17")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_second_record_of_a_job_takes_the_place_of_the_first(host: Host) -> None:
    jobs.write(host, JOB._replace(gpus=()))
    jobs.write(host, JOB)

    assert only(host) == JOB


def test_without_a_record_there_is_none(host: Host) -> None:
    assert jobs.read_all(host) == ()


def test_where_the_directory_cannot_be_listed_nobody_knows(host: Host) -> None:
    folder(host).parent.mkdir()
    folder(host).write_text("")

    assert isinstance(jobs.read_all(host), Unreadable)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "17",
        "[" * 100_000,
        '{"schema": 2, "job": 17, "uid": 1, "gres": "mps", "gpus": [], "indices": [], "start": 1}',
        '{"schema": 1, "job": 18, "uid": 1, "gres": "mps", "gpus": [], "indices": [], "start": 1}',
        '{"schema": 1, "job": true, "uid": 1, "gres": "mps", "gpus": [], "indices": [], "start": 1}',
        '{"schema": 1, "job": 17, "uid": -2, "gres": "mps", "gpus": [], "indices": [], "start": 1}',
        '{"schema": 1, "job": 17, "uid": 1, "gres": "npu", "gpus": [], "indices": [], "start": 1}',
        '{"schema": 1, "job": 17, "uid": 1, "gres": "mps", "gpus": [3], "indices": [], "start": 1}',
        '{"schema": 1, "job": 17, "uid": 1, "gres": "mps", "gpus": "GPU-a", "indices": [], "start": 1}',
        '{"schema": 1, "job": 17, "uid": 1, "gres": "mps", "gpus": [], "start": 1}',
        "x" * 10_000,
        "\0\xff",
    ],
)
def test_garbage_is_a_record_of_somebody_who_may_be_anywhere(host: Host, content: str) -> None:
    folder(host).mkdir(parents=True)
    (folder(host) / "17").write_text(content, encoding="latin-1")

    record = only(host)

    assert isinstance(record, Garbled)
    assert record.name == "17"
    assert record.may_use(frozenset((A,)))


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "writable by others"])
def test_what_is_no_plain_file_of_roots_is_not_opened_and_counts(host: Host, tmp_path: Path, kind: str) -> None:
    jobs.write(host, JOB)
    path = folder(host) / "17"
    if kind == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        path.unlink()
        os.mkfifo(path)
    elif kind == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.chmod(0o622)

    assert isinstance(only(host), Garbled)


def test_a_record_of_another_owner_counts_and_is_not_believed(host: Host) -> None:
    jobs.write(host, JOB)

    (record,) = jobs.read_all(host._replace(owner_uid=host.owner_uid + 1))

    assert isinstance(record, Garbled)


def test_a_record_half_written_is_none_and_goes_with_its_job(host: Host) -> None:
    jobs.write(host, JOB)
    (folder(host) / ".17.abcdef").write_text("half")

    assert only(host) == JOB
    assert jobs.forget(host, 17)
    assert list(folder(host).iterdir()) == []


def test_more_records_than_are_read_are_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_MOST", 2)
    for number in (1, 2, 3):
        jobs.write(host, JOB._replace(job=number))

    records = jobs.read_all(host)

    assert records[2:] == (Garbled("…", "there are 1 more"),)


def test_forgetting_a_job_leaves_the_others(host: Host) -> None:
    for number in (17, 171, 1):
        jobs.write(host, JOB._replace(job=number))
        jobs.export(host, number, (("CUDA_MPS_PIPE_DIRECTORY", "/run/nvidia-mps/0"),))

    assert jobs.forget(host, 17)
    assert not jobs.forget(host, 17)

    assert sorted(each.name for each in folder(host).iterdir()) == ["1", "171"]
    assert sorted(os.listdir(host.path(jobs.EXPORTS))) == ["1", "171"]


EXPORTS = (("CUDA_MPS_PIPE_DIRECTORY", "/run/nvidia-mps/2"), ("CUDA_VISIBLE_DEVICES", f"{A},{B}"))


def test_what_a_task_is_told_can_be_read_by_its_user_and_written_by_nobody(host: Host) -> None:
    jobs.export(host, 17, EXPORTS)

    path = Path(host.path(jobs.EXPORTS))
    assert [stat.S_IMODE(each.lstat().st_mode) for each in (path, path / "17")] == [0o755, 0o644]
    assert jobs.exports(host, 17) == EXPORTS


def test_what_a_task_is_told_names_no_user(host: Host) -> None:
    jobs.write(host, JOB)
    jobs.export(host, 17, EXPORTS)

    assert "1000" not in Path(host.path(f"{jobs.EXPORTS}/17")).read_text()


def test_a_job_that_is_told_nothing_any_more_loses_its_file(host: Host) -> None:
    jobs.export(host, 17, EXPORTS)
    jobs.export(host, 17, ())

    assert jobs.exports(host, 17) == ()


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"schema": 1}',
        '{"schema": 1, "exports": {"CUDA_VISIBLE_DEVICES": "0; rm -rf ~"}}',
        '{"schema": 1, "exports": {"CUDA_VISIBLE_DEVICES": "0\\nexport LD_PRELOAD=/x"}}',
        '{"schema": 1, "exports": {"CUDA_VISIBLE_DEVICES": 0}}',
        '{"schema": 1, "exports": {"CUDA_VISIBLE_DEVICES": ""}}',
        '{"schema": 1, "exports": []}',
    ],
)
def test_a_file_that_no_prolog_wrote_exports_nothing(host: Host, content: str) -> None:
    jobs.export(host, 17, EXPORTS)
    path = Path(host.path(f"{jobs.EXPORTS}/17"))
    path.write_text(content)

    found = jobs.exports(host, 17)

    assert found == () or isinstance(found, Unreadable)


def test_a_file_of_another_users_exports_nothing(host: Host) -> None:
    jobs.export(host, 17, EXPORTS)

    assert isinstance(jobs.exports(host._replace(owner_uid=host.owner_uid + 1), 17), Unreadable)


@pytest.mark.parametrize(
    ("known", "age_s", "stale"),
    [((), 10, False), ((), 301, True), ((17,), 301, False), ((18,), 9999, True)],
)
def test_a_job_without_a_step_is_stale_after_a_while(known: tuple[int, ...], age_s: int, stale: bool) -> None:  # noqa: FBT001
    assert jobs.is_stale(JOB, frozenset(known), JOB.start + age_s) is stale
