"""GSSAPI's exchange, with a library that is played."""

from __future__ import annotations

import pytest

from shoal.protocol.sasl.kerberos import gssapi_tokens
from shoal.protocol.wire.errors import RemoteProtocolError


class Context:
    """Kerberos with mutual authentication: complete after the broker's first token."""

    def __init__(self) -> None:
        self.is_complete = False
        self.steps: list[bytes | None] = []

    def step(self, token: bytes | None) -> bytes | None:
        self.steps.append(token)
        if token is None:
            return b"AP-REQ"
        self.is_complete = True
        return None

    def unwrap(self, message: bytes) -> bytes:
        assert message.startswith(b"wrapped ")
        return message.removeprefix(b"wrapped ")

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message


def test_the_exchange_of_kafka_s_brokers() -> None:
    context = Context()
    exchange = gssapi_tokens(context)
    assert next(exchange) == b"AP-REQ"
    assert exchange.send(b"AP-REP") == b""
    assert context.steps == [None, b"AP-REP"]
    assert exchange.send(b"wrapped \x07\x00\x10\x00") == b"wrapped \x01\x00\x00\x00", "no security layer"
    with pytest.raises(StopIteration):
        exchange.send(b"")


@pytest.mark.parametrize("offered", [b"\x02\x00\x10\x00", b"", b"\x01", b"\x01\x00\x00\x00\x00"])
def test_a_broker_without_the_layer_that_kafka_needs(offered: bytes) -> None:
    exchange = gssapi_tokens(Context())
    next(exchange)
    exchange.send(b"AP-REP")
    with pytest.raises(RemoteProtocolError, match="security layer"):
        exchange.send(b"wrapped " + offered)
