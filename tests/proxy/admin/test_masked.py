"""/config shows all settings, and no part in which an operator may have written a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.proxy.admin.masked import MASK, effective
from shoal.proxy.config.toml import read_config

SECRET = "c0ral-Rq-hidden"
TEXT = f"""
[admin]
listen = "127.0.0.1:9190"

[[cluster]]
name = "command"
bootstrap = "b1:9093"
[cluster.tls]
key = "/etc/shoal/client.key"
certificate = "/etc/shoal/client.pem"
key-password = {{ env = "KEY_PASSWORD" }}
[cluster.sasl]
mechanism = "OAUTHBEARER"
token-command = ["/opt/token", "--password", "{SECRET}"]
extensions = {{ tenant = "{SECRET}" }}

[[cluster]]
name = "endpoint"
bootstrap = "b2:9093"
[cluster.tls]
[cluster.sasl]
mechanism = "OAUTHBEARER"
token-endpoint = "https://issuer.example/token?key={SECRET}"
client-id = "shoal"
client-secret = {{ file = "/etc/shoal/client-secret" }}

[[cluster]]
name = "plain"
bootstrap = "b3:9093"
[cluster.tls]
[cluster.sasl]
mechanism = "PLAIN"
username = "mirror"
password = {{ file = "/etc/shoal/password" }}

[[listener]]
name = "l"
cluster = "plain"
listen = "127.0.0.1:9092"
ports = "9093-9095"
[listener.tls]
certificate = "/etc/shoal/server.pem"
[listener.sasl]
mechanisms = ["OAUTHBEARER"]
jwks-endpoint = "https://issuer.example/keys?key={SECRET}"
issuer = "https://issuer.example"
audience = "shoal"
"""


@pytest.fixture
def shown() -> Any:
    settings = read_config(TEXT, Path("/etc/shoal/shoal.toml"))
    return json.loads(msgspec.json.encode(effective(settings), enc_hook=str))


def test_no_secret_is_shown(shown: Any) -> None:
    assert SECRET not in json.dumps(shown)


def test_the_rest_is_shown(shown: Any) -> None:
    command, endpoint, plain = (cluster["sasl"] for cluster in shown["cluster"])
    assert command["token-command"] == ["/opt/token", MASK, MASK]
    assert command["extensions"] == {"tenant": MASK}
    assert endpoint["token-endpoint"] == f"https://issuer.example/token?{MASK}"
    assert endpoint["client-secret"] == {"file": "/etc/shoal/client-secret"}
    assert plain["password"] == {"file": "/etc/shoal/password"}
    assert shown["cluster"][0]["tls"]["key-password"] == {"env": "KEY_PASSWORD"}
    assert shown["listener"][0]["sasl"]["jwks-endpoint"] == f"https://issuer.example/keys?{MASK}"
    assert shown["listener"][0]["listen"] == "127.0.0.1:9092"
