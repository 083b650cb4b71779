"""The envelopes that Shoal's wrap listener makes of the fetched topic: what a mirror would produce to the other cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import frames
from bench.load import Wire
from bench.runs import introduce
from bench.stage import BATCHES, MIRROR_CLIENT, PARTITIONS, RECORDS
from shoal.protocol.messages.fetch import FetchedPartition, read_fetch_response
from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.records.recordset import split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.peers import Peer

__all__ = ["capture"]

END = BATCHES * RECORDS


def capture(peer: Peer, topic: frames.Topic) -> dict[int, list[bytes]]:
    """By partition, in order, as producible batches. Raises RuntimeError when something came unwrapped."""
    envelopes: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    position = dict.fromkeys(envelopes, 0)
    with Wire(peer.address) as wire:
        introduce(wire)
        while asked := {partition: offset for partition, offset in position.items() if offset < END}:
            wire.send(frames.fetch(MIRROR_CLIENT, topic, asked))
            answer = wire.answer()
            for fetched in read_fetch_response(answer, frames.FETCH_VERSION).partitions:
                for next_offset, envelope in _envelopes(answer, fetched):
                    envelopes[fetched.partition].append(envelope)
                    position[fetched.partition] = next_offset
    return envelopes


def _envelopes(answer: bytes, fetched: FetchedPartition) -> Iterator[tuple[int, bytes]]:
    for span in split(answer, fetched.start, fetched.end).spans:
        header = read_batch_header(answer, span.start, span.end)
        if header.record_count != 1:
            raise RuntimeError(
                f"partition {fetched.partition}, offset {header.base_offset}: Shoal did not wrap the batch"
            )
        yield header.last_offset + 1, bytes(8) + answer[span.start + 8 : span.end]  # a producer's base offset is 0
