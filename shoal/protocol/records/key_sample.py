"""Do records have keys? Batch headers do not show it, so a sample of batches is inspected.

In one of N batches the first 4 KiB are decompressed and the keys of its first records are checked. Kafka's default
partitioner hashes the key of a record that has one, and places other records freely. So a topic with keyed records must
keep its number of partitions.
"""

from collections.abc import Sequence
from random import Random

from shoal.protocol.wire.compression import Codec, decompress_start
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_varint, read_varlong

__all__ = ["KeySampler", "has_keys"]

_BYTES = 4096  # decompressed bytes per batch
_RECORDS = 8
_MIN_LENGTH = 6  # of a record, without the length field itself
_CODEC_MASK = 0x07


def has_keys(attributes: int, payload: Buffer) -> bool | None:
    """Whether one of the first records of a batch has a key; None if unknown. Bounded time; never raises.

    `attributes`: those of the batch header; `payload`: the bytes after the 61 of the header.
    """
    try:
        return _any_key(decompress_start(Codec(attributes & _CODEC_MASK), payload, _BYTES))
    except (RemoteProtocolError, ValueError):  # ValueError: unknown codec
        return None


def _any_key(plain: bytes) -> bool | None:
    """The records may be cut off anywhere, since only the first bytes are given."""
    pos, end, seen = 0, len(plain), None
    for _ in range(_RECORDS):
        try:
            length, start = read_varint(plain, pos, end)
            _, at = read_varlong(plain, start + 1, end)  # after the attributes: timestampDelta
            _, at = read_varint(plain, at, end)  # offsetDelta
            key, _ = read_varint(plain, at, end)
        except RemoteProtocolError:
            break
        if length < _MIN_LENGTH or not -1 <= key < length:
            return None
        if key >= 0:
            return True
        seen, pos = False, start + length
    return seen


class KeySampler:
    """Chooses the batches to inspect: one in `every` on average (0: none).

    The distances are random, so that no traffic pattern escapes the sample. Equal `seed`s choose equally.
    """

    def __init__(self, every: int, seed: int = 0) -> None:
        self._distances = 2 * every - 1
        self._random = Random(seed)
        self._left: float = float("inf") if every <= 0 else self._random.randrange(every)

    def picks(self, batches: int) -> Sequence[int]:
        """The indices of those of the next `batches` to inspect: nearly always none."""
        if self._left >= batches:
            self._left -= batches
            return ()
        picked, at = [], int(self._left)
        while at < batches:
            picked.append(at)
            at += 1 + self._random.randrange(self._distances)
        self._left = at - batches
        return picked
