"""The parts of `make bench-tls` that need neither brokers nor proxies."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from bench.overhead.connections import Connections
from bench.proxies import configs
from bench.proxies.configs import BrokerAddresses, Listener
from bench.proxies.materials import Materials
from bench.proxies.names import DIRECT, HAPROXY, SHOAL
from bench.proxies.placements import TLS, KeyType, Placement
from bench.runs import Forwarding, Lone
from bench.tls import openssl
from bench.tls.profile import parse_report
from bench.tls.report import FETCH, FULL, OPENSSL, PRODUCE, Figures, as_json, as_tables, needed
from shoal.proxy.config.settings import Address
from shoal.proxy.config.toml import read_config

BROKER = BrokerAddresses(plain=("127.0.0.1", 9092), tls=("127.0.0.1", 9093))
LISTENERS = [
    Listener(placement=placement, address=("127.0.0.1", 1000 + 2 * at), node_port=1001 + 2 * at)
    for at, placement in enumerate(Placement)
]
COST = openssl.Cost(seal=0.2, open=0.3)


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    return Materials.make(tmp_path_factory.mktemp("materials"))


def test_shoal_reads_its_configuration(materials: Materials) -> None:
    settings = read_config(configs.shoal(LISTENERS, BROKER, materials), Path("shoal.toml"))
    clusters = {cluster.name: cluster for cluster in settings.clusters}
    assert clusters["plain"].tls is None
    assert clusters["tls"].tls is not None
    assert clusters["tls"].bootstrap == (Address(*BROKER.address(Placement.BOTH)),)
    for listener, placement in zip(settings.listeners, Placement, strict=True):
        assert (listener.tls is not None) == placement.to_clients
        assert (listener.cluster == "tls") == placement.to_brokers


def test_haproxy_has_tls_where_the_placement_says(materials: Materials) -> None:
    lines = configs.haproxy(LISTENERS, BROKER, materials).splitlines()
    binds = [line for line in lines if line.startswith("    bind")]
    servers = [line for line in lines if line.startswith("    server")]
    assert [" ssl crt " in line for line in binds] == [placement.to_clients for placement in Placement]
    assert [" ssl verify required " in line for line in servers] == [placement.to_brokers for placement in Placement]
    assert [":9093" in line for line in servers] == [placement.to_brokers for placement in Placement]


@pytest.mark.parametrize(("placement", "flags"), [(Placement.PLAIN, set()), (Placement.BOTH, {"--tls-enable"})])
def test_kafka_proxy_has_tls_where_the_placement_says(
    materials: Materials, placement: Placement, flags: set[str]
) -> None:
    listener = Listener(placement=placement, address=("127.0.0.1", 1), node_port=2)
    arguments = configs.kafka_proxy(listener, BROKER, materials)
    assert {"--tls-enable"} & set(arguments) == flags


@pytest.mark.parametrize("kind", KeyType)
def test_the_load_client_trusts_the_certificates(materials: Materials, kind: KeyType) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(materials.servers[kind])
    assert materials.servers[kind].stat().st_mode & 0o077 == 0
    assert materials.client().cert_store_stats()["x509_ca"] == 1


def test_openssl_alone_has_a_cost(materials: Materials) -> None:
    assert all(0 < cost < 100 for cost in openssl.records(materials, volume=1 << 20))


def test_the_result_of_openssl_speed_is_read() -> None:
    output = "+DT:AES-256-GCM:1:16384\n+R:325000:AES-256-GCM:1.000000\n+H:16384\n+F:22:AES-256-GCM:5324800000.00\n"
    assert openssl.parse_speed(output) == 5324800000
    with pytest.raises(ValueError, match="no result"):
        openssl.parse_speed("unknown cipher")


def test_each_placement_needs_the_ciphers_of_its_sides() -> None:
    assert [needed(COST, placement, FETCH) for placement in TLS] == [0.2, 0.3, 0.5]
    assert [needed(COST, placement, PRODUCE) for placement in TLS] == [0.3, 0.2, 0.5]


def test_shares_of_libraries_are_read() -> None:
    text = "# Overhead  Shared Object\n    75.00%  libcrypto.so.3\n    15.00%  [JIT] tid 7\n    10.00%  [JIT] tid 8\n\n"
    assert parse_report(text) == {"libcrypto.so.3": 0.75, "compiled Java": 0.25}


@pytest.fixture
def figures() -> Figures:
    """Three rounds, the second of which was disturbed."""
    figures = Figures(left_out={"kafka-proxy": "not there"})
    for slow in (1, 5, 1):
        for way, cpu in ((HAPROXY, 1.0), (SHOAL, 1.2)):
            figures.forwarding[FETCH][way][Placement.BOTH].append(Forwarding(cpu * slow, 2.0, 4.0))
            figures.forwarding[FETCH][way][Placement.PLAIN].append(Forwarding(cpu * slow / 2, 2.0, 2.0))
            figures.connections[way][FULL].append(Connections(1000, 0.5 * cpu * slow, 1.0))
        for way, added in ((DIRECT, 0), (SHOAL, 80)):
            for placement, tls in ((Placement.PLAIN, 0), (Placement.BOTH, 40)):
                lone = Lone(p50=100.0 * slow + added + tls, p99=0.0)
                figures.lone[way]["Fetch"][placement].append(lone)
        figures.lone[SHOAL]["Fetch"][Placement.CLIENTS].append(Lone(p50=100.0 * slow + 70, p99=0.0))
    figures.openssl[OPENSSL] = COST
    figures.idle_mib[SHOAL] = {"one connection": 40.0}
    figures.libraries[SHOAL] = {"kernel": 0.4, "libcrypto.so.3": 0.6}
    return figures


def test_the_figures_of_a_way_are_those_with_tls_on_both_sides(figures: Figures) -> None:
    report: Any = as_json(figures, kafka="4.3.0")
    assert report["fetch"]["shoal"]["cpu_s_per_gib"] == 0.6
    assert report["fetch"]["shoal"]["placements"]["plain"] == {"cpu_s_per_gib": 0.3, "gib_per_s": 1.0}
    assert report["fetch"]["openssl"]["cpu_s_per_gib"] == 0.5
    assert report["handshakes_per_s"]["haproxy"] == {FULL: 2000.0}
    assert report["left_out"] == {"kafka-proxy": "not there"}


def test_added_latency_is_against_a_direct_connection_of_the_same_round(figures: Figures) -> None:
    report: Any = as_json(figures)
    assert report["added_p50_us"] == {"shoal": {"Fetch": {"plain": 80.0, "both": 80.0, "to clients": 30.0}}}
    assert report["direct_p50_us"] == {"Fetch": {"plain": 100.0, "both": 140.0}}


def test_tables_set_the_ways_side_by_side(figures: Figures) -> None:
    lines = [line.split() for line in as_tables(as_json(figures)).splitlines()]
    assert ["shoal", "0.30", "-", "-", "0.60", "0.50", "1.20x"] in lines
    assert ["shoal,", "Fetch", "80", "30", "-", "80"] in lines
    assert ["haproxy", "2,000"] in lines
    assert ["left", "out:", "kafka-proxy:", "not", "there"] in lines
