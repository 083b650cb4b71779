"""Tokens of OAUTHBEARER: which are valid, with which keys, and when the issuer is asked for them."""

from __future__ import annotations

import base64
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import jwt
import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.sasl.server import Verified
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.security import ListenerSasl
from shoal.proxy.listener.login.bearer import SKEW_SECONDS, BearerTokens
from shoal.proxy.listener.login.key_set import OLD_SECONDS, RETRY_SECONDS, KeySet
from tests.support.rig import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

ISSUER, AUDIENCE = "https://issuer.test", "kafka"
NOW = 1_700_000_000.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
PRIVATE: dict[str, Any] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), RSA),
    **{name: ec.generate_private_key(curve) for name, curve in CURVES.items()},
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def public(algorithm: str, key: Any, **more: object) -> dict[str, object]:
    made: dict[str, object] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, **more}


def key_set(*keys: dict[str, object]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


ALL = key_set(*(public(name, PRIVATE[name], kid=name) for name in ("RS256", *CURVES, "EdDSA")))
KID = {name: name if name in (*CURVES, "EdDSA") else "RS256" for name in PRIVATE}


def token(algorithm: str = "RS256", key: Any = None, kid: str | None = "", **claims: object) -> str:
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "service", "exp": NOW + 300, **claims}
    headers = {} if kid is None else {"kid": kid or KID.get(algorithm, "RS256")}
    wanted = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(wanted, key or PRIVATE[algorithm], algorithm, headers=headers)


class Issuer:
    """The endpoint, and a clock."""

    def __init__(
        self,
        content: bytes | Exception | threading.Event = ALL,
        *,
        clock: Callable[[], float] | None = None,
        **settings: Any,
    ) -> None:
        self.content = content
        self.asked = 0
        self.now = 1000.0
        sasl = ListenerSasl(
            mechanisms=("OAUTHBEARER",),
            jwks_endpoint="https://issuer.test/jwks?key=api-7f3",
            issuer=ISSUER,
            audience=AUDIENCE,
            **settings,
        )
        self.keys = KeySet(sasl, "test", clock=clock or (lambda: self.now), fetch=self._fetch)
        self.tokens = BearerTokens(sasl, self.keys, clock=lambda: NOW)

    def _fetch(self) -> bytes:
        self.asked += 1
        if isinstance(self.content, Exception):
            raise self.content
        if isinstance(self.content, threading.Event):
            self.content.wait(20)
            return b""
        return self.content

    async def verify(self, text: str) -> Verified | str:
        return await self.tokens.verify(text)


VALID = Verified(principal="service", expires_at=NOW + 300)


@pytest.mark.parametrize("algorithm", PRIVATE)
async def test_every_asymmetric_algorithm(algorithm: str) -> None:
    assert await Issuer().verify(token(algorithm)) == VALID


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://other.test"}, "it is of another issuer (iss)"),
        ({"iss": ISSUER[:-1]}, "it is of another issuer (iss)"),
        ({"iss": None}, "it is of another issuer (iss)"),
        ({"aud": "other"}, "it is for another audience (aud)"),
        ({"aud": AUDIENCE[:-1]}, "it is for another audience (aud)"),
        ({"aud": ["other", AUDIENCE + "-2"]}, "it is for another audience (aud)"),
        ({"aud": [[AUDIENCE]]}, "it is for another audience (aud)"),
        ({"aud": {AUDIENCE: 1}}, "it is for another audience (aud)"),
        ({"aud": None}, "it is for another audience (aud)"),
        ({"exp": None}, "exp or nbf is not a number"),
        ({"exp": NOW - SKEW_SECONDS - 1}, "it expired 61 s ago"),
        ({"exp": True}, "exp or nbf is not a number"),
        ({"exp": 10**400}, "exp or nbf is not a number"),
        ({"exp": float("nan")}, "exp or nbf is not a number"),
        ({"exp": str(NOW)}, "exp or nbf is not a number"),
        ({"nbf": "now"}, "exp or nbf is not a number"),
        ({"nbf": NOW + SKEW_SECONDS + 5}, "it is not valid for another 65 s"),
        ({"sub": None}, "its claim 'sub' is not a name"),
        ({"sub": ["service"]}, "its claim 'sub' is not a name"),
        ({"sub": "a\nb"}, "its claim 'sub' is not a name"),
    ],
)
async def test_a_claim_that_is_wrong(claims: dict[str, Any], why: str) -> None:
    assert await Issuer().verify(token(**claims)) == why


async def test_clocks_may_differ_a_little() -> None:
    expired = await Issuer().verify(token(exp=NOW - SKEW_SECONDS + 1, nbf=NOW + SKEW_SECONDS - 1))
    assert isinstance(expired, Verified)


async def test_one_of_several_audiences() -> None:
    assert await Issuer().verify(token(aud=["other", AUDIENCE])) == VALID


async def test_another_claim_has_the_name() -> None:
    issuer = Issuer(principal_claim="client_id")
    found = await issuer.verify(token(client_id="mirror"))
    assert isinstance(found, Verified)
    assert found.principal == "mirror"


def unsigned(algorithm: str) -> str:
    parts = ({"alg": algorithm, "kid": "RS256"}, {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "exp": NOW + 9})
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{head}.{body}."


async def test_no_shared_secret_and_no_unsigned_token() -> None:
    issuer = Issuer()
    forged = jwt.encode({"sub": "x"}, "a shared secret of thirty-two bytes", "HS256", headers={"kid": "RS256"})
    for text in (forged, unsigned("none"), unsigned("None"), unsigned("HS256"), "abc", "a.b.c", ""):
        assert isinstance(await issuer.verify(text), str)
    assert issuer.asked == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64"]), inner),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({"alg": JSON, "kid": JSON, "typ": JSON}), JSON, st.binary(max_size=70))
