"""The routes that every listener has: they replace addresses and API versions. Features add their own routes.

Produce requests are read only for their acks (does an answer follow?). Answers to Produce from v10 on, and to Fetch
from v16 on, may have brokers' addresses (KIP-951). All other requests, and all unknown ones, pass undecoded.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shoal.protocol.messages.api_versions import intersect, unsupported
from shoal.protocol.messages.produce import peek_acks
from shoal.protocol.messages.shortcuts import fetch_names_no_broker, names_no_broker, usual_acks, usual_head
from shoal.protocol.sasl.answers import accepted_token
from shoal.protocol.sasl.client import TOKEN_ROUNDS
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.headers import SIZE_BYTES, read_request_header, read_request_prefix, read_size, response_body
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES, rewrite_endpoints
from shoal.protocol.transform.skim import FetchSkimmer
from shoal.protocol.transform.skim_share import ShareFetchSkimmer
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_string
from shoal.proxy.connection.pending import EditAnswer
from shoal.proxy.connection.routes import Decision, Route, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import Answer, PendingAnswer, Skimmer
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.statistics import PathStatistics

__all__ = ["ADDRESSES", "FETCH_ADDRESSES", "PLAIN_ROUTES", "PlainPath"]


class PlainPath:
    def __init__(self, listener: object) -> None:
        self.routes: RouteTable[Connection] = table(PLAIN_ROUTES)

    def begin(self) -> None:
        pass

    def opened(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        pass

    def tick(self, now: float) -> None:
        pass

    def use(self, settings: ListenerSettings) -> None:
        pass

    def statistics(self) -> tuple[PathStatistics, ...]:
        return ()

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def status(self) -> dict[str, object]:
        return {}

    def end(self) -> None:
        pass


def _addresses(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer | Sequence[Buffer]:
    if connection.guest.is_stranger:
        connection.login_at_broker.served()
    return rewrite_endpoints(entry.api_key, entry.api_version, frame, connection.lookup)


def _skimmer(entry: PendingAnswer, size: int) -> Skimmer:
    return FetchSkimmer(entry.api_version, size)


def _share_skimmer(entry: PendingAnswer, size: int) -> Skimmer:
    return ShareFetchSkimmer(entry.api_version, size)


def _metadata(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer | Sequence[Buffer]:
    connection.listener.learn(frame, entry.api_version)
    return _addresses(connection, entry, frame)


def _versions(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer | Sequence[Buffer]:
    return intersect(frame, entry.api_version)


def _produced(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer | Sequence[Buffer]:
    return frame if names_no_broker(frame, entry.api_version) else _addresses(connection, entry, frame)


def _fetched(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer | Sequence[Buffer]:
    is_usual = not connection.guest.is_stranger and fetch_names_no_broker(frame, entry.api_version)
    return frame if is_usual else _addresses(connection, entry, frame)


ADDRESSES = EditAnswer(_addresses)
_PRODUCED = EditAnswer(_produced)
_SHARED = EditAnswer(_addresses, _share_skimmer, holds=True)
FETCH_ADDRESSES = EditAnswer(_fetched, _skimmer)
_VERSIONS = EditAnswer(_versions)


def _version(first: memoryview) -> int:
    version: int = read_request_prefix(first)[2]
    return version


def _decide_produce(connection: Connection, first: memoryview) -> Answer[Connection] | Decision | None:
    version = _version(first)
    acks = usual_acks(first, version)
    if acks is None:
        acks = peek_acks(first)
    if acks is None:
        return Decision.MORE
    if acks == 0:
        return Decision.SILENT
    return _PRODUCED if version >= ADDRESS_RESPONSES[ApiKey.PRODUCE] else None


def _produce_head(first: memoryview) -> int:
    return usual_head(first, _version(first))


def _decide_versions(connection: Connection, first: memoryview) -> Answer[Connection] | Decision | None:
    newest = API[ApiKey.API_VERSIONS].newest
    assert newest is not None
    return Decision.HOLD if _version(first) > newest else _VERSIONS


async def _refuse_versions(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    await connection.reply([unsupported(header.correlation_id)])


def _decide_handshake(connection: Connection, first: memoryview) -> Answer[Connection] | Decision | None:
    """After v0, tokens without a Kafka header follow; after v1, SaslAuthenticate requests.

    Tokens follow only if the broker accepts, and after its answer: a refused client continues with ordinary requests.
    """
    if len(first) < SIZE_BYTES + read_size(first)[0]:
        return Decision.MORE
    mechanism, _ = read_string(first, read_request_header(first).body, len(first))
    return EditAnswer(partial(_handshake_answered, mechanism or ""))


def _handshake_answered(mechanism: str, connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer:
    error_at = response_body(frame, ApiKey.SASL_HANDSHAKE, entry.api_version)
    if any(frame[error_at : error_at + 2]):
        return frame
    rounds = TOKEN_ROUNDS.get(mechanism)
    # GSSAPI has no fixed number, and its first round shows a valid ticket
    connection.login_at_broker.handshake_accepted(rounds or 1)
    if entry.api_version > 0:
        return frame
    if rounds is None:
        raise RemoteProtocolError(
            f"SASL mechanism {mechanism} after SaslHandshake v0 cannot be followed (only {', '.join(TOKEN_ROUNDS)}): "
            "use a client that sends SaslHandshake v1"
        )
    connection.requests.expect_tokens(rounds)
    if connection.tap is not None:
        connection.tap.expect_tokens(rounds)
    return frame


def _authenticate_answered(connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer:
    """A client has logged in when the broker has accepted its last token."""
    if not connection.guest.is_stranger:
        return frame
    token = accepted_token(frame, entry.api_version)
    if token is not None and not token.startswith(b"{"):  # OAUTHBEARER's error (RFC 7628, 3.2.2): its login goes on
        connection.login_at_broker.authenticate_accepted()
    return frame


PLAIN_ROUTES: RouteTable[Connection] = {
    ApiKey.PRODUCE: Route(decide=_decide_produce, head=_produce_head),
    ApiKey.FETCH: Route(since=ADDRESS_RESPONSES[ApiKey.FETCH], answer=FETCH_ADDRESSES),
    ApiKey.METADATA: Route(answer=EditAnswer(_metadata)),
    ApiKey.FIND_COORDINATOR: Route(answer=ADDRESSES),
    ApiKey.DESCRIBE_CLUSTER: Route(answer=ADDRESSES),
    ApiKey.SHARE_FETCH: Route(answer=_SHARED),
    ApiKey.SHARE_ACKNOWLEDGE: Route(answer=ADDRESSES),
    ApiKey.API_VERSIONS: Route(decide=_decide_versions, handle=_refuse_versions),
    ApiKey.SASL_HANDSHAKE: Route(decide=_decide_handshake),
    ApiKey.SASL_AUTHENTICATE: Route(answer=EditAnswer(_authenticate_answered)),
}
