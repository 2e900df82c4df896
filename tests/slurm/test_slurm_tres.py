"""Trackable resources: a typed entry and its total are the same devices, and what is not listed is not told."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.slurm import nodes, tres


@pytest.mark.parametrize(
    ("text", "gpus", "shares"),
    [
        ("cpu=2,mem=2000M", None, None),
        ("cpu=1,mem=1000M,gres/gpu=1,gres/gpu:a100=1", 1, None),
        ("cpu=1,gres/gpu:a100=1,gres/gpu=1,gres/mps=50", 1, 50),
        ("gres/gpu:a100=2,gres/gpu:t4=1", 3, None),
        ("gres/gpu:a100=2,gres/gpu=3,gres/gpu:t4=1", 3, None),
        ("gres/gpu=4,gres/mps=1K,billing=64", 4, 1024),
        ("", None, None),
    ],
)
def test_one_gpu_is_counted_once(text: str, gpus: int | None, shares: int | None) -> None:
    found = tres.parse(text)
    assert (tres.count_of(found, "gpu"), tres.count_of(found, "mps")) == (gpus, shares)


@pytest.mark.parametrize("text", ["gres/gpu", "gres/gpu=x", "gres/gpu:a:b=1", "gres/=1", "gres/gpu=-1"])
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(tres.TresError):
        tres.parse(text)


RECORD = "NodeName=n1\n   Gres=gpu:4\n   State=IDLE\n   CfgTRES=cpu=64,gres/gpu=4\n   AllocTRES={}\n\n"


def test_a_node_has_what_is_configured_and_what_is_allocated() -> None:
    [node] = nodes.parse(RECORD.format("cpu=1,gres/gpu:a100=1,gres/gpu=1")).nodes
    assert node.configured == (tres.Tres("gpu", None, 4),)
    assert node.allocated == (tres.Tres("gpu", "a100", 1), tres.Tres("gpu", None, 1))


def test_a_form_that_is_not_known_costs_the_value_and_not_the_node() -> None:
    [node] = nodes.parse(RECORD.format("gres/gpu=many")).nodes
    assert (node.allocated, node.configured) == (None, (tres.Tres("gpu", None, 4),))


@given(st.text(alphabet="gres/pum:=,0123KMx", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(tres.TresError):
        assert all(each.count >= 0 for each in tres.parse(text))
