"""GSSAPI: Kerberos with a keytab, by MIT's or Heimdal's library.

The library asks the KDC for tickets when they are needed, and keeps them in memory. A broker's principal is
`service/host`, with the host that the broker advertises; a bootstrap address needs that name, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.protocol.sasl.kerberos import gssapi_tokens
from shoal.proxy.net.auth.identity import NoCredentials

if TYPE_CHECKING:
    from shoal.protocol.sasl.login import LoginRefused
    from shoal.protocol.sasl.scram import Exchange
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.security import SaslSettings
    from shoal.proxy.config.settings import Address
    from shoal.proxy.net.auth.identity import SaslTable

__all__ = ["PACKAGE", "KerberosIdentity"]

PACKAGE = "gssapi"
_WAYS_OUT = (
    ("Cannot contact any KDC", "the KDC cannot be reached: check its address in krb5.conf, and the network"),
    ("Clock skew", "the clock of this machine differs from the KDC's or the broker's: synchronise them"),
    ("not found in Kerberos database", "the KDC does not know a principal: the broker's must be {broker}"),
    ("Preauthentication failed", "the keytab has an old key: export it again"),
    ("no suitable keys", "the keytab has no key of this principal"),
    ("No credentials cache", "the keytab has no key of this principal"),
    ("No such file", "the keytab cannot be read: check keytab"),
    ("ermission denied", "the keytab cannot be read: check its owner and its rights"),
    ("Cannot find KDC", "krb5.conf does not say where the KDC of this realm is"),
    ("Wrong principal", "the broker's keytab has another principal than {broker}"),
)


class KerberosIdentity:
    mechanism = "GSSAPI"

    def __init__(self, settings: SaslSettings, where: SaslTable) -> None:
        self._settings = settings
        self._where = where
        self._cache = f"MEMORY:shoal-{id(self):x}"

    def blocks(self, answer: Buffer | None) -> bool:
        return True  # the KDC may have to be asked

    def material(self) -> bytes:
        return b""

    async def exchange(self, address: Address) -> Exchange:
        return self._exchange(f"{self._settings.service}@{address.host}")

    def advice(self, error: LoginRefused) -> str:
        return (
            f"check principal ({self._settings.principal}) and service in {self._where.named()}, and the broker's log"
        )

    def _exchange(self, broker: str) -> Exchange:
        """Runs in a thread."""
        import gssapi

        try:
            yield from gssapi_tokens(_Context(self._context(broker)))
        except gssapi.exceptions.GSSError as error:
            raise NoCredentials(f"{self._where}: {_words(error, broker.replace('@', '/'))}") from None

    def _context(self, broker: str) -> Any:
        import gssapi

        store = {"client_keytab": str(self._settings.keytab), "ccache": self._cache}
        principal = gssapi.Name(self._settings.principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(name=principal, usage="initiate", store=store)
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=gssapi.Name(broker, gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            flags=flags.mutual_authentication | flags.integrity,
            mech=gssapi.MechType.kerberos,
        )


class _Context:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def is_complete(self) -> bool:
        return bool(self._inner.complete)

    def step(self, token: bytes | None) -> bytes | None:
        made: bytes | None = self._inner.step(token)
        return made

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._inner.unwrap(message).message)

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._inner.wrap(message, False).message)


def _words(error: Any, broker: str) -> str:
    """The library's words, and the way out if they are known."""
    said = "; ".join(error.get_all_statuses(error.min_code, False)) or str(error)
    for part, way_out in _WAYS_OUT:
        if part in said:
            return f"{way_out.format(broker=broker)} ({said})"
    return f"Kerberos: {said} (broker {broker})"
