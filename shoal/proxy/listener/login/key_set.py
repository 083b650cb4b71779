"""The keys that an issuer signs tokens with (JWKS, RFC 7517), from a file or an endpoint.

A file is read again when it changes. An endpoint is asked in a thread: at the start, when the keys are old, so that
withdrawn ones go, and when a token names an unknown key (but not more often than every `RETRY_SECONDS`). While the
endpoint fails, the keys from before stay. Only a token of an unknown key waits for an answer: an endpoint that hangs
delays no other login.

Only public keys of asymmetric signatures are taken: a key of a shared secret (`oct`) is none.
"""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.reread import Outcome
from shoal.proxy.config.secret import read_file, shown_url
from shoal.proxy.events.logs import event
from shoal.proxy.listener.login.watched_file import WatchedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.proxy.config.security import ListenerSasl

__all__ = ["ALGORITHMS", "OLD_SECONDS", "RETRY_SECONDS", "Key", "KeySet", "read_keys"]

log = logging.getLogger("shoal.login")

RETRY_SECONDS: Final = 30.0
OLD_SECONDS: Final = 3600.0
_ENDPOINT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1024 * 1024
_MOST_KEYS: Final = 100
_OK: Final = 200

_CURVES: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final = frozenset({*_RSA, *(name for of_curve in _CURVES.values() for name in of_curve), "EdDSA"})
_LEAST_RSA_BITS: Final = 2048


class Key(NamedTuple):
    kid: str | None
    algorithms: tuple[str, ...]
    key: Any  # of cryptography


class Unusable(Exception):
    """Why there are no new keys."""


def read_keys(text: str | bytes) -> tuple[Key, ...]:
    """Keys that Shoal cannot use are left out. Raises Unusable if there is no other."""
    try:
        written = json.loads(text)["keys"]
        keys = tuple(key for jwk in written[:_MOST_KEYS] if (key := _read_key(jwk)) is not None)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise Unusable("it is not a JSON Web Key Set") from None
    if not keys:
        raise Unusable("it has no public key for signatures (RSA of 2048 bits or more, EC, Ed25519)")
    return keys


def _read_key(written: dict[str, Any]) -> Key | None:
    from jwt import PyJWK, PyJWKError  # loads slowly
    from jwt.exceptions import PyJWTError

    kinds = {"RSA": _RSA, "OKP": ("EdDSA",), "EC": _CURVES.get(written.get("crv", ""), ())}
    algorithms = kinds.get(written.get("kty", ""), ())
    if "alg" in written:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == written["alg"])
    if not algorithms or written.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK({name: part for name, part in written.items() if name != "d"}, algorithms[0]).key
    except (PyJWKError, PyJWTError, ValueError, TypeError, LookupError):
        return None
    if getattr(key, "key_size", _LEAST_RSA_BITS) < _LEAST_RSA_BITS and written["kty"] == "RSA":
        return None
    kid = written.get("kid")
    return Key(kid if isinstance(kid, str) else None, algorithms, key)


class KeySet:
    """`fetch` runs in a thread, and returns the JWKS of the endpoint. Raises OperatorError if a file is unusable."""

    def __init__(
        self,
        settings: ListenerSasl,
        listener: str,
        *,
        clock: Callable[[], float] = trio.current_time,
        fetch: Callable[[], bytes] | None = None,
    ) -> None:
        self._listener = listener
        self._endpoint = shown_url(str(settings.jwks_endpoint))
        self._now = clock
        self._fetch = fetch or _fetcher(settings)
        self._keys: tuple[Key, ...] = ()
        self._lock = trio.Lock()
        self._tried_at = -math.inf
        self._failed = False
        self._file: WatchedFile[tuple[Key, ...]] | None = None
        if settings.jwks is not None:
            self._file = WatchedFile(settings.jwks, f"listener {listener!r}: jwks", "keys", _read_file, clock=clock)

    async def keep_fresh(self) -> None:
        """Ask the endpoint, and again when the keys are old. Until cancelled; of a file there is nothing to do."""
        while self._file is None:
            await self._ask()
            await trio.sleep(RETRY_SECONDS if self._failed else OLD_SECONDS)

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key that a token must be signed with. A token without key id needs an issuer with one such key."""
        if self._file is not None:
            return _find(self._file.value, kid, algorithm)
        if _find(self._keys, kid, algorithm) is None:
            await self._ask()
        return _find(self._keys, kid, algorithm)

    async def reread(self) -> Outcome:
        """Read the file, or ask the endpoint, now."""
        if self._file is not None:
            return self._file.reread()
        before, self._failed, self._tried_at = self._keys, False, -math.inf
        await self._ask()
        if self._failed:
            return Outcome.REFUSED
        return Outcome.UNCHANGED if self._keys == before else Outcome.LOADED

    async def _ask(self) -> None:
        """One question at a time; who waited for it does not ask again."""
        async with self._lock:
            if self._now() < self._tried_at + RETRY_SECONDS:
                return
            self._tried_at = self._now()
            try:
                with trio.move_on_after(2 * _ENDPOINT_SECONDS) as waiting:
                    self._take(read_keys(await trio.to_thread.run_sync(self._fetch, abandon_on_cancel=True)))
                if waiting.cancelled_caught:
                    raise Unusable("no answer in time")
            except Unusable as error:
                self._complain(str(error))
            except Exception as error:  # of urllib, ssl, http.client
                self._complain(f"{type(error).__name__}: {error}")

    def _take(self, keys: tuple[Key, ...]) -> None:
        if self._failed or not self._keys:
            text = f"listener {self._listener!r}: {self._endpoint} has {len(keys)} keys"
            log.info("keys-loaded", extra=event(text, listener=self._listener, endpoint=self._endpoint, keys=len(keys)))
        self._keys, self._failed = keys, False

    def _complain(self, what: str) -> None:
        if not self._failed:
            stay = "the keys from before stay" if self._keys else "no client can log in with OAUTHBEARER"
            text = f"listener {self._listener!r}: {self._endpoint} cannot be used: {what}: {stay}"
            values = event(text, listener=self._listener, endpoint=self._endpoint, error=what, keys=len(self._keys))
            log.error("keys-refused", extra=values)
        self._failed = True


def _find(keys: tuple[Key, ...], kid: str | None, algorithm: str) -> Key | None:
    fitting = [key for key in keys if algorithm in key.algorithms]
    if kid is None:
        return fitting[0] if len(fitting) == 1 else None
    return next((key for key in fitting if key.kid == kid), None)


def _read_file(path: Path, where: str) -> tuple[Key, ...]:
    try:
        return read_keys(read_file(path, where))
    except Unusable as error:
        raise OperatorError.of(where, f"{path}: {error}") from None


def _fetcher(settings: ListenerSasl) -> Callable[[], bytes]:
    def fetch() -> bytes:
        """In a thread. A redirect is not followed: it could lead to plain HTTP."""
        import ssl

        from shoal.proxy.net.web import exchange

        assert settings.jwks_endpoint is not None
        ca = settings.jwks_endpoint_ca
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        status, content = exchange(settings.jwks_endpoint, context, seconds=_ENDPOINT_SECONDS, most=_MOST_BYTES)
        if status != _OK:
            raise Unusable(f"HTTP status {status}")
        if len(content) > _MOST_BYTES:
            raise Unusable(f"an answer of more than {_MOST_BYTES} bytes")
        return content

    return fetch
