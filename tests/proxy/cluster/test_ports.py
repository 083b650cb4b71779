from __future__ import annotations

import pytest

from shoal.proxy.cluster.ports import NoPort, PortAssignments
from shoal.proxy.config.settings import Address, PortMap, PortRange

B1, B2, B3 = (Address(f"b{number}", 9092) for number in (1, 2, 3))
RANGE = PortRange(first=20_001, last=20_003)


def test_nodes_of_a_range_get_the_lowest_free_port_and_keep_it() -> None:
    endpoints = PortAssignments("l", RANGE)
    assert endpoints.offer(7, B1) == 20_001
    assert endpoints.assign(7, 20_001, B1)
    assert endpoints.offer(3, B2) == 20_002
    assert endpoints.assign(3, 20_002, B2)
    assert endpoints.offer(7, B1) == 20_001
    assert not endpoints.assign(7, 20_001, B1)
    assert endpoints.assign(7, 20_001, B3)
    assert endpoints.address(7) == B3


def test_a_port_that_somebody_else_has_is_skipped() -> None:
    endpoints = PortAssignments("l", RANGE, {7: (20_001, B1)})
    endpoints.refuse(20_001)
    assert endpoints.offer(7, B1) == 20_002
    endpoints.assign(7, 20_002, B1)
    assert endpoints.offer(3, B2) == 20_003


def test_an_exhausted_range_names_who_asks() -> None:
    endpoints = PortAssignments("l", RANGE)
    for node_id in range(3):
        endpoints.assign(node_id, endpoints.offer(node_id, B1), B1)
    with pytest.raises(NoPort, match=r"no port is left for broker 9 at b3:9092 in 20001-20003"):
        endpoints.offer(9, B3)


def test_a_map_is_all_there_is() -> None:
    endpoints = PortAssignments("l", PortMap(ports={1: 30_001, 2: 30_002}))
    assert [endpoints.offer(1, B1), endpoints.offer(2, B2)] == [30_001, 30_002]
    with pytest.raises(NoPort, match=r"broker 3 at b3:9092 has no port .* \(1 = 30001, 2 = 30002\): add one for 3"):
        endpoints.offer(3, B3)


def test_remembered_ports_outside_the_range_are_forgotten() -> None:
    endpoints = PortAssignments("l", RANGE, {1: (20_002, B1), 2: (19_999, B2)})
    assert endpoints.nodes == {1: (20_002, B1)}
    assert endpoints.offer(2, B2) == 20_001
