"""Commands, issuers and AWS: tokens, and failures in words that have no secret."""

from __future__ import annotations

import base64
import json
import sys
import time
import tracemalloc
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from shoal.proxy.config.security import Mechanism, SaslSettings
from shoal.proxy.net.auth.identity import NoCredentials, SaslTable
from shoal.proxy.net.auth.msk import token_of_msk
from shoal.proxy.net.auth.token_command import token_from_command
from shoal.proxy.net.auth.token_endpoint import TokenEndpoint, token_from_endpoint
from shoal.scenarios.kafka.security.certificates import Authority
from tests.protocol.sasl.test_oauth import signed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHERE = SaslTable("sasl", "c")
SECRET = "a secret & more"
BASIC = base64.b64encode(b"an+id%3A1:a+secret+%26+more").decode()
SECONDS = 10.0


# -- commands ----------------------------------------------------------------------------------------------------------


async def command(code: str, seconds: float = SECONDS) -> tuple[str, float | None]:
    return await token_from_command([sys.executable, "-c", code], WHERE, seconds)


async def test_a_command_prints_a_token() -> None:
    assert await command("print('abc.def')") == ("abc.def", None)
    token = signed(exp=time.time() + 60)
    value, lifetime = await command(f"print({token!r})")
    assert value == token
    assert lifetime is not None
    assert 50 < lifetime <= 60


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit('it is not possible')", "ended with exit code 1: it is not possible"),
        ("import sys; print('tok'); sys.exit('tok is bad')", "exit code 1: (...) is bad"),
        ("raise SystemExit('no ' + 'x' * 40)", "exit code 1: no (...)"),
        ("import os; os.kill(os.getpid(), 9)", "ended with signal 9: no message"),
        ("pass", "gives nothing: it must print the token"),
        ("print('two words')", "gives a text that is not only a token"),
        ("print('x' * 100000)", "more than 65536 bytes"),
    ],
)
async def test_a_command_that_fails(code: str, words: str) -> None:
    with pytest.raises(NoCredentials) as failed:
        await command(code)
    assert words in str(failed.value)
    assert str(failed.value).startswith("cluster 'c': sasl.token-command (")


async def test_a_command_that_does_not_end() -> None:
    with pytest.raises(NoCredentials, match=r"did not end within 0.2 s"):
        await command("import time; time.sleep(60)", 0.2)


async def test_a_command_that_prints_much_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NoCredentials, match="more than 65536 bytes"):
            await command(
                "import sys; [print('x' * 10**6, file=to) for to in (sys.stdout, sys.stderr) for _ in range(16)]"
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


async def test_a_command_that_is_not_there() -> None:
    with pytest.raises(NoCredentials, match="cannot be started: No such file or directory"):
        await token_from_command(["/nonexistent/token"], WHERE, SECONDS)


# -- issuers -----------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    requests: ClassVar[list[tuple[str, dict[str, list[str]]]]] = []
    answer: ClassVar[tuple[int, Any]] = (200, {})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.requests.append((self.headers["Authorization"], form))
        status, content = self.answer
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(body)
        if status == 299:
            time.sleep(1)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def issuer(status: int = 200, content: Any = b"") -> Iterator[TokenEndpoint]:
    Handler.requests, Handler.answer = [], (status, content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield TokenEndpoint(f"http://127.0.0.1:{server.server_port}/token", "an id:1", "a b", None, WHERE)
    finally:
        server.shutdown()
        server.server_close()


async def test_client_credentials_as_in_rfc_6749() -> None:
    with issuer(200, {"access_token": "abc", "token_type": "Bearer", "expires_in": 300}) as endpoint:
        assert await token_from_endpoint(endpoint, SECRET, SECONDS) == ("abc", 300.0)
    ((authorization, form),) = Handler.requests
    assert form == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    encoded = base64.b64decode(authorization.removeprefix("Basic ")).decode()
    assert encoded == "an+id%3A1:a+secret+%26+more"


async def test_the_shorter_lifetime_counts() -> None:
    with issuer(200, {"access_token": signed(exp=time.time() + 20), "expires_in": "300"}) as endpoint:
        _, lifetime = await token_from_endpoint(endpoint, SECRET, SECONDS)
    assert lifetime is not None
    assert lifetime <= 20


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": f"{SECRET} is\n bad"},
            "HTTP 401: invalid_client: (...) is",
        ),
        (
            401,
            {"error": "bad", "error_description": f"an+id:a+secret+%26+more, {BASIC}"},
            "HTTP 401: bad: an+id:(...), (...): check",
        ),
        (401, b"", "answers HTTP 401: check client-id and client-secret"),
        (500, b"<html>", "answers HTTP 500: check the URL"),
        (302, b"", "redirect (302), which is not followed"),
        (200, b"<html>", "answers without an access_token"),
        (200, [1], "answers without an access_token"),
        (200, {"access_token": "two words"}, "answers without an access_token"),
        (200, b'{"access_token":"' + b"x" * 70_000 + b'"}', "answers without an access_token"),
    ],
)
async def test_an_issuer_that_gives_no_token(status: int, content: Any, words: str) -> None:
    with issuer(status, content) as endpoint, pytest.raises(NoCredentials) as failed:
        await token_from_endpoint(endpoint._replace(url=f"{endpoint.url}?key=api-7f3"), SECRET, SECONDS)
    assert words in str(failed.value)
    assert "api-7f3" not in str(failed.value)
    assert SECRET not in str(failed.value)
    assert urlsplit(endpoint.url).netloc in str(failed.value)


