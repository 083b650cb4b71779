"""Client tokens of GSSAPI (RFC 4752) for Kerberos, as Kafka's brokers take them: no security layer.

The tokens themselves are made by a library, and may need an answer of the KDC: then the exchange blocks.
"""

from typing import Final, Protocol

from shoal.protocol.sasl.scram import Exchange
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["Context", "gssapi_tokens"]

_NO_LAYER: Final = 1  # in the bit mask of layers that the server offers
_LAYERS_BYTES: Final = 4  # the mask, then the server's largest message


class Context(Protocol):
    """A GSSAPI security context of the initiator."""

    @property
    def is_complete(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes | None: ...

    def unwrap(self, message: bytes) -> bytes: ...

    def wrap(self, message: bytes) -> bytes: ...


def gssapi_tokens(context: Context, authorize_as: str = "") -> Exchange:
    """The exchange raises RemoteProtocolError, and the errors of `context`.

    `authorize_as`: a name other than the principal's; brokers refuse one.
    """
    token = context.step(None)
    challenge = yield token or b""
    while not context.is_complete:
        token = context.step(challenge)
        challenge = yield token or b""
    offered = context.unwrap(challenge)
    if len(offered) != _LAYERS_BYTES or not offered[0] & _NO_LAYER:
        raise RemoteProtocolError("the broker insists on a GSSAPI security layer, which Kafka's protocol does not have")
    yield context.wrap(bytes((_NO_LAYER, 0, 0, 0)) + authorize_as.encode())
