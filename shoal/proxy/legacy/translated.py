"""Legacy requests that are sent in a newer version: ListOffsets v0, OffsetCommit v0-v1, OffsetFetch v0-v1, ...

OffsetCommit v0 and OffsetFetch v0 went to any broker, because they were stored in ZooKeeper; such clients do not look
for a coordinator. If the client's broker is not the coordinator of its group, Shoal asks the coordinator over a new
connection per request. (Clients that authenticate are 0.9 or later, and find their coordinator themselves.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.protocol.legacy.errors import downgrade_error
from shoal.protocol.legacy.translate import TRANSLATIONS, error_codes, say_errors
from shoal.protocol.legacy.versions import UPSTREAM_VERSION
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.frames import request_frame, response_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.settings import Address
from shoal.proxy.connection.pending import blaming_the_broker
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamFault, UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import Generator

    from shoal.protocol.legacy.errors import Release
    from shoal.protocol.schema.composer import Values
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.connection.connection import Connection

__all__ = ["answer_translated"]

_ANY_BROKERS = {(ApiKey.OFFSET_COMMIT, 0), (ApiKey.OFFSET_FETCH, 0)}


async def answer_translated(connection: Connection, frame: bytearray, header: RequestHeader, at_least: Release) -> None:
    """`at_least`: the client's oldest possible release. Raises RemoteProtocolError, UpstreamLost, UpstreamFault."""
    key, version = header.api_key, header.api_version
    request = decompose(MESSAGES[f"{API[key].name}Request"], version, frame, header.body, len(frame))
    answer = await _converse(connection, header, TRANSLATIONS[key](version, request))
    say_errors(answer, partial(_error_for_client, key, version, at_least))
    await connection.reply([response_frame(key, version, header.correlation_id, answer)])


def _error_for_client(key: int, version: int, at_least: Release, code: int) -> int:
    return downgrade_error(key, version, code, at_least)


async def _converse(
    connection: Connection, header: RequestHeader, conversation: Generator[Values, dict[str, Any], dict[str, Any]]
) -> dict[str, Any]:
    try:
        question = next(conversation)
        while True:
            question = conversation.send(await _ask(connection, header, question))
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer


async def _ask(connection: Connection, header: RequestHeader, question: Values) -> dict[str, Any]:
    key, version = header.api_key, UPSTREAM_VERSION[header.api_key]
    request = _framed(header, key, version, question)
    answer = _read(key, version, await connection.broker.ask([request]))
    if (key, header.api_version) in _ANY_BROKERS and ErrorCode.NOT_COORDINATOR in error_codes(answer):
        return await _ask_coordinator(connection, header, request, question["GroupId"]) or answer
    return answer


async def _ask_coordinator(
    connection: Connection, header: RequestHeader, request: bytes, group: str
) -> dict[str, Any] | None:
    """The answer of the group's coordinator; None: not available now; the client may retry."""
    question = _framed(header, ApiKey.FIND_COORDINATOR, 0, {"Key": group})
    found = _read(ApiKey.FIND_COORDINATOR, 0, await connection.broker.ask([question]))
    if found["ErrorCode"]:
        return None
    address = Address(found["Host"], found["Port"])
    try:
        with open_client(connection.identity, [address]) as client:
            return _read(header.api_key, UPSTREAM_VERSION[header.api_key], await client.exchange(request))
    except (PeerLost, UpstreamUnreachable, RemoteProtocolError, UpstreamFault) as error:
        text = f"offsets of group {group!r} are at the coordinator {address}: {error}"
        values = {"group": group, "broker": str(address), "error": str(error)}
        connection.listener.complain("legacy-coordinator-failed", text, **values)
        return None


def _framed(header: RequestHeader, key: int, version: int, values: Values) -> bytes:
    return request_frame(key, version, header.correlation_id, header.client_id, values)


def _read(key: int, version: int, frame: Buffer) -> dict[str, Any]:
    with blaming_the_broker():
        start = response_body(frame, key, version)
        return decompose(MESSAGES[f"{API[key].name}Response"], version, frame, start, len(frame))
