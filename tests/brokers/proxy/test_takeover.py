"""`shoal run --takeover` under load, with each kind of listener: no request fails, no record is lost or doubled, and no
connection is refused or reset."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.brokers.proxy.rig.data import new_topic
from tests.support.shoal_process import free_port_block
from tests.support.takeover_load import PLAIN, Kind, take_over_under_load

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.certificates import Authority

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("forgotten_sockets")]
BY_NAME = "0x7f.0.1"  # 127.0.0.1 to the resolver, and a name to librdkafka and OpenSSL
BROKER = "0x7f.{node}"  # 127.0.0.1, 127.0.0.2, 127.0.0.3
FROM_BALANCER = b"PROXY TCP4 10.9.8.7 10.9.8.6 1 2\r\n"


def tls(authority: Authority, *names: str) -> dict[str, object]:
    shown = authority.server(*names)
    return {"certificate": str(shown.certificate), "key": str(shown.key)}


def kinds(name: str, authority: Authority) -> Kind:
    secure = {
        "client": ClientSecurity(ca=authority.certificate).librdkafka(),
        "tls": ssl.create_default_context(cafile=authority.certificate),
        "for_all": False,
        "rate": 50,  # a handshake costs 2 ms
    }
    match name:
        case "coalescing" | "legacy":
            return Kind(listener={name.replace("coalescing", "coalesce"): True})
        case "admin":
            return Kind(document={"admin": {"listen": f"{LOOPBACK}:{free_port_block(1)}"}})
        case "workers":
            return Kind(document={"workers": 2})
        case "tls":
            return Kind(listener={"tls": tls(authority, LOOPBACK)}, **secure)  # type: ignore[arg-type]
        case "sni":
            hosts = [BROKER.format(node=node) for node in (1, 2, 3)]
            names = {"routing": "sni", "ports": None, "advertise": BY_NAME, "broker-host": BROKER}
            listener = {**names, "tls": tls(authority, BY_NAME, *hosts)}
            return Kind(listener=listener, host=BY_NAME, listen="*", **secure)  # type: ignore[arg-type]
        case _:
            return PLAIN


@pytest.mark.parametrize("name", ["plain", "coalescing", "legacy", "admin", "workers", "tls", "sni"])
async def test_no_request_fails(name: str, brokers: Cluster, authority: Authority, tmp_path: Path) -> None:
    topic = new_topic(brokers, [[1], [2], [3]])
    found = await take_over_under_load([brokers.bootstrap], topic, tmp_path, times=5, kind=kinds(name, authority))
    assert not found.failed, found
    assert found.produced == found.acknowledged == found.stored, found
    assert found.brief > 500, found
