"""Which frames a raw capture writes, and what is removed from them; also used by `shoal capture to-pcap`.

An answer has neither API nor client id, and a request of a fetch session may have no topic. So with a topic filter, a
request waits for its answer, and both are written if one of them mentions the topic: by its name after its length (as
Kafka encodes strings), or by its id, which is known from Metadata answers. No frame is decoded; a mention inside
records at worst adds an exchange.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from shoal.protocol.capture.frames.exchanges import TOKEN, UNREADABLE, ExchangeRequest, Exchanges
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.protocol.capture.frames.redaction import ExchangePart, cut_answer, cut_request, withheld_because
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.types import write_compact_string, write_string

__all__ = ["MAX_HELD", "MAX_WAITING", "FrameFilter", "FrameSelection"]

MAX_HELD: Final = 64 * 1024 * 1024
"""Bytes of requests that wait for their answers, over all connections."""
MAX_WAITING: Final = 4096
"""Requests of one connection that wait for their answers; above it the oldest is decided without its answer."""
_ID_SIZE: Final = 16
_IDS_FROM: Final = 10  # version of Metadata
_STANDS_FOR: Final = {TOKEN: ApiKey.SASL_AUTHENTICATE}
_HAS_NO_HEADER: Final = {
    TOKEN: "withheld: a SASL token",
    UNREADABLE: "withheld: a request whose header cannot be read",
}
_UNASKED: Final = "withheld: the answer to a request that was not seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSelection:
    """An empty condition matches everything. A frame must match all conditions."""

    topics: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    apis: frozenset[int] = frozenset()

    def call(self, asked: ExchangeRequest) -> bool:
        api_key = _STANDS_FOR.get(asked.api_key, asked.api_key)
        return (not self.apis or api_key in self.apis) and (not self.clients or asked.client_id in self.clients)


class _Held(NamedTuple):
    """The `frame` of a request to write, unless it was written or is not selected."""

    is_wanted: bool
    mentions: bool
    frame: CapturedFrame | None


class FrameFilter:
    """Takes all frames of all connections in order, and returns those to write; with a topic filter, later.

    A frame of which only the start could be kept has `withheld` set: it is cut, but written in order.
    """

    def __init__(self, wanted: FrameSelection, *, max_held: int = MAX_HELD, max_waiting: int = MAX_WAITING) -> None:
        self._wanted = wanted
        self._max_held = max_held
        self._max_waiting = max_waiting
        self._connections: dict[tuple[str, int], Exchanges[_Held]] = {}
        self._names = [encode(name) for name in wanted.topics for encode in (write_string, write_compact_string)]
        self._ids: set[bytes] = set()
        self._held = 0

    def take(self, captured: CapturedFrame) -> list[CapturedFrame]:
        """Never raises for any content of a frame."""
        key = captured.proxy, captured.connection
        exchanges = self._connections.get(key)
        if exchanges is None:
            exchanges = self._connections[key] = Exchanges()
        pick = self._request if captured.sender is Sender.CLIENT else self._answer
        return list(pick(exchanges, captured))

    def closed(self, proxy: str, connection: int) -> list[CapturedFrame]:
        """The connection has ended: requests that wait for answers are decided without them."""
        exchanges = self._connections.pop((proxy, connection), None)
        return [] if exchanges is None else [frame for _, held in exchanges.waiting for frame in self._settled(held)]

    def close(self) -> list[CapturedFrame]:
        """No more frames follow."""
        return [frame for key in list(self._connections) for frame in self.closed(*key)]

    def _request(self, exchanges: Exchanges[_Held], captured: CapturedFrame) -> Iterator[CapturedFrame]:
        asked = exchanges.request(captured.frame)
        is_wanted = self._wanted.call(asked)
        frame = _request_part(asked, captured) if is_wanted else None
        if frame is not None and not self._names:
            yield frame
            frame = None
        held = _Held(is_wanted, frame is not None and self._mentions(captured.frame), frame)
        self._held += len(frame.frame) if frame else 0
        if not asked.is_answered:
            yield from self._settled(held)
            return
        exchanges.waiting.append((asked, held))
        while len(exchanges.waiting) > self._max_waiting or (self._held > self._max_held and exchanges.waiting):
            yield from self._settled(exchanges.waiting.popleft()[1])

    def _answer(self, exchanges: Exchanges[_Held], captured: CapturedFrame) -> Iterator[CapturedFrame]:
        ended = list(exchanges.answer(captured.frame))
        if not ended:
            if self._wanted == FrameSelection():
                yield captured._replace(frame=b"", withheld=_UNASKED)
            return
        for _, held in ended[:-1]:
            yield from self._settled(held)
        asked, held = ended[-1]
        if asked.api_key == ApiKey.METADATA and asked.api_version >= _IDS_FROM:
            self._learn(captured.frame)
        mentions = held.mentions or (held.is_wanted and self._mentions(captured.frame))
        yield from self._settled(held._replace(mentions=mentions))
        if held.is_wanted and (mentions or not self._names):
            yield _answer_part(asked, captured)

    def _settled(self, held: _Held) -> Iterator[CapturedFrame]:
        if held.frame is not None:
            self._held -= len(held.frame.frame)
            if held.mentions:
                yield held.frame

    def _mentions(self, frame: bytes) -> bool:
        return any(name in frame for name in self._names) or any(topic_id in frame for topic_id in self._ids)

    def _learn(self, frame: bytes) -> None:
        """The id follows the name (MetadataResponse.json)."""
        for name in self._names[1::2]:
            at = frame.find(name)
            topic_id = frame[at + len(name) : at + len(name) + _ID_SIZE] if at >= 0 else b""
            if len(topic_id) == _ID_SIZE and any(topic_id):
                self._ids.add(topic_id)


def _request_part(asked: ExchangeRequest, captured: CapturedFrame) -> CapturedFrame:
    if asked.api_key in _HAS_NO_HEADER:
        return captured._replace(frame=b"", withheld=_HAS_NO_HEADER[asked.api_key])
    why = captured.withheld or withheld_because(asked.api_key, asked.api_version, ExchangePart.REQUEST)
    return captured if why is None else captured._replace(frame=cut_request(captured.frame), withheld=why)


def _answer_part(asked: ExchangeRequest, captured: CapturedFrame) -> CapturedFrame:
    if asked.api_key in _HAS_NO_HEADER:
        return captured._replace(frame=b"", withheld=_HAS_NO_HEADER[asked.api_key])
    why = captured.withheld or withheld_because(asked.api_key, asked.api_version, ExchangePart.ANSWER)
    if why is None:
        return captured
    return captured._replace(frame=cut_answer(asked.api_key, asked.api_version, asked.correlation_id), withheld=why)
