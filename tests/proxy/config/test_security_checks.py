"""Combinations of keys of TLS and of routing by SNI: each mistake names its key and the way out."""

from __future__ import annotations

import pathlib

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.security import Routing
from shoal.proxy.config.settings import PortMap
from shoal.proxy.config.toml import read_config

SNI = """
routing = "sni"
advertise = "shoal.example"
broker-host = "broker-{node}.shoal.example"
advertise-port = 443
[listener.tls]
certificate = "x.pem"
"""


def config(cluster: str = "", listener: str = 'ports = "19093-19192"') -> str:
    return f"""
[[cluster]]
name = "a"
bootstrap = "a1:9093"
{cluster}

[[listener]]
name = "x"
cluster = "a"
listen = "0.0.0.0:9093"
{listener}
"""


def problems(text: str) -> str:
    with pytest.raises(OperatorError) as caught:
        read_config(text, pathlib.Path("shoal.toml"))
    return str(caught.value)


TLS = 'ports = "19093-19192"\n[listener.tls]\ncertificate = "x.pem"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (config('[cluster.tls]\nkey = "k.pem"'), ["cluster[0].tls.key: needs certificate"]),
        (config('[cluster.tls]\nkey-password = { env = "X" }'), ["cluster[0].tls.key-password: needs certificate"]),
        (config('[cluster.tls]\nmin-version = "1.3"\nciphers = "X"'), ["cluster[0].tls.ciphers: is for TLS 1.2"]),
        (
            config(listener=f'{TLS}client-auth = "required"'),
            ['listener[0].tls.client-auth: is "required" without client-ca'],
        ),
        (
            config(listener=f'{TLS}client-ca = "ca.pem"'),
            ["listener[0].tls.client-ca: has no effect without client-auth"],
        ),
        (config(listener=f"{TLS}key-password = {{}}"), ["listener[0].tls.key-password: needs one of file and env"]),
        (
            config(listener=f'{TLS}key-password = {{ file = "a", env = "B" }}'),
            ["listener[0].tls.key-password: needs one of file and env"],
        ),
        (config(listener=""), ["listener[0].ports: is missing"]),
        (config(listener='routing = "ports"'), ["listener[0].ports: is missing"]),
        (
            config(listener='ports = "1-2"\nbroker-host = "b-{node}"'),
            ['listener[0].broker-host: needs routing = "sni"'],
        ),
        (config(listener='ports = "1-2"\nadvertise-port = 1'), ['listener[0].advertise-port: needs routing = "sni"']),
        (config(listener=SNI.partition("[listener.tls]")[0]), ["listener[0].routing: needs TLS", "[listener.tls]"]),
        (config(listener='ports = "1-2"' + SNI), ["listener[0].ports: has no effect with routing"]),
        (config(listener=SNI.replace('advertise = "shoal.example"', "")), ["listener[0].advertise: is missing"]),
        (config(listener=SNI.replace("broker-host", "#")), ["listener[0].broker-host: is missing", "broker-{node}."]),
        (config(listener=SNI.replace("-{node}", "")), ["listener[0].broker-host: ", "is not a host name with {node}"]),
        (config(listener=SNI.replace("{node}.", "{node}/")), ["is not a host name with {node}"]),
        (config(listener=SNI.replace("443", "70000")), ["listener[0].advertise-port: 70000 is not a number"]),
    ],
)
def test_mistakes(text: str, expected: list[str]) -> None:
    found = problems(text)
    for words in expected:
        assert words in found


def test_routing_by_names_needs_no_ports() -> None:
    (listener,) = read_config(config(listener=SNI), pathlib.Path("shoal.toml")).listeners
    assert listener.routing is Routing.SNI
    assert listener.nodes == PortMap(ports={})
    assert listener.advertised_port == 443
