"""Where Shoal logs in at the brokers, a client must not: the broker would take it for a re-authentication as another
user. The answers are those of a broker's port without SASL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_handshake
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.connection.routes import Route

if TYPE_CHECKING:
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.routes import RouteTable

__all__ = ["REFUSED_LOGINS"]

_WHY = "Shoal logs in at the brokers: clients of this listener must use security.protocol without SASL"


async def _refuse_handshake(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    mechanism = read_handshake(frame, header)
    connection.listener.complain(
        "broker-login-refused",
        f"a client wants to log in with SASL {mechanism!r}, and is refused: {_WHY} (or set [listener.sasl], and "
        "clients log in at Shoal)",
        mechanism=mechanism,
    )
    await connection.reply([answer_handshake(header, ErrorCode.ILLEGAL_SASL_STATE, ())])


async def _refuse_token(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    await connection.reply([answer_authenticate(header, error=ErrorCode.ILLEGAL_SASL_STATE, why=_WHY)])


REFUSED_LOGINS: RouteTable[Connection] = {
    int(ApiKey.SASL_HANDSHAKE): Route(handle=_refuse_handshake),
    int(ApiKey.SASL_AUTHENTICATE): Route(handle=_refuse_token),
}
