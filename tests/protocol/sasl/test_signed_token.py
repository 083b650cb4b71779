"""Signed tokens as a stranger may send them."""

import json
from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.sasl.signed_token import BadToken, read_signed_token


def segment(content: object) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


HEADER, CLAIMS, SIGNATURE = {"alg": "RS256", "kid": "k"}, {"sub": "service"}, "c2lnbmF0dXJl"


def test_the_parts_of_a_token() -> None:
    found = read_signed_token(f"{segment(HEADER)}.{segment(CLAIMS)}.{SIGNATURE}")
    assert (found.algorithm, found.key_id, found.signature) == ("RS256", "k", b"signature")
    assert found.signed == f"{segment(HEADER)}.{segment(CLAIMS)}".encode()
    assert found.claims() == CLAIMS
    assert "c2ln" not in repr(found)
    assert segment(CLAIMS) not in repr(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not a signed JWT: 0 dots, not 2"),
        ("a.b.c.d", "it is not a signed JWT: 3 dots, not 2"),
        ("..", "its header cannot be read"),
        (f"{segment([])}.e30.", "its header is not a JSON object"),
        (f"{segment({})}.e30.", "its header names no algorithm, or its key by something else than a text"),
        (
            f"{segment({'alg': ['RS256']})}.e30.",
            "its header names no algorithm, or its key by something else than a text",
        ),
        (
            f"{segment({'alg': 'RS256', 'kid': 1})}.e30.",
            "its header names no algorithm, or its key by something else than a text",
        ),
        (
            f"{segment({'alg': 'RS256', 'crit': ['exp']})}.e30.",
            "its header has extensions that change its meaning (crit, b64)",
        ),
        (
            f"{segment({'alg': 'RS256', 'b64': False})}.e30.",
            "its header has extensions that change its meaning (crit, b64)",
        ),
        (f"{segment(HEADER)}.e30.a", "its signature is not base64url"),
        (f"{segment(HEADER)}.e30.YWJj=", "its signature is not base64url"),
        (f"{segment(HEADER)}.e30.YW\nJj", "its signature is not base64url"),
        (f"{segment(HEADER)}.e30.YW+/", "its signature is not base64url"),
        (f"{'A' * 16385}.e30.", "its header has 16385 characters: at most 16384 are allowed"),
        ("//4xADE.e30.", "its header is not base64url"),
    ],
)
def test_what_is_no_token(text: str, why: str) -> None:
    with pytest.raises(BadToken) as caught:
        read_signed_token(text)
    assert str(caught.value) == why


@pytest.mark.parametrize("claims", ["", "e", "W10", "_____w", segment("text"), "W1tb" * 20_000])
def test_claims_are_not_read_before_the_signature_is_checked(claims: str) -> None:
    found = read_signed_token(f"{segment(HEADER)}.{claims}.")
    with pytest.raises(BadToken):
        found.claims()


@given(st.text(max_size=60) | st.text("ab.-_=", max_size=60))
def test_any_text(text: str) -> None:
    with suppress(BadToken):
        read_signed_token(text).claims()
