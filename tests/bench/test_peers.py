from pathlib import Path

import pytest

from bench.peers import Peer, haproxy_config, shoal_config
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


def test_haproxy_listens_and_connects_where_it_should() -> None:
    lines = haproxy_config(("127.0.0.1", 1111), ("127.0.0.2", 3333)).splitlines()
    assert "    bind 127.0.0.1:1111" in lines
    assert "    server broker 127.0.0.2:3333" in lines


def test_the_broker_itself_is_no_proxy() -> None:
    with pytest.raises(ValueError, match="direct is no proxy"):
        _ = Peer(name="direct", address=("127.0.0.1", 1)).pid
