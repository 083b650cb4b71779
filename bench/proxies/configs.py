"""The configuration of each proxy: a listener per placement, and one with an RSA key for handshakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.proxies.placements import CIPHER, KeyType, Placement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.load import Address
    from bench.proxies.materials import Materials

__all__ = ["MAXCONN", "BrokerAddresses", "Listener", "haproxy", "kafka_proxy", "kroxylicious", "shoal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of a proxy."""

    placement: Placement
    key_type: KeyType = KeyType.ECDSA
    address: Address
    node_port: int  # of the broker behind it, for clients

    @property
    def name(self) -> str:
        return f"{self.placement}-{self.key_type}".replace(" ", "-").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddresses:
    """The broker. `tls` is None if no placement has TLS to brokers."""

    plain: Address
    tls: Address | None = None

    def address(self, placement: Placement) -> Address:
        """Raises ValueError if the broker has no such listener."""
        if not placement.to_brokers:
            return self.plain
        if self.tls is None:
            raise ValueError("the broker has no TLS listener")
        return self.tls


MAXCONN = 5_000
# Debian's defaults, but for the idle timeouts and the version of TLS.
_HAPROXY = """\
global
    maxconn {maxconn}
    ssl-default-bind-ciphersuites {cipher}
    ssl-default-bind-options ssl-min-ver TLSv1.3
    ssl-default-server-ciphersuites {cipher}
    ssl-default-server-options ssl-min-ver TLSv1.3
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
"""
_HAPROXY_LISTENER = """\
listen {name}
    bind {host}:{port}{bind}
    server broker {broker_host}:{broker_port}{server}
"""


def haproxy(
    listeners: Iterable[Listener], broker: BrokerAddresses, materials: Materials, maxconn: int = MAXCONN
) -> str:
    def section(listener: Listener) -> str:
        host, port = broker.address(listener.placement)
        return _HAPROXY_LISTENER.format(
            name=listener.name,
            host=listener.address[0],
            port=listener.address[1],
            bind=f" ssl crt {materials.servers[listener.key_type]}" if listener.placement.to_clients else "",
            broker_host=host,
            broker_port=port,
            server=f" ssl verify required ca-file {materials.ca}" if listener.placement.to_brokers else "",
        )

    return _HAPROXY.format(cipher=CIPHER, maxconn=maxconn) + "".join(map(section, listeners))


_SHOAL_CLUSTER = """\
[[cluster]]
name = "{name}"
bootstrap = "{host}:{port}"
"""
_SHOAL_CLUSTER_TLS = """\
[cluster.tls]
ca = "{ca}"
"""
_SHOAL_LISTENER = """
[[listener]]
name = "{name}"
cluster = "{cluster}"
listen = "{host}:{port}"
ports = {{ 1 = {node_port} }}
"""
_SHOAL_LISTENER_TLS = """\
[listener.tls]
certificate = "{certificate}"
"""


def shoal(listeners: Iterable[Listener], broker: BrokerAddresses, materials: Materials) -> str:
    def section(listener: Listener) -> str:
        text = _SHOAL_LISTENER.format(
            name=listener.name,
            cluster="tls" if listener.placement.to_brokers else "plain",
            host=listener.address[0],
            port=listener.address[1],
            node_port=listener.node_port,
        )
        certificate = materials.servers[listener.key_type]
        return text + (_SHOAL_LISTENER_TLS.format(certificate=certificate) if listener.placement.to_clients else "")

    text = _SHOAL_CLUSTER.format(name="plain", host=broker.plain[0], port=broker.plain[1])
    if broker.tls is not None:
        text += _SHOAL_CLUSTER.format(name="tls", host=broker.tls[0], port=broker.tls[1])
        text += _SHOAL_CLUSTER_TLS.format(ca=materials.ca)
    return text + "".join(map(section, listeners))


_KROXYLICIOUS_TARGET = """\
  - name: {name}
    targetCluster:
      bootstrapServers: {broker_host}:{broker_port}
{target}\
    gateways:
      - name: clients
        portIdentifiesNode:
          bootstrapAddress: {host}:{port}
          nodeStartPort: {node_port}
          nodeIdRanges:
            - {{name: broker, start: 1, end: 1}}
{gateway}"""
_KROXYLICIOUS_TRUST = """\
      tls:
        trust: {{storeFile: "{ca}", storeType: PEM}}
        cipherSuites: {{allowed: [{cipher}]}}
"""
_KROXYLICIOUS_KEY = """\
        tls:
          key: {{privateKeyFile: "{key}", certificateFile: "{key}"}}
          cipherSuites: {{allowed: [{cipher}]}}
"""


def kroxylicious(listeners: Iterable[Listener], broker: BrokerAddresses, materials: Materials) -> str:
    def virtual_cluster(listener: Listener) -> str:
        host, port = broker.address(listener.placement)
        trust = _KROXYLICIOUS_TRUST.format(ca=materials.ca, cipher=CIPHER)
        key = _KROXYLICIOUS_KEY.format(key=materials.servers[listener.key_type], cipher=CIPHER)
        return _KROXYLICIOUS_TARGET.format(
            name=listener.name,
            broker_host=host,
            broker_port=port,
            target=trust if listener.placement.to_brokers else "",
            host=listener.address[0],
            port=listener.address[1],
            node_port=listener.node_port,
            gateway=key if listener.placement.to_clients else "",
        )

    return "virtualClusters:\n" + "".join(map(virtual_cluster, listeners))


def kafka_proxy(listener: Listener, broker: BrokerAddresses, materials: Materials) -> list[str]:
    """Arguments: all listeners of one process have the same TLS."""
    host, port = broker.address(listener.placement)
    mapping = f"{host}:{port},{listener.address[0]}:{listener.address[1]}"
    arguments = ["server", "--bootstrap-server-mapping", mapping, "--http-disable"]
    if listener.placement.to_clients:
        key = str(materials.servers[listener.key_type])
        arguments += ["--proxy-listener-tls-enable"]
        arguments += ["--proxy-listener-key-file", key, "--proxy-listener-cert-file", key]
    if listener.placement.to_brokers:
        arguments += ["--tls-enable", "--tls-ca-chain-cert-file", str(materials.ca)]
    return arguments
