"""The envelopes of Shoal's wrap listener for the fetched topic: what a mirror would produce to the other cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import frames
from bench.load import Wire
from bench.runs import introduce
from bench.stage import BATCHES, MIRROR_CLIENT, PARTITIONS, RECORDS
from shoal.protocol import FetchedPartition, read_batch_header, read_fetch_response, split

if TYPE_CHECKING:
    from bench.peers import Peer

__all__ = ["Captured", "capture"]

END = BATCHES * RECORDS
MOSTLY = 0.9  # of all records: the first batch after a start is never wrapped


@dataclass(slots=True)
class Captured:
    """One reading of the topic from its beginning to its end, as a mirror's consumer reads it."""

    fetches: list[bytes] = field(default_factory=list)
    envelopes: dict[int, list[bytes]] = field(default_factory=lambda: {at: [] for at in range(PARTITIONS)})
    """Producible batches of one envelope each, by partition, in order."""
    wrapped: int = 0
    """Records in the envelopes."""
    position: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    def take(self, answer: bytes, fetched: FetchedPartition) -> None:
        for span in split(answer, fetched.start, fetched.end).spans:
            header = read_batch_header(answer, span.start, span.end)
            following = header.last_offset + 1
            if header.record_count == 1:
                self.wrapped += following - self.position[fetched.partition]
                # A producer's base offset is 0; the CRC does not cover it.
                self.envelopes[fetched.partition].append(bytes(8) + answer[span.start + 8 : span.end])
            self.position[fetched.partition] = following


def capture(peer: Peer, topic: frames.Topic) -> Captured:
    """Raises RuntimeError when Shoal left more than the first batches unwrapped."""
    captured = Captured()
    with Wire(peer.address) as wire:
        introduce(wire)
        while asked := {partition: offset for partition, offset in captured.position.items() if offset < END}:
            captured.fetches.append(frames.fetch(MIRROR_CLIENT, topic, asked))
            wire.send(captured.fetches[-1])
            answer = wire.answer()
            for fetched in read_fetch_response(answer, frames.FETCH_VERSION).partitions:
                captured.take(answer, fetched)
    if captured.wrapped < MOSTLY * PARTITIONS * END:
        raise RuntimeError(f"{peer.name} wrapped only {captured.wrapped:,} of {PARTITIONS * END:,} records")
    return captured
