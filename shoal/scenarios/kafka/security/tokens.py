"""OAUTHBEARER with signed tokens: an issuer, and the HTTP server of its token endpoint.

    with TokenIssuer(work / "issuer") as issuer:
        ClusterSpec(tokens=issuer)                  # brokers verify tokens by `issuer.jwks`
        issuer.token("alice", lifetime_s=60)
        issuer.token_endpoint                       # client credentials (RFC 6749, 4.4): `issuer.clients`
        issuer.jwks_endpoint                        # the same keys over HTTP

The server is on loopback, in a thread of this process.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from shoal.scenarios.kafka.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TokenIssuer"]

ISSUER, AUDIENCE, SCOPE = "https://issuer.shoal.test", "kafka", "mirror"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class TokenIssuer:
    """Signs tokens with RS256. Start the server with a `with` block, or with `start` and `stop`."""

    lifetime_s: float = 3_600.0
    """Lifetime of tokens from the endpoint; can be changed at any time."""

    def __init__(self, home: Path, *, issuer: str = ISSUER, audience: str = AUDIENCE) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.issuer = issuer
        self.audience = audience
        self.jwks = home / "jwks.json"
        self.clients: dict[str, str] = {"alice": "right"}
        """Secrets of clients by id; the id becomes the principal."""
        self.handed_out: list[str] = []
        """Clients that got a token from the endpoint, in order."""
        self._numbers = itertools.count(1)
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self._server = _Server(self)
        self.rotate()

    @property
    def token_endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}/token"

    @property
    def jwks_endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}/jwks"

    @property
    def allowed_urls(self) -> str:
        """The JVM option without which Kafka's brokers and clients refuse these URLs."""
        return f"-D{_ALLOWED_URLS}={self.jwks.as_uri()},{self.jwks_endpoint},{self.token_endpoint}"

    def rotate(self) -> None:
        """A new key signs from now on; tokens of the old ones stay valid."""
        self._keys[f"key-{next(self._numbers)}"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        written = self.jwks.with_suffix(".new")
        written.write_text(self.key_set())
        written.replace(self.jwks)

    def key_set(self) -> str:
        """The public keys as a JWKS (RFC 7517)."""
        keys: list[dict[str, Any]] = []
        for name, key in self._keys.items():
            public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
            keys.append({**public, "kid": name, "use": "sig", "alg": "RS256"})
        return json.dumps({"keys": keys})

    def token(
        self, subject: str, *, lifetime_s: float | None = None, issued_at: float | None = None, **claims: object
    ) -> str:
        """A token; `claims` are added or replace others, as `aud="other"`."""
        now = time.time() if issued_at is None else issued_at
        lifetime = self.lifetime_s if lifetime_s is None else lifetime_s
        content = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": subject,
            "scope": SCOPE,
            "iat": int(now),
            "exp": int(now + lifetime),
            "jti": str(next(self._numbers)),
            **claims,
        }
        name, key = list(self._keys.items())[-1]
        return jwt.encode(content, key, algorithm="RS256", headers={"kid": name})

    def start(self) -> None:
        Thread(target=self._server.serve_forever, args=(0.05,), name="token endpoint", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, issuer: TokenIssuer) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.issuer = issuer


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        found = self.path.partition("?")[0] == "/jwks"
        self._answer(200 if found else 404, self.server.issuer.key_set() if found else "{}")

    def do_POST(self) -> None:
        issuer = self.server.issuer
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        client, secret = self._credentials({name: values[0] for name, values in form.items()})
        if self.path != "/token" or form.get("grant_type") != ["client_credentials"]:
            return self._answer(400, json.dumps({"error": "unsupported_grant_type"}))
        if not client or issuer.clients.get(client) != secret:
            return self._answer(401, json.dumps({"error": "invalid_client"}))
        issuer.handed_out.append(client)
        lifetime = issuer.lifetime_s
        answer = {"access_token": issuer.token(client), "token_type": "Bearer", "expires_in": int(lifetime)}
        self._answer(200, json.dumps(answer))

    def _credentials(self, form: dict[str, str]) -> tuple[str, str]:
        """From the Authorization header, or from the body (RFC 6749, 2.3.1)."""
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):
                client, _, secret = base64.b64decode(value).decode().partition(":")
                return unquote(client), unquote(secret)
        return form.get("client_id", ""), form.get("client_secret", "")

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Tests need no log of requests."""
