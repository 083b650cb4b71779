"""PLAIN and SCRAM: the password is read for each login, so that a new one needs no restart."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

from shoal.protocol.sasl.client import Credentials, tokens
from shoal.protocol.sasl.scram import derive
from shoal.proxy.config.secret import read_secret
from shoal.proxy.config.security import Mechanism
from shoal.proxy.net.auth.identity import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.sasl.login import LoginRefused
    from shoal.protocol.sasl.scram import Exchange
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.security import SaslSettings
    from shoal.proxy.config.settings import Address
    from shoal.proxy.net.auth.identity import SaslTable

__all__ = ["PasswordIdentity", "SaltedPasswords"]

_NONCE_BYTES = 18
_MOST_SALTED = 8  # a salted password is the same on all brokers of a cluster until it is changed


class SaltedPasswords:
    """SCRAM's costly step, once per password and salt (RFC 5802, 9: the result may be kept). `derived`: makes it."""

    def __init__(self, derived: Callable[[str, str, bytes, int], bytes] = derive) -> None:
        self._derived = derived
        self._known: OrderedDict[tuple[str, str, bytes, int], bytes] = OrderedDict()

    def __call__(self, algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = algorithm, password, salt, iterations
        salted = self._known.get(key)
        if salted is None:  # perhaps in several threads at once
            salted = self._known[key] = self._derived(algorithm, password, salt, iterations)
            if len(self._known) > _MOST_SALTED:
                self._known.popitem(last=False)
        return salted


class PasswordIdentity:
    """`where`: the settings, for errors."""

    def __init__(self, settings: SaslSettings, where: SaslTable, salted: SaltedPasswords | None = None) -> None:
        self.mechanism = settings.mechanism.value
        self._settings = settings
        self._where = where
        self._salted = salted or SaltedPasswords()

    def blocks(self, answer: Buffer | None) -> bool:
        """For SCRAM's challenge, which names the iterations: a tenth of a second, if a false broker wants it."""
        return self._settings.mechanism is not Mechanism.PLAIN and answer is not None and b"i=" in bytes(answer)

    def material(self) -> bytes:
        return digest(self._settings.username or "", self._password())

    async def exchange(self, address: Address) -> Exchange:
        credentials = Credentials(
            mechanism=self.mechanism, username=self._settings.username or "", password=self._password()
        )
        return tokens(credentials, secrets.token_urlsafe(_NONCE_BYTES), self._salted)

    def advice(self, error: LoginRefused) -> str:
        return f"check {self._where.named('username')} ({self._settings.username}), and its password"

    def _password(self) -> str:
        """Raises OperatorError."""
        assert self._settings.password is not None
        return read_secret(self._settings.password, self._where.key("password"))
