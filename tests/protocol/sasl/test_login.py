"""A login's requests, answered by the server's side of this folder."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_authenticate, read_handshake
from shoal.protocol.sasl.client import Credentials, tokens
from shoal.protocol.sasl.login import Granted, LoginRefused, Refusal, log_in, log_in_again
from shoal.protocol.sasl.oauth import oauth_tokens
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.sasl.login import Talk
    from shoal.protocol.sasl.scram import Exchange

FAILED, UNSUPPORTED, ILLEGAL = (
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
)


class Broker:
    """`check` gets a token and returns the server's, or None to refuse."""

    def __init__(
        self,
        check: Callable[[bytes], bytes | None],
        *,
        version: int = 2,
        lifetime_ms: int = 0,
        handshake: tuple[ErrorCode, tuple[str, ...]] = (ErrorCode.NONE, ("PLAIN",)),
    ) -> None:
        self.check = check
        self.version = version
        self.lifetime_ms = lifetime_ms
        self.handshake = handshake
        self.asked: list[tuple[int, int]] = []

    def answer(self, frame: bytes) -> bytes:
        header = read_request_header(frame)
        self.asked.append((header.api_key, header.api_version))
        if header.api_key == ApiKey.API_VERSIONS:
            apis = [(ApiKey.SASL_HANDSHAKE, 1), (ApiKey.SASL_AUTHENTICATE, self.version)]
            body = b"".join(struct.pack(">hhh", key, 0, newest) for key, newest in apis if newest >= 0)
            count = len(body) // 6
            return struct.pack(">iihi", 10 + len(body), header.correlation_id, 0, count) + body
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            read_handshake(frame, header)
            return answer_handshake(header, *self.handshake)
        token = self.check(read_authenticate(frame, header))
        if token is None:
            return answer_authenticate(header, error=FAILED, why="no")
        return answer_authenticate(header, token=token, lifetime_ms=self.lifetime_ms)


def run(talk: Talk, broker: Broker) -> Granted:
    try:
        request = next(talk)
        while True:
            request = talk.send(broker.answer(request))
    except StopIteration as end:
        granted: Granted = end.value
        return granted


def plain(name: str = "alice", password: str = "right") -> Talk:
    return log_in("PLAIN", tokens(Credentials(mechanism="PLAIN", username=name, password=password), "n"), "shoal")


def takes(expected: bytes) -> Callable[[bytes], bytes | None]:
    return lambda token: b"" if token == expected else None


@pytest.mark.parametrize(("version", "lifetime_ms", "known"), [(0, 5000, 0), (1, 5000, 5000), (2, 5000, 5000)])
def test_all_versions(version: int, lifetime_ms: int, known: int) -> None:
    broker = Broker(takes(b"\0alice\0right"), version=version, lifetime_ms=lifetime_ms)
    assert run(plain(), broker) == Granted(known, version)
    assert broker.asked == [(18, 0), (17, 1), (36, version)]


def test_a_second_login_asks_for_no_versions() -> None:
    broker = Broker(takes(b"\0alice\0right"))
    before = run(plain(), broker)
    broker.asked.clear()
    exchange = tokens(Credentials(mechanism="PLAIN", username="alice", password="right"), "n")
    assert run(log_in_again(before, "PLAIN", exchange, "shoal"), broker) == before
    assert broker.asked == [(17, 1), (36, 2)]


@pytest.mark.parametrize(
    ("broker", "refusal", "words"),
    [
        (Broker(takes(b"")), Refusal.CREDENTIALS, "does not let the user in: error 58 .*: no"),
        (Broker(takes(b""), handshake=(UNSUPPORTED, ("GSSAPI", "A"))), Refusal.MECHANISM, "it offers GSSAPI, A"),
        (Broker(takes(b""), handshake=(ILLEGAL, ())), Refusal.NO_SASL, "no SASL on this port"),
        (Broker(takes(b""), version=-1), Refusal.OTHER, "older than Kafka 1.0"),
    ],
)
def test_refusals(broker: Broker, refusal: Refusal, words: str) -> None:
    with pytest.raises(LoginRefused, match=words) as refused:
        run(plain(), broker)
    assert refused.value.refusal is refusal


def test_a_token_that_the_broker_explains() -> None:
    """RFC 7628: a challenge with the error, one byte, then the end."""
    answers = iter([b'{"status":"invalid_token"}', b""])
    with pytest.raises(LoginRefused, match=r"refuses the token: .*invalid_token") as refused:
        run(log_in("OAUTHBEARER", oauth_tokens("t"), "shoal"), Broker(lambda _: next(answers)))
    assert refused.value.refusal is Refusal.CREDENTIALS


def test_a_broker_that_never_ends() -> None:
    def endless() -> Exchange:
        while True:
            yield b"more"

    with pytest.raises(RemoteProtocolError, match="more than 20 SASL tokens"):
        run(log_in("GSSAPI", endless(), "shoal"), Broker(lambda _: b"more"))


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_bytes_that_are_no_answers(answers: list[bytes]) -> None:
    talk = plain()
    request = next(talk)
    try:
        for answer in answers:
            correlation = struct.pack(">i", read_request_header(request).correlation_id)
            frame = struct.pack(">i", 4 + len(answer)) + correlation + answer
            request = talk.send(frame)
    except (RemoteProtocolError, LoginRefused, StopIteration):
        pass
