"""One legacy client's connection: its requests, the requests to its broker, and its answers (see fetch.py)."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from shoal.protocol.legacy.errors import downgrade_error
from shoal.protocol.legacy.fetch.down_conversion import DownConversion
from shoal.protocol.legacy.fetch.failure import FailureKind
from shoal.protocol.legacy.fetch.fetch import (
    LegacyFetch,
    magic_of,
    read_aborted,
    read_upstream_answer,
    write_upstream_fetch,
)
from shoal.protocol.legacy.fetch.heads import Promised, write_heads
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.capture.annotations import CONVERTED
from shoal.proxy.config.settings import Isolation, SetCompression
from shoal.proxy.connection.keep_alive import KeepAlive
from shoal.proxy.connection.pending import blaming_the_broker
from shoal.proxy.connection.state import State
from shoal.proxy.legacy.answer import AnswerPartition, AnswerWriter, fill
from shoal.proxy.legacy.conversion import PartitionConversion
from shoal.proxy.legacy.leased import LeasedAnswer
from shoal.proxy.legacy.rotation import PartitionRotation
from shoal.proxy.net.upstream import UpstreamLost

if TYPE_CHECKING:
    from shoal.protocol.legacy.errors import Release
    from shoal.protocol.legacy.fetch.failure import Failure
    from shoal.protocol.legacy.fetch.fetch import Fetched, UpstreamAnswer
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.config.settings import LegacySettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.legacy.budget import Budget
    from shoal.proxy.legacy.counters import LegacyTally
    from shoal.proxy.net.transport import SocketTransport

__all__ = ["QUIET_SECONDS", "FetchSession"]

QUIET_SECONDS = 60.0  # load balancers may close idle connections earlier than brokers
_MILLISECONDS = 1000
_WINDOW = 256 * 1024
_RECEIVED = 128 * 1024  # below two segments of 64 KiB (loopback) TCP waits for its timers
_AT_ONCE = 1  # min_bytes: what is available
_IN_A_ROW = (
    4  # answers from the rest of a batch (it may be gigabytes) while other requested partitions may have records
)
# Kafka's error codes for a set that cannot be sent.
_FAILURES = {
    FailureKind.DAMAGE: ErrorCode.CORRUPT_MESSAGE,
    FailureKind.CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    FailureKind.INEXPRESSIBLE: ErrorCode.MESSAGE_TOO_LARGE,
}
# Java 0.9 only logs an error code of Fetch and fetches again, forever; but it passes TOPIC_AUTHORIZATION_FAILED to the
# application.
_JAVA_0_9 = 1
_WAYS_OUT = {
    FailureKind.DAMAGE: "check the broker's log (kafka-dump-log.sh --deep-iteration)",
    FailureKind.CODEC: 'legacy-options.compression = "none" sends it uncompressed',
    FailureKind.INEXPRESSIBLE: "only a newer client can read it",
}


class FetchSession:
    """One connection of a client that has fetched. `quiet`: of its KeepAlive, in seconds."""

    def __init__(
        self,
        connection: Connection,
        settings: LegacySettings,
        budget: Budget,
        tally: LegacyTally,
        *,
        quiet: float,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._tally = tally
        self._turns = PartitionRotation()
        self._is_new = True  # has not received anything yet
        self._hurries = False
        self._in_a_row = 0  # answers without a request to the broker
        self.held = LeasedAnswer(budget, _working_bytes(settings))
        self._keep_alive = KeepAlive(connection, quiet=quiet)
        self._header: RequestHeader
        self._client: Release
        _bound_the_kernel(connection.client.transport, connection.upstream.transport, settings.chunk_bytes)

    async def serve(self, question: LegacyFetch, header: RequestHeader, client: Release) -> None:
        """Raises UpstreamLost, UpstreamFault and ClientLeft."""
        self._header, self._client = header, client
        connection, chunk = self._connection, self._settings.chunk_bytes
        await connection.requests.until_quiet()
        throttle_ms, parts = await self._gather(question)
        await self.stay()
        promised = [
            Promised(*part.wanted.topic_partition, part.error_code, part.high_watermark, part.size) for part in parts
        ]
        heads = write_heads(header.api_version, header.correlation_id, throttle_ms, promised)
        sending = AnswerWriter(connection.client_out, self.held, self, chunk, self._tally)
        try:
            if parts:
                await sending.send(heads, parts, gives_way=self._hurries)
            else:
                self.held.release()  # no partition was requested
                await connection.client_out.send_all(heads)
        finally:
            self.held.settle()
        self._is_new = self._is_new and not any(part.size for part in parts)
        connection.responses.held += 1
        self._tally.fetches += 1

    # -- the content of an answer ------------------------------------------------------------------------------------

    async def _gather(self, question: LegacyFetch) -> tuple[int, list[AnswerPartition]]:
        """Returns the throttle time and the parts in the client's order, with first portions of those with records."""
        deadline = trio.current_time() + question.max_wait_ms / _MILLISECONDS
        throttle_ms, parts, goes_on = 0, self._left_over(question), True
        await self._fill(question, parts)
        while not any(part.size or part.error_code for part in parts):
            if starving := next((part for part in parts if part.source is not None and part.source.wants), None):
                await self.again(starving)
                parts = self._parts(question)
                await self._fill(question, parts)
                continue
            if not goes_on:
                break
            left = max(deadline - trio.current_time(), 0)
            wanted = self._turns.in_turn(question.partitions)
            answer = await self._ask(replace(question, partitions=wanted, max_wait_ms=int(left * _MILLISECONDS)))
            throttle_ms = max(throttle_ms, answer.throttle_ms)
            parts = self._answered(question, answer)
            moved = await self._fill(question, parts)
            goes_on = moved and trio.current_time() < deadline and self._connection.state is State.OPEN
            self._tally.asked_on += goes_on
        return throttle_ms, parts

    def _left_over(self, question: LegacyFetch) -> list[AnswerPartition]:
        """Use the sources of the last answer that continue the client's offsets, unless other partitions waited too
        long."""
        self.held.busy()
        self._in_a_row += 1
        if self._in_a_row > _IN_A_ROW and any(
            row.topic_partition not in self.held.sources for row in question.partitions
        ):
            self.held.release()
        ahead = {row.topic_partition: row.offset for row in self._turns.in_turn(question.partitions)}
        parts = self._parts(question)
        for part in parts:
            source, partition = part.source, part.wanted.topic_partition
            if source is not None and not any(
                source.goes_on_at(offset) for offset in (part.wanted.offset, ahead[partition])
            ):
                part.source = None
        return parts

    def _parts(self, question: LegacyFetch) -> list[AnswerPartition]:
        """Assign sources to parts; a partition that is named twice gets records once."""
        sources = dict(self.held.sources)
        magic = magic_of(self._header.api_version)
        parts = []
        for wanted in question.partitions:
            partition = wanted.topic_partition
            source = sources.pop(partition, None)
            if source is not None and source.magic != magic:
                source = None
            parts.append(AnswerPartition(wanted=wanted, high_watermark=self._turns.watermark(partition), source=source))
        return parts

    def _answered(self, question: LegacyFetch, answer: UpstreamAnswer) -> list[AnswerPartition]:
        errors = {}
        for answered in answer.partitions:
            partition = TopicPartition(answered.topic, answered.partition)
            code = answered.error_code or answer.error_code
            if code:
                errors[partition] = code  # with the high watermark -1
            else:
                self._turns.learn_watermark(partition, answered.high_watermark)
        parts = self._parts(question)
        for part in parts:
            code = errors.get(part.wanted.topic_partition, answer.error_code)
            part.error_code = self._error_for_client(code)
        return parts

    async def _fill(self, question: LegacyFetch, parts: list[AnswerPartition]) -> bool:
        """Returns whether there are offsets to skip that were not known before."""
        turns = {row.topic_partition: number for number, row in enumerate(self._turns.in_turn(question.partitions))}
        in_turn = sorted(parts, key=lambda part: turns[part.wanted.topic_partition])
        self._hurries = self._is_new and self.held.is_wanted
        await fill(in_turn, chunk=self._settings.chunk_bytes, max_bytes=question.max_bytes, hurry=self._hurries)
        return any([self._filled(part) for part in parts])

    def _filled(self, part: AnswerPartition) -> bool:
        partition, source = part.wanted.topic_partition, part.source
        if part.error_code:
            return self._is_excused(part)
        if source is None:
            return False
        if part.size:
            self._turns.gave(partition, source.needed_bytes)
        elif source.failure is not None:
            part.error_code = self._failed(partition, source.failure)
        elif source.ended:
            return self._turns.nothing_between(partition, part.wanted.offset, source.offset)
        elif source.wants:  # for the next answer, if another partition's records or error are sent now
            self._turns.learn_need(partition, source.wants)
        return False

    def _is_excused(self, part: AnswerPartition) -> bool:
        """The error is for a later offset than the client's: ask for the client's offset then."""
        if not self._turns.refused(part.wanted.topic_partition):
            return False
        part.error_code = 0
        return True

    def _failed(self, partition: TopicPartition, failure: Failure) -> int:
        topic, number = partition
        self._tally.fetch_errors += 1
        connection = self._connection
        connection.listener.complain(
            "legacy-records-not-sent",
            f"{topic!r}-{number} cannot be sent to {connection.peer} ({connection.shown_client_id}) from offset "
            f"{failure.offset} on ({failure.kind}: {failure.text}): {_WAYS_OUT[failure.kind]}",
            topic=topic,
            partition=number,
            client_id=connection.client_id,
            peer=str(connection.peer),
            offset=failure.offset,
            failure=failure.kind.name.lower(),
            detail=failure.text,
        )
        java_0_9 = self._header.api_version == _JAVA_0_9
        return self._error_for_client(ErrorCode.TOPIC_AUTHORIZATION_FAILED if java_0_9 else _FAILURES[failure.kind])

    def _error_for_client(self, error_code: int) -> int:
        return downgrade_error(ApiKey.FETCH, self._header.api_version, error_code, self._client)

    # -- the broker --------------------------------------------------------------------------------------------------

    async def _ask(self, question: LegacyFetch) -> UpstreamAnswer:
        """Afterwards `held` has exactly the broker's answer. Raises UpstreamLost, UpstreamFault."""
        self.held.release()
        self._in_a_row = 0
        await self._keep_alive.until_answered()
        most = self._settings.fetch_bytes
        limited = replace(
            question,
            min_bytes=min(question.min_bytes, most),
            max_bytes=min(question.max_bytes, most),
            partitions=tuple(row._replace(max_bytes=min(row.max_bytes, most)) for row in question.partitions),
        )
        committed = self._settings.isolation is Isolation.READ_COMMITTED
        self.held.expected = self._turns.need(row.topic_partition for row in question.partitions)
        request = write_upstream_fetch(0, self._header.client_id, limited, isolation_level=int(committed))
        asked = await self._connection.broker.post([request], note=CONVERTED, gate=self.held.gate)
        return self._open(await asked.frame(), {row.topic_partition: row.offset for row in question.partitions})

    def _open(self, frame: bytearray, offsets: dict[TopicPartition, int]) -> UpstreamAnswer:
        with blaming_the_broker():
            answer = read_upstream_answer(frame)
        for answered in answer.partitions:
            partition = TopicPartition(answered.topic, answered.partition)
            offset = offsets.get(partition)
            if offset is not None and answered.start < answered.end and not (answered.error_code or answer.error_code):
                self.held.sources[partition] = self._source(frame, answered, offset)
        return answer

    def _source(self, frame: bytearray, fetched: Fetched, offset: int) -> PartitionConversion:
        settings, magic = self._settings, magic_of(self._header.api_version)
        committed = settings.isolation is Isolation.READ_COMMITTED
        self._tally.conversions += 1
        self._tally.source_bytes += fetched.end - fetched.start
        conversion = DownConversion(
            frame,
            fetched.start,
            fetched.end,
            magic=magic,
            offset=offset,
            aborted=read_aborted(frame, fetched) if committed else (),
            keep_codec=settings.compression is SetCompression.SOURCE,
            chunk=settings.chunk_bytes,
        )
        return PartitionConversion(conversion, magic, settings.chunk_bytes, self.held, self._tally)

    async def stay(self) -> None:
        await self._keep_alive.stay()

    async def again(self, part: AnswerPartition) -> PartitionConversion | None:
        before, partition = part.source, part.wanted.topic_partition
        assert before is not None
        if before.wants:
            self._turns.learn_need(partition, before.wants)
        wanted = part.wanted._replace(offset=before.offset)
        most = self._settings.fetch_bytes
        question = LegacyFetch(max_wait_ms=0, min_bytes=_AT_ONCE, max_bytes=most, partitions=(wanted,))
        with suppress(UpstreamLost):
            answer = await self._ask(question)
            while before.owed and answer.is_over_quota and self._connection.state is State.OPEN:
                answer = await self._ask(question)
        source = self.held.sources.get(partition)
        if source is not None:
            source.follow(before)
        return source


def _working_bytes(settings: LegacySettings) -> int:
    """Memory of conversion in addition to the answer: two pieces, and the decompressor's window (plain_stream.py)."""
    return 2 * settings.chunk_bytes + _WINDOW


def _bound_the_kernel(client: SocketTransport, upstream: SocketTransport, size: int) -> None:
    """Limit the socket's buffers: otherwise they hold megabytes of converted messages for a client that does not read,
    and megabytes of an answer that waits for the budget, which should stay at the broker.
    """
    with suppress(OSError):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max(size, _RECEIVED))
