"""The certificate that a client showed, even one that is refused.

Python hands over a peer's certificate only after it is verified; the log must name the one that is not. OpenSSL reports
each message of a handshake to a context's message callback, also the encrypted ones of TLS 1.3. `ssl` has it as a
private attribute; without it, errors have no subject. It costs 1 us per TLS record, so only listeners that ask clients
for a certificate have it.
"""

from __future__ import annotations

import _ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from shoal.proxy.net.tls.certificates import Certificate

__all__ = ["keep_shown_certificates", "shown_certificate"]

_ATTRIBUTE = "shoal_shown"  # of an ssl.SSLObject
_HANDSHAKE, _CERTIFICATE = 22, 11  # RFC 8446: ContentType, HandshakeType
_TLS_1_3 = 0x0304
_LARGEST = 64 * 1024


def keep_shown_certificates(context: ssl.SSLContext) -> None:
    callback = getattr(_ssl._SSLContext, "_msg_callback", None)
    if callback is not None:
        callback.__set__(context, _keep)


def _keep(connection: object, direction: str, version: int, content_type: int, message_type: int, data: bytes) -> None:
    if content_type == _HANDSHAKE and message_type == _CERTIFICATE and direction == "read" and len(data) <= _LARGEST:
        setattr(connection, _ATTRIBUTE, (version, data))


def shown_certificate(connection: ssl.SSLObject) -> Certificate | None:
    """The first certificate of the peer's chain; None: it has shown none."""
    version, message = getattr(connection, _ATTRIBUTE, (0, b""))
    at = 4  # type, length
    if version == _TLS_1_3:
        at += 1 + int.from_bytes(message[at : at + 1])  # request context
    at += 3  # size of the list
    size = int.from_bytes(message[at : at + 3])
    if not size or len(message) < at + 3 + size:
        return None
    from shoal.proxy.net.tls.pem import read_certificate

    try:
        return read_certificate(message[at + 3 : at + 3 + size])
    except ValueError:
        return None
