"""TLS and SASL of a round with `secured`: Shoal's links to the brokers and the links of its clients.

Brokers: SASL_SSL, with sessions of a few seconds, or SSL. Shoal's listeners: TLS, and a login with sessions of a few
seconds. Shoal's certificate is replaced every few seconds.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.torture.environment.mirrors import SHOAL

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.security.certificates import Authority, Identity

USERS = {"shoal": "brokers-know-it"}
SESSION_MS = 4000
_CLIENT, _PASSWORD = "mirror", "shoal-knows-it"
_SESSION_S = 5
_RENEWED_S = 6.0
_MECHANISMS = ("SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256")


@dataclass(frozen=True, slots=True)
class Security:
    """A round has one; its seed chooses the mechanisms."""

    seed: int
    authority: Authority
    home: Path
    """Files of Shoal."""

    @property
    def broker_listener(self) -> str:
        return "SSL" if self.seed % 4 == 3 else "SASL_SSL"

    @property
    def mechanism(self) -> str:
        return _MECHANISMS[self.seed % len(_MECHANISMS)]

    @property
    def logs_in(self) -> bool:
        return self.seed % 5 != 4

    @property
    def client(self) -> ClientSecurity:
        """Clients of Shoal."""
        ca = self.authority.certificate
        if not self.logs_in:
            return ClientSecurity(ca=ca)
        return ClientSecurity(ca=ca, mechanism=self.mechanism, user=_CLIENT, password=_PASSWORD)

    def cluster(self) -> dict[str, object]:
        """Keys of a [[cluster]]."""
        tls: dict[str, object] = {"tls": {"ca": str(self.authority.certificate)}}
        if self.broker_listener == "SSL":
            return tls
        (name,) = USERS
        password = {"file": str(self._file("shoal.password", USERS[name]))}
        return {**tls, "sasl": {"mechanism": self.mechanism, "username": name, "password": password}}

    def listener(self) -> dict[str, Any]:
        """Keys of a [[listener]]."""
        tls = {"tls": {"certificate": str(self._certificate), "key": str(self._key)}}
        if not self._certificate.exists():
            self.renew()
        if not self.logs_in:
            return tls
        users = self.home / "users"
        if not users.exists():
            words = [sys.executable, "-m", "shoal", "users", "add", str(users), _CLIENT]
            words += ["--password-file", str(self._file("client.password", _PASSWORD))]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return {**tls, "sasl": {"mechanisms": [self.mechanism], "users": str(users), "session-seconds": _SESSION_S}}

    def renew(self) -> None:
        """A new certificate and key; for a moment they do not fit each other."""
        new: Identity = self.authority.server(SHOAL, "127.0.0.1", name="shoal")
        self._file(self._key.name, new.key.read_text())
        self._file(self._certificate.name, new.certificate.read_text())

    async def keep_renewing(self) -> None:
        while True:
            await trio.sleep(_RENEWED_S)
            self.renew()

    @property
    def _certificate(self) -> Path:
        return self.home / "shoal.pem"

    @property
    def _key(self) -> Path:
        return self.home / "shoal.key"

    def _file(self, name: str, text: str) -> Path:
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path
