"""Where Shoal logs in at the brokers, a client must not get delegation tokens (KIP-48).

A token acts as the principal that it was asked with, which is Shoal's, also without Shoal: not bound by its listener,
for up to a week, and after the client's own login is withdrawn. CreateDelegationToken makes one, and
DescribeDelegationToken names those of the principal, with their keys. To renew or to expire one, a client has to know
its key already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.frames import response_frame
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.connection.routes import ANY_VERSION, Decision, Route

if TYPE_CHECKING:
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.routes import RouteTable

__all__ = ["REFUSED_TOKENS"]


def _decide(connection: Connection, first: memoryview) -> Decision | None:
    """Behind Shoal's own certificate, a client may log in at the broker itself: then a token is its own."""
    return None if connection.login_at_broker.has_begun else Decision.HOLD


async def _refuse(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    key, version = ApiKey(header.api_key), header.api_version
    name = API[key].name
    values = {"ErrorCode": ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
    refusal = response_frame(key, version, header.correlation_id, values)
    connection.listener.complain(
        "delegation-token-refused",
        f"a client sends {name}, and is refused: a delegation token would act at the brokers as Shoal's principal, "
        "without Shoal. Clients that need tokens must log in at the brokers: give them a listener without "
        "[listener.sasl] and [listener.principals], of a cluster without [cluster.sasl]",
        api=name,
    )
    await connection.reply([refusal])


_REFUSED: Route[Connection] = Route(since=ANY_VERSION, decide=_decide, handle=_refuse)
REFUSED_TOKENS: RouteTable[Connection] = {
    int(ApiKey.CREATE_DELEGATION_TOKEN): _REFUSED,
    int(ApiKey.DESCRIBE_DELEGATION_TOKEN): _REFUSED,
}
