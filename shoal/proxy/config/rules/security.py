"""Keys of TLS and of routing by SNI that cannot work together. Files are read later (`net/tls/contexts.py`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shoal.proxy.config.problems import Problem
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls, Routing, Secret
from shoal.proxy.config.settings import PortMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.proxy.config.settings import ListenerSettings, Settings

__all__ = ["check_routing", "check_tls", "secret_problem"]


def check_tls(settings: Settings, where: Callable[[int, str], str]) -> Iterator[Problem]:
    for index, cluster in enumerate(settings.clusters):
        if cluster.tls is not None:
            for key, what in _cluster(cluster.tls):
                yield Problem(f"cluster[{index}].tls.{key}", what)
    for index, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            for key, what in _listener(listener.tls):
                yield Problem(where(index, f"tls.{key}"), what)


def check_routing(settings: Settings, where: Callable[[int, str], str]) -> Iterator[Problem]:
    for index, listener in enumerate(settings.listeners):
        problems = _sni(listener) if listener.routing is Routing.SNI else _ports(listener)
        for key, what in problems:
            yield Problem(where(index, key), what)


def _ports(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    for key, value in (("broker-host", listener.broker_host), ("advertise-port", listener.advertised_port)):
        if value is not None:
            yield key, 'needs routing = "sni"'


def _sni(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    if listener.tls is None:
        yield "routing", "needs TLS, because only a TLS client names its server: write a [listener.tls] table"
    if listener.nodes != PortMap(ports={}):
        yield "ports", 'has no effect with routing = "sni", where all brokers share the port of listen: remove it'
    if listener.advertised_host is None:
        yield "advertise", 'is missing: routing = "sni" needs the name of the bootstrap server, as "shoal.example"'
    if listener.advertised_port is not None and not 1 <= listener.advertised_port <= 65535:
        yield "advertise-port", f"{listener.advertised_port} is not a number from 1 to 65535"
    host = listener.broker_host
    if host is None:
        yield "broker-host", 'is missing: write the name of each broker, as "broker-{node}.shoal.example"'
    elif host.count("{node}") != 1 or not _HOST_NAME.fullmatch(host.replace("{node}", "1")):
        yield "broker-host", f'"{host}" is not a host name with {{node}} in it, as "broker-{{node}}.shoal.example"'


_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_.-]*")


def _cluster(tls: ClusterTls) -> Iterator[tuple[str, str]]:
    yield from _common(tls)
    if tls.certificate is None:
        for key, value in (("key", tls.key), ("key-password", tls.key_password)):
            if value is not None:
                yield key, "needs certificate: set it to the file with the certificate of this key"


def _listener(tls: ListenerTls) -> Iterator[tuple[str, str]]:
    yield from _common(tls)
    if tls.client_ca is None and tls.client_auth is not ClientAuth.NONE:
        what = f'is "{tls.client_auth}" without client-ca: set it to the CA of the clients\' certificates'
        yield "client-auth", what
    if tls.client_ca is not None and tls.client_auth is ClientAuth.NONE:
        yield "client-ca", 'has no effect without client-auth: set client-auth = "required" or "optional"'


def _common(tls: ClusterTls | ListenerTls) -> Iterator[tuple[str, str]]:
    if tls.ciphers is not None and tls.min_version == "1.3":
        yield "ciphers", 'is for TLS 1.2, but min-version is "1.3": remove one of them'
    if (password := tls.key_password) is not None and (problem := secret_problem(password)):
        yield "key-password", problem


def secret_problem(secret: Secret) -> str | None:
    if (secret.file is None) == (secret.env is None):
        return 'needs one of file and env: write { file = "..." } or { env = "NAME" }'
    return None
