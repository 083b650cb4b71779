"""Tokens as in the examples of the RFCs, and servers that fail to prove their identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.sasl.client import Credentials, tokens
from shoal.protocol.wire.errors import RemoteProtocolError

PENCIL = Credentials(mechanism="SCRAM-SHA-256", username="user", password="pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
# RFC 7677, section 3
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_is_one_token() -> None:
    exchange = tokens(Credentials(mechanism="PLAIN", username="alice", password="a secret"), "unused")
    assert next(exchange) == b"\0alice\0a secret"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_scram_as_in_rfc_7677() -> None:
    exchange = tokens(PENCIL, NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(CHALLENGE) == PROOF
    with pytest.raises(StopIteration):
        exchange.send(SIGNATURE)


def test_signs_that_mean_something_are_escaped_in_names() -> None:
    exchange = tokens(Credentials(mechanism="SCRAM-SHA-512", username="a=b,c", password=""), "n")
    assert next(exchange) == b"n,,n=a=3Db=2Cc,r=n"


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    exchange = tokens(PENCIL, NONCE)
    next(exchange)
    exchange.send(CHALLENGE)
    with pytest.raises(RemoteProtocolError, match="does not know the password"):
        exchange.send(SIGNATURE.replace(b"6rri", b"7rri"))


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"r=rOpr", b"r=xOpr"),
        CHALLENGE.replace(b"i=4096", b"i=4000000000"),
        CHALLENGE.replace(b"i=4096", b"i=4095"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CHALLENGE.replace(b"i=4096", b"i=many"),
        CHALLENGE.replace(b"s=W22", b"s=!!!"),
        b"e=unknown-user",
        b"",
    ],
)
def test_a_challenge_that_is_none_is_the_server_s_mistake(challenge: bytes) -> None:
    exchange = tokens(PENCIL, NONCE)
    next(exchange)
    with pytest.raises(RemoteProtocolError):
        exchange.send(challenge)


@given(st.binary(max_size=80))
def test_nothing_else_is_raised(challenge: bytes) -> None:
    exchange = tokens(PENCIL, NONCE)
    next(exchange)
    with pytest.raises(RemoteProtocolError):
        exchange.send(challenge)


def test_a_long_challenge_is_not_read() -> None:
    exchange = tokens(PENCIL, NONCE)
    next(exchange)
    with pytest.raises(RemoteProtocolError, match="challenge has 5000 bytes"):
        exchange.send(b"," * 5000)


def test_a_password_is_not_shown() -> None:
    assert "pencil" not in repr(PENCIL)