async def test_an_issuer_that_is_slow_or_gone() -> None:
    with issuer(299, b"") as endpoint, pytest.raises(NoCredentials, match=r"did not answer within 0.1 s|timed out"):
        await token_from_endpoint(endpoint, SECRET, 0.1)
    with pytest.raises(NoCredentials, match="cannot be reached: Connection refused"):
        await token_from_endpoint(endpoint, SECRET, SECONDS)


async def test_an_issuer_whose_certificate_is_not_trusted(tmp_path: Path) -> None:
    import ssl

    authority = Authority.create(tmp_path / "ca")
    identity = authority.server("127.0.0.1")
    with issuer(200, {"access_token": "abc", "expires_in": 9}) as endpoint:
        pass
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"https://127.0.0.1:{server.server_port}/token"
    try:
        trusting = endpoint._replace(url=url, ca=authority.certificate)
        assert (await token_from_endpoint(trusting, SECRET, SECONDS)).value == "abc"
        with pytest.raises(NoCredentials, match=r"certificate is refused: .*: set token-endpoint-ca"):
            await token_from_endpoint(endpoint._replace(url=url), SECRET, SECONDS)
        with pytest.raises(
            NoCredentials, match=r"cluster 'c': sasl\.token-endpoint-ca: .* cannot be used: No such file"
        ):
            await token_from_endpoint(endpoint._replace(url=url, ca=tmp_path / "none"), SECRET, SECONDS)
    finally:
        server.shutdown()
        server.server_close()


# -- AWS ---------------------------------------------------------------------------------------------------------------


async def test_amazon_msk_signs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings = SaslSettings(mechanism=Mechanism.AWS_MSK_IAM, region="eu-west-1")
    token, lifetime = await token_of_msk(settings, WHERE, SECONDS)
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    asked = parse_qs(urlsplit(url).query)
    assert urlsplit(url).hostname == "kafka.eu-west-1.amazonaws.com"
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert "AKIDEXAMPLE" in asked["X-Amz-Credential"][0]
    assert lifetime is not None
    assert 800 < lifetime <= 900
    unknown = SaslSettings(mechanism=Mechanism.AWS_MSK_IAM, region="eu-west-1", profile="unknown")
    with pytest.raises(NoCredentials, match=r"no token for region eu-west-1: .*unknown") as failed:
        await token_of_msk(unknown, WHERE, SECONDS)
    assert SECRET not in str(failed.value)
