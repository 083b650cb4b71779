"""OAUTHBEARER: tokens as in RFC 7628, and what a token says of itself."""

from __future__ import annotations

import base64
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.sasl.oauth import TokenRefused, bad_extension, claims, expiry, is_token, oauth_tokens, token_faults

NOW = 1_780_000_000
KEY = "a key of more than thirty-two bytes, as HS256 wants"


def signed(**said: object) -> str:
    return jwt.encode(said, KEY, algorithm="HS256")


def test_the_first_token_is_that_of_rfc_7628_without_an_authorization_id() -> None:
    exchange = oauth_tokens("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", {"traceId": "7", "tenant": "a b"})
    first = b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01traceId=7\x01tenant=a b\x01\x01"
    assert next(exchange) == first
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_an_error_is_answered_with_one_byte_and_then_raised() -> None:
    exchange = oauth_tokens("t")
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(TokenRefused, match="invalid_token"):
        exchange.send(b"")


@pytest.mark.parametrize(
    ("text", "is_one"), [("abc.d-e_f~g+h/i==", True), ("", False), ("a b", False), ("a\n", False), ("=a", False)]
)
def test_what_a_token_is(text: str, is_one: bool) -> None:
    assert is_token(text) is is_one


def test_extensions_have_names_of_letters_and_printable_values() -> None:
    assert bad_extension("traceId", "a b") is None
    for name, value in (("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "\x01")):
        assert bad_extension(name, value)


def test_claims_are_those_of_the_token() -> None:
    token = signed(sub="alice", exp=NOW)
    assert claims(token)["sub"] == "alice"
    assert expiry(token) == NOW
    assert expiry(signed(exp="soon")) is None
    assert expiry(signed(exp=True)) is None
    assert claims("opaque") == {}


def test_why_a_broker_may_refuse_a_token() -> None:
    assert list(token_faults(signed(exp=NOW + 1, iat=NOW + 4), NOW)) == []
    (expired,) = token_faults(signed(exp=NOW, iat=NOW - 60), NOW)
    assert expired == "the token expired at 2026-05-28 20:26:40 UTC by this machine's clock"
    (early,) = token_faults(signed(exp=NOW + 99, nbf=NOW + 60), NOW)
    assert "valid only from 2026-05-28 20:27:40 UTC on: the clocks" in early
    assert list(token_faults(signed(exp=-(10**30)), NOW))


@given(st.binary(), st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
def test_no_text_is_too_strange(raw: bytes, value: object) -> None:
    for payload in (raw, json.dumps({"exp": value, "iat": value}).encode()):
        token = f"e30.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.x"
        list(token_faults(token, NOW))
