"""[listener.access] and proxy-protocol: what cannot work is named with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.toml import read_config

FILE = """
[[cluster]]
name = "c"
bootstrap = ["b1:9092"]

[[listener]]
name = "l"
cluster = "c"
listen = "127.0.0.1:9092"
ports = "9100-9110"
{listener}
[listener.access]
{access}
"""


@pytest.mark.parametrize(
    ("listener", "access", "expected"),
    [
        ("", "connections-per-address = 0", "access.connections-per-address: 0 is too small"),
        ("", "new-connections-per-second = -1.0", "access.new-connections-per-second: -1.0 is too small"),
        ("", "bytes-per-second = 10", "access.bytes-per-second: 10 is too small: at least 1024"),
        ("", 'client-bytes-per-second = "1"', "client-bytes-per-second"),
        ("", 'principals = ["alice"]', "access.principals: lets no client in"),
        ("", "principals = []", "access.principals: is empty, which would let in every client"),
        ("", "client-ids = []", "access.client-ids: is empty, which would let in every client"),
        ("", "addresses = []", "access.addresses: is empty, which would let in every client"),
        ("", 'client-ids = ["("]', "access.client-ids"),
        ("", 'addresses = ["10.0.0.1/8"]', "access.addresses"),
        ('proxy-protocol = ["0.0.0.0/0"]', "", "proxy-protocol: 0.0.0.0/0 trusts every client"),
        ('proxy-protocol = ["::ffff:0:0/96"]', "", "proxy-protocol: 0.0.0.0/0 trusts every client"),
        ('proxy-protocol = ["::/0"]', "", "proxy-protocol: ::/0 trusts every client"),
    ],
)
def test_mistakes(listener: str, access: str, expected: str) -> None:
    with pytest.raises(OperatorError) as raised:
        read_config(FILE.format(listener=listener, access=access), Path("shoal.toml"))
    (problem,) = raised.value.problems
    assert expected in str(problem)


def test_what_is_written_arrives() -> None:
    access = 'addresses = ["10.0.0.0/8", "2001:db8::/32"]\nclient-ids = ["a-.*"]\nbytes-per-second = "10MiB"'
    settings = read_config(FILE.format(listener='proxy-protocol = ["10.1.0.0/16"]', access=access), Path("shoal.toml"))
    (listener,) = settings.listeners
    assert list(map(str, listener.access.addresses)) == ["10.0.0.0/8", "2001:db8::/32"]
    assert listener.access.client_ids == ("a-.*",)
    assert listener.access.bytes_per_second == 10 * 1024 * 1024
