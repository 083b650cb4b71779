"""Requests of legacy clients that are asked of the broker in newer words: ListOffsets v0, OffsetCommit v0-v1, OffsetFetch v0-v1, ..."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.protocol.api import API
from shoal.protocol.composer import compose
from shoal.protocol.decomposer import decompose
from shoal.protocol.headers import response_body, write_request_header, write_response_header
from shoal.protocol.legacy.errors import known
from shoal.protocol.legacy.translate import CONVERSATIONS, say_errors
from shoal.protocol.legacy.versions import BECOMES
from shoal.protocol.schemas import MESSAGES
from shoal.protocol.wire import write_int32
from shoal.proxy.in_flight import blaming_the_broker

if TYPE_CHECKING:
    from collections.abc import Generator

    from shoal.protocol.composer import Values
    from shoal.protocol.headers import RequestHeader
    from shoal.protocol.legacy.errors import Release
    from shoal.proxy.connection import Connection

__all__ = ["answer_translated"]


async def answer_translated(connection: Connection, frame: bytearray, header: RequestHeader, at_least: Release) -> None:
    """`at_least`: what is known of the client's release. Raises RemoteProtocolError, UpstreamLost, UpstreamFault."""
    key, version = header.api_key, header.api_version
    request = decompose(MESSAGES[f"{API[key].name}Request"], version, frame, header.body, len(frame))
    answer = await _converse(connection, header, CONVERSATIONS[key](version, request))
    say_errors(answer, partial(_say, key, version, at_least))
    body = compose(MESSAGES[f"{API[key].name}Response"], version, answer)
    head = write_response_header(key, version, header.correlation_id)
    await connection.reply([write_int32(len(head) + len(body)) + head + body])


def _say(key: int, version: int, at_least: Release, code: int) -> int:
    return known(key, version, code, at_least)


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
    key, version = header.api_key, BECOMES[header.api_key]
    body = compose(MESSAGES[f"{API[key].name}Request"], version, question)
    head = write_request_header(key, version, header.correlation_id, header.client_id)
    frame = await connection.ask([write_int32(len(head) + len(body)) + head + body])
    with blaming_the_broker():
        start = response_body(frame, key, version)
        return decompose(MESSAGES[f"{API[key].name}Response"], version, frame, start, len(frame))
