from typing import Any

import pytest

from bench.overhead.by_peer import by_peer, peer_table
from bench.overhead.connections import Connections
from bench.overhead.report import HEARTBEAT, Figures, as_json
from bench.proxies.names import DIRECT, HAPROXY, KAFKA_PROXY, KROXYLICIOUS, SHOAL
from bench.runs import Forwarding, Lone


@pytest.fixture
def report() -> dict[str, Any]:
    figures = Figures()
    for way, cpu, p50 in ((DIRECT, None, 100), (HAPROXY, 1.0, 130), (SHOAL, 1.5, 90), (KROXYLICIOUS, 4.0, 150)):
        figures.forwarding["fetch"][way] = [Forwarding(cpu, 2.0, 2.5)]
        figures.forwarding[HEARTBEAT][way] = [Forwarding(cpu, 0.1, 2.5, 100_000)]
        figures.lone["Fetch"][way] = [Lone(p50=p50, p99=2 * p50)]
        if cpu:
            figures.connections[way] = [Connections(1_000, cpu, 0.5)]
            figures.idle_mib[way] = {1: 10 * cpu, 1_000: 20 * cpu}
    figures.absent[KAFKA_PROXY] = "no Go"
    return as_json(figures)


def test_every_peer_has_its_figures(report: dict[str, Any]) -> None:
    assert list(report["peers"]) == ["direct", "haproxy", "shoal", "kroxylicious", "kafka_proxy"]
    assert report["peers"]["kroxylicious"] == {
        "cpu_s_per_gib": {"fetch": 2.0, "produce": None},
        "cpu_us_per_request": {"tiny produce": None, "Heartbeat": 40.0},
        "added_p50_us": {"Fetch": 50, "Produce": None},
        "added_p99_us": {"Fetch": 100, "Produce": None},
        "idle_mib": {"1": 40.0, "1000": 80.0},
        "connections_per_cpu_s": 250.0,
        "connections_per_s": 2000.0,
    }


def test_the_direct_connection_has_no_cost_of_a_proxy(report: dict[str, Any]) -> None:
    assert report["peers"]["direct"]["cpu_s_per_gib"]["fetch"] is None
    assert report["peers"]["direct"]["idle_mib"] == {}


def test_an_absent_proxy_has_the_reason(report: dict[str, Any]) -> None:
    assert report["peers"]["kafka_proxy"] == {"absent": "no Go"}
    assert "absent: kafka_proxy: no Go" in peer_table(report["peers"]).splitlines()


def test_the_table_has_a_column_per_proxy_and_rows_of_what_was_measured(report: dict[str, Any]) -> None:
    lines = peer_table(report["peers"]).splitlines()
    assert lines[0].split()[-4:] == ["HAProxy", "Shoal", "Kroxylicious", "Shoal/HAProxy"]
    assert not any("produce" in line for line in lines)
    rows = {line.split("   ")[0].rstrip(): line.split()[-4:] for line in lines}
    assert rows["fetch, CPU seconds per GiB"] == ["0.50", "0.75", "2.00", "1.50x"]
    assert rows["a Heartbeat, CPU microseconds"] == ["10.0", "15.0", "40.0", "1.50x"]
    assert rows["a lone Fetch adds p50, microseconds"] == ["30", "-10", "50", "-"]
    assert rows["idle connections: 1,000, peak MiB"] == ["20.0", "30.0", "80.0", "1.50x"]


def test_nothing_measured_is_no_error() -> None:
    peers = by_peer({"forwarding": {}, "latency_us": {}, "connections": {}}, {}, {})
    assert len(peer_table(peers).splitlines()) == 2
