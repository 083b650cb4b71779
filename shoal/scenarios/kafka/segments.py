"""A topic's log on a broker's disk: its batches, counted from their headers without reading the records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SegmentContents", "segment_contents"]

_HEADER = Struct(
    ">"
    "8x"  # baseOffset
    "i"  # batchLength
    "4x"  # partitionLeaderEpoch
    "b"  # magic
    "4x"  # crc
    "h"  # attributes
    "34x"  # lastOffsetDelta, baseTimestamp, maxTimestamp, producerId, producerEpoch, baseSequence
    "i"  # recordsCount
)
_UNCOUNTED = 12  # baseOffset and batchLength
_MAGIC = 2
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_MASK = 0x07


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContents:
    records: int
    batches: int
    size: int  # bytes
    codecs: tuple[str, ...]  # the most frequent first

    @property
    def batch_size(self) -> float:
        """Mean bytes of a batch."""
        return self.size / max(1, self.batches)


def segment_contents(data: Path, topic: str) -> SegmentContents:
    """The contents of `topic` in a broker's log directory `data`. Raises ValueError for any other magic."""
    records, batches, size = 0, 0, 0
    codecs: Counter[str] = Counter()
    for path in sorted(data.glob(f"{topic}-[0-9]*/*.log")):
        with path.open("rb") as segment:
            for length, attributes, count in _headers(segment):
                records, batches, size = records + count, batches + 1, size + length
                codecs[_CODECS[attributes & _CODEC_MASK]] += 1
    return SegmentContents(
        records=records, batches=batches, size=size, codecs=tuple(name for name, _ in codecs.most_common())
    )


def _headers(segment: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """(bytes, attributes, records) of each complete batch; a preallocated or half-written end is left out."""
    while len(head := segment.read(_HEADER.size)) == _HEADER.size:
        length, magic, attributes, count = _HEADER.unpack(head)
        if length <= 0:
            return
        if magic != _MAGIC:
            raise ValueError(f"{segment.name}: magic {magic} at {segment.tell() - _HEADER.size}")
        yield _UNCOUNTED + length, attributes, count
        segment.seek(_UNCOUNTED + length - _HEADER.size, 1)