def test_no_token_raises(header: object, claims: object, signature: bytes) -> None:
    parts = json.dumps(header).encode(), json.dumps(claims).encode(), signature
    text = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    assert isinstance(trio.run(Issuer().verify, text), str)


async def test_a_token_of_many_brackets() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 90_000).decode()
    assert (
        await Issuer().verify(f"{deep}.{deep}.{deep}") == "its header has 120000 characters: at most 16384 are allowed"
    )
    assert await Issuer().verify(f"{deep[:8000]}.{deep}.{deep}") == "its header cannot be read"
    assert isinstance(await Issuer(b"[" * 900_000).verify(token()), str)


async def test_a_signature_of_another_key_or_kind() -> None:
    issuer = Issuer()
    assert await issuer.verify(token(key=OTHER)) == "its signature is wrong"
    assert await issuer.verify(token("RS256", kid="ES256")) == "the issuer has no key of this id and algorithm"


async def test_a_token_without_a_key_id_needs_an_issuer_with_one_key() -> None:
    assert await Issuer(key_set(public("RS256", RSA))).verify(token(kid=None)) == VALID
    two = Issuer(key_set(public("RS256", OTHER, kid="a"), public("RS256", RSA, kid="b")))
    assert isinstance(await two.verify(token(kid=None)), str)


@pytest.mark.parametrize(
    "keys",
    [
        b"",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "RS256"}]}',
        key_set(public("RS256", RSA, kid="RS256", use="enc")),
        key_set(public("RS256", rsa.generate_private_key(public_exponent=65537, key_size=1024), kid="RS256")),
        key_set({"kty": "RSA", "n": "!", "e": "AQAB", "kid": "RS256"}),
    ],
)
async def test_keys_that_are_none(keys: bytes, caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer(keys)
    assert isinstance(await issuer.verify(token()), str)
    assert "no client can log in with OAUTHBEARER" in caplog.text


async def test_a_key_with_an_algorithm_is_for_no_other() -> None:
    issuer = Issuer(key_set(public("RS256", RSA, kid="RS256", alg="PS256")))
    assert isinstance(await issuer.verify(token("RS256")), str)
    assert await issuer.verify(token("PS256")) == VALID


async def test_a_new_key_is_asked_for_and_not_too_often() -> None:
    issuer = Issuer(key_set(public("RS256", OTHER, kid="old")))
    for _ in range(5):
        assert isinstance(await issuer.verify(token(kid="new")), str)
    assert issuer.asked == 1
    issuer.content = key_set(public("RS256", RSA, kid="new"))
    issuer.now += RETRY_SECONDS
    assert await issuer.verify(token(kid="new")) == VALID
    assert issuer.asked == 2
    assert await issuer.verify(token(kid="new")) == VALID
    assert issuer.asked == 2


async def test_old_keys_stay_while_the_endpoint_fails(caplog: pytest.LogCaptureFixture, mock_clock: MockClock) -> None:
    """No client logs in meanwhile."""
    issuer = Issuer(clock=trio.current_time)

    async def pass_by(seconds: float, asked: int) -> None:
        mock_clock.jump(seconds - 1)
        await trio.testing.wait_all_tasks_blocked()
        assert issuer.asked == asked - 1
        mock_clock.jump(1)
        await until(lambda: issuer.asked == asked and not issuer.keys._lock.locked())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(issuer.tokens.keep_fresh)
        await until(lambda: issuer.asked == 1 and not issuer.keys._lock.locked())
        issuer.content = OSError("it is down")
        await pass_by(OLD_SECONDS, 2)
        await pass_by(RETRY_SECONDS, 3)
        assert await issuer.verify(token()) == VALID
        issuer.content = key_set(public("RS256", OTHER, kid="RS256"))
        await pass_by(RETRY_SECONDS, 4)
        assert await issuer.verify(token()) == "its signature is wrong", "its key is withdrawn"
        await pass_by(OLD_SECONDS, 5)
        nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "listener 'test': https://issuer.test/jwks?*** cannot be used: OSError: it is down: the keys from before stay"
    ]


async def test_an_endpoint_that_hangs_delays_no_token_of_a_known_key() -> None:
    """Only one of an unknown key waits for it."""
    hangs = threading.Event()
    issuer = Issuer()
    assert await issuer.verify(token()) == VALID
    issuer.content = hangs
    issuer.now += 2 * OLD_SECONDS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(issuer.verify, token(kid="unknown"))
        await until(lambda: issuer.asked == 2)
        with trio.fail_after(5):
            assert await issuer.verify(token()) == VALID
        hangs.set()


async def test_keys_of_a_file_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set(public("RS256", OTHER, kid="old")))
    sasl = ListenerSasl(mechanisms=("OAUTHBEARER",), jwks=file, issuer=ISSUER, audience=AUDIENCE)
    now = [0.0]
    tokens = BearerTokens(sasl, KeySet(sasl, "test", clock=lambda: now[0]), clock=lambda: NOW)
    assert isinstance(await tokens.verify(token(kid="new")), str)
    (tmp_path / "next").write_bytes(key_set(public("RS256", RSA, kid="new")))
    (tmp_path / "next").replace(file)
    now[0] += 2
    assert await tokens.verify(token(kid="new")) == VALID
    file.write_text("broken")
    now[0] += 2
    assert await tokens.verify(token(kid="new")) == VALID
    with pytest.raises(OperatorError, match="it is not a JSON Web Key Set"):
        KeySet(sasl, "test")


async def test_the_clock_of_tokens_is_that_of_the_world() -> None:
    issuer = Issuer()
    real = BearerTokens(issuer.tokens._settings, issuer.tokens._keys)
    assert isinstance(await real.verify(token(exp=time.time() + 60)), Verified)
