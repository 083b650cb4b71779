"""What a login needs of a mechanism: one identity at the brokers of one cluster."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.sasl.login import LoginRefused
    from shoal.protocol.sasl.scram import Exchange
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import Address

__all__ = ["Identity", "NoCredentials", "SaslTable", "digest", "in_thread"]


T = TypeVar("T")
_THREADS = trio.CapacityLimiter(16)  # of logins only: one that hangs must not keep others of Shoal waiting


async def in_thread(work: Callable[[], T]) -> T:
    """For what asks a KDC or an issuer, or takes much CPU. A cancelled call returns at once; its thread ends later."""
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_THREADS)


class SaslTable(NamedTuple):
    """Where the settings of an identity are, for errors. `path`: `sasl`, or that of named credentials."""

    path: str
    cluster: str

    def __str__(self) -> str:
        return f"cluster {self.cluster!r}: {self.path}"

    def key(self, name: str) -> str:
        return f"{self}.{name}"

    def named(self, name: str = "") -> str:
        """In a sentence; without `name`, the whole table."""
        return f"{self.path}{name and '.'}{name} of cluster {self.cluster!r}"


class NoCredentials(Exception):
    """They cannot be had now; the message names the setting, the cause and the way out."""


class Identity(Protocol):
    """`blocks`: what its exchange makes of an answer may need the network or much CPU, so that it runs in a thread."""

    @property
    def mechanism(self) -> str:
        """As the broker calls it."""

    def blocks(self, answer: Buffer | None) -> bool: ...

    def material(self) -> bytes:
        """A digest of credentials that the operator may change at any time; the same value if there are none.

        Raises OperatorError.
        """

    async def exchange(self, address: Address) -> Exchange:
        """For one login. Raises NoCredentials and OperatorError."""

    def advice(self, error: LoginRefused) -> str:
        """What the operator can do about a refusal."""


def digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()
