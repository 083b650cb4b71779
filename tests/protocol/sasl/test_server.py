"""The server's part of SASL: examples of the RFCs, clients of our own as the oracle, and tokens that are none."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.sasl.client import Credentials, tokens
from shoal.protocol.sasl.scram import DIGESTS, LEAST_ITERATIONS
from shoal.protocol.sasl.server import (
    MOST_TOKEN_BYTES,
    Accepted,
    Challenge,
    OAuthBearerServer,
    PasswordCheck,
    PlainServer,
    Refused,
    Result,
    ScramServer,
    ServerExchange,
    TokenCheck,
    Verified,
)
from shoal.protocol.sasl.users import Users, hash_password

SCRAM = tuple(DIGESTS)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=20)
# RFC 7677, section 3
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = {"SCRAM-SHA-256": hash_password("SCRAM-SHA-256", "pencil", SALT, 4096)}
RFC = Users(seed=bytes(32), hashes={"user": PENCIL})
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
LAST = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def users(*names: str, password: str = "a secret") -> Users:
    hashes = {
        name: {one: hash_password(one, password, b"salt of " + name.encode(), LEAST_ITERATIONS) for one in SCRAM}
        for name in names
    }
    return Users(seed=bytes(32), hashes=hashes)


def scram_login(server: ServerExchange, credentials: Credentials) -> Result:
    client = tokens(credentials, "client-nonce")
    result = server.step(next(client))
    while isinstance(result, Challenge):
        result = server.step(client.send(result.token))
    if isinstance(result, Accepted):
        with pytest.raises(StopIteration):
            client.send(result.token)  # raises if the server did not prove that it knows the password
    return result


def test_scram_as_in_rfc_7677() -> None:
    server = ScramServer("SCRAM-SHA-256", RFC, NONCE)
    challenge = server.step(FIRST)
    assert isinstance(challenge, Challenge)
    assert challenge.token == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.step(LAST) == Accepted(principal="user", token=signature, hashes=RFC.hashes["user"])


@settings(max_examples=25, deadline=None)
@given(NAMES, st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.sampled_from(SCRAM))
def test_our_own_client_logs_in_with_any_name_and_password(name: str, password: str, mechanism: str) -> None:
    known = users(name, password=password)
    right = Credentials(mechanism=mechanism, username=name, password=password)
    result = scram_login(ScramServer(mechanism, known, "nonce"), right)
    assert isinstance(result, Accepted)
    assert result.principal == name


@pytest.mark.parametrize("mechanism", SCRAM)
def test_an_unknown_user_sees_what_a_wrong_password_shows(mechanism: str) -> None:
    known = users("alice")

    def challenge(name: str) -> bytes:
        first = ScramServer(mechanism, known, "nonce").step(f"n,,n={name},r=client".encode())
        assert isinstance(first, Challenge)
        return first.token

    assert challenge("bob") == challenge("bob") != challenge("eve")
    shapes = {tuple(part[:2] for part in challenge(name).split(b",")) for name in ("alice", "bob")}
    assert len(shapes) == 1
    assert challenge("alice").endswith(b",i=4096")
    assert challenge("bob").endswith(b",i=4096")
    for name, why in (("alice", "wrong password"), ("bob", "no such user")):
        wrong = Credentials(mechanism=mechanism, username=name, password="wrong")
        assert scram_login(ScramServer(mechanism, known, "nonce"), wrong) == Refused(why=why, name=name)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,a=admin,n=user,r=x", "authorization id"),
        (b"n,,m=what,n=user,r=x", "malformed"),
        (b"n,,n=,r=x", "malformed"),
        (b"n,,n=a=b,r=x", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=user,r=\xff", "malformed"),
        (b"", "malformed"),
        (b"n,,n=user,r=" + bytes(5000), "5012 bytes"),
    ],
)
def test_a_first_token_that_is_none(first: bytes, why: str) -> None:
    server = ScramServer("SCRAM-SHA-256", RFC, NONCE)
    result = server.step(first)
    assert isinstance(result, Refused)
    assert why in result.why
    assert server.step(FIRST) == Refused(why="a token after the last one", name=server.name)


@pytest.mark.parametrize(
    "last",
    [
        LAST.replace(b"c=biws", b"c=eSws"),  # y,,
        LAST.replace(b"r=rO", b"r=xO"),
        LAST.replace(b"p=dHzb", b"p=eHzb"),
        LAST.replace(b"p=dHzb", b"p=!"),
        LAST.partition(b",p=")[0],
        b"c=biws,p=,",
        b"",
    ],
)
def test_a_last_token_that_is_none(last: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", RFC, NONCE)
    server.step(FIRST)
    assert isinstance(server.step(last), Refused)


@given(st.lists(st.binary(max_size=200), max_size=4), st.sampled_from(["PLAIN", "OAUTHBEARER", *SCRAM]))
def test_no_bytes_raise(sent: list[bytes], mechanism: str) -> None:
    server: ServerExchange
    if mechanism in SCRAM:
        server = ScramServer(mechanism, RFC, NONCE)
    else:
        server = PlainServer() if mechanism == "PLAIN" else OAuthBearerServer()
    for token in sent:
        result = server.step(token)
        if isinstance(result, PasswordCheck | TokenCheck):
            result = server.checked("no")
        assert isinstance(result, Challenge | Refused)


def test_plain() -> None:
    known = users("alice")
    server = PlainServer()
    check = server.step(b"\0alice\0a secret")
    assert isinstance(check, PasswordCheck)
    assert known.accepts(check.name, check.password)
    assert server.checked(Verified(principal="alice")) == Accepted(principal="alice")
    assert not known.accepts("alice", "another")
    assert not known.accepts("bob", "a secret")


@pytest.mark.parametrize(
    "token", [b"", b"alice", b"\0alice", b"\0alice\0", b"\0\0x", b"bob\0alice\0x", b"\0a\0b\0c", b"\0\xff\0x"]
)
def test_plain_with_a_token_that_is_none(token: bytes) -> None:
    assert isinstance(PlainServer().step(token), Refused)


def bearer(text: str = "n,,\x01auth=Bearer aaa.bbb.ccc\x01\x01") -> tuple[OAuthBearerServer, Result]:
    server = OAuthBearerServer()
    return server, server.step(text.encode())


def test_a_valid_token() -> None:
    server, check = bearer("n,,\x01auth=Bearer aaa.bbb.ccc\x01traceId=7\x01\x01")
    assert check == TokenCheck(token="aaa.bbb.ccc")
    valid = Verified(principal="service", expires_at=99.0)
    assert server.checked(valid) == Accepted(principal="service", expires_at=99.0)


def test_an_invalid_token_gets_an_error_challenge_and_then_the_end() -> None:
    server, _ = bearer()
    assert server.checked("Signature has expired") == Challenge(b'{"status": "invalid_token"}')
    assert server.step(b"\x01") == Refused(why="Signature has expired")


def test_a_token_of_another_principal_than_asked_for() -> None:
    server, check = bearer("n,a=admin,\x01auth=Bearer aaa.bbb.ccc\x01\x01")
    assert isinstance(check, TokenCheck)
    assert isinstance(server.checked(Verified(principal="service", expires_at=99.0)), Challenge)
    assert isinstance(server.step(b"\x01"), Refused)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n,,\x01\x01",
        "n,,\x01auth=Basic abc\x01\x01",
        "n,,\x01auth=Bearer \x01\x01",
        "n,,\x01auth=Bearer a b\x01\x01",
        "n,,\x01auth=Bearer abc\x01",
        "n,,\x01auth=Bearer abc\x01" + "a=b\x01" * 200 + "\x01",
        "x" * (MOST_TOKEN_BYTES + 1),
    ],
)
def test_a_bearer_token_that_is_none(text: str) -> None:
    assert isinstance(bearer(text)[1], Refused)


def test_no_result_shows_a_secret() -> None:
    secret = "a-very-secret-word"
    shown = [
        PasswordCheck(name="alice", password=secret),
        TokenCheck(token=secret),
        Challenge(secret.encode()),
        Accepted(principal="alice", token=secret.encode()),
        users("alice", password=secret),
        *users("alice", password=secret).hashes["alice"].values(),
    ]
    assert secret not in repr(shown)
    assert "stored_key" not in repr(shown)
