from pathlib import Path

import pytest

from bench.proxies.configs import BrokerAddresses, Listener, haproxy
from bench.proxies.descriptors import connections_within
from bench.proxies.materials import Materials
from bench.proxies.peer import Peer, shoal_config
from bench.proxies.placements import Placement
from shoal.proxy.config.settings import Address, Mode, PortMap
from shoal.proxy.config.toml import read_config


@pytest.mark.parametrize("mode", list(Mode))
def test_shoal_reads_its_configuration(mode: Mode) -> None:
    text = shoal_config(mode, ("127.0.0.1", 1111), 2222, ("127.0.0.1", 3333))
    settings = read_config(text, Path("shoal.toml"))
    (cluster,), (listener,) = settings.clusters, settings.listeners
    assert cluster.bootstrap == (Address("127.0.0.1", 3333),)
    assert (listener.port, listener.nodes, listener.mode) == (1111, PortMap(ports={1: 2222}), mode)
    assert listener.shallow.unpaired is (mode is Mode.WRAP)


def test_haproxy_listens_and_connects_where_it_should(tmp_path: Path) -> None:
    listener = Listener(placement=Placement.PLAIN, address=("127.0.0.1", 1111), node_port=2222)
    broker = BrokerAddresses(plain=("127.0.0.2", 3333))
    lines = haproxy([listener], broker, Materials.make(tmp_path), maxconn=9_000).splitlines()
    assert "    bind 127.0.0.1:1111" in lines
    assert "    server broker 127.0.0.2:3333" in lines
    assert "    maxconn 9000" in lines


def test_a_broker_without_tls_has_no_such_address() -> None:
    with pytest.raises(ValueError, match="no TLS listener"):
        BrokerAddresses(plain=("127.0.0.2", 3333)).address(Placement.BOTH)


@pytest.mark.parametrize(("limit", "held"), [(100, 0), (20_000, 9_750), (20_500, 10_000), (1_000_000, 10_000)])
def test_a_proxy_has_two_descriptors_per_connection(limit: int, held: int) -> None:
    assert connections_within(10_000, limit) == held


def test_the_broker_itself_is_no_proxy() -> None:
    with pytest.raises(ValueError, match="direct is no proxy"):
        _ = Peer(name="direct", address=("127.0.0.1", 1)).pid
