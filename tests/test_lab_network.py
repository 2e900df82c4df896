"""The lab's network: labs that are up at the same time share no address, whatever their names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

from clusterlab.errors import LabError
from clusterlab.naming import NETWORKS, Lab
from clusterlab.network import addresses_in, free_network


def test_a_free_host_gives_a_lab_its_names_own_network() -> None:
    assert free_network(Lab("lab"), ("127.0.0.1", "192.168.1.7")) == "10.213.1"


def test_a_network_that_somebody_here_has_is_passed_over() -> None:
    lab = Lab("side")
    assert free_network(lab, (f"{lab.networks[0]}.1", f"{lab.networks[1]}.20")) == lab.networks[2]


def test_every_network_is_tried_once_before_a_lab_is_refused() -> None:
    lab = Lab("side")
    assert len(set(lab.networks)) == NETWORKS
    with pytest.raises(LabError, match="take a lab down"):
        free_network(lab, tuple(f"{network}.1" for network in lab.networks))


def test_addresses_are_read_from_what_ip_says() -> None:
    listing = [{"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}]}, {"ifname": "br0"}, {"addr_info": [{}]}]
    assert addresses_in(json.dumps(listing)) == ("127.0.0.1", "")
    assert addresses_in("") == ()
