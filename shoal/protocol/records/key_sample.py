"""Whether records have keys: the one thing about a batch that its header does not say, so it is looked into, for a sample of them.

Of one batch in N the first 4 KiB are decompressed and its first records' keys are looked at. Kafka's default partitioner sends
records with a key by its hash and others where it likes, so a topic whose records have keys must keep its number of partitions.
"""

from collections.abc import Sequence
from random import Random

from shoal.protocol.wire.compression import Codec, decompress_start
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_varint, read_varlong

__all__ = ["KeySampler", "has_keys"]

_BYTES = 4096  # plain, of a batch
_RECORDS = 8
_MIN_LENGTH = 6  # of a record, without the length itself
_CODEC_MASK = 0x07


def has_keys(attributes: int, payload: Buffer) -> bool | None:
    """Whether one of the first records of a batch has a key; None where that cannot be seen. Bounded, and never raises.

    `attributes`: of the batch's header; `payload`: what follows its 61 bytes.
    """
    try:
        return _any_key(decompress_start(Codec(attributes & _CODEC_MASK), payload, _BYTES))
    except (RemoteProtocolError, ValueError):  # ValueError: no codec that we know
        return None


def _any_key(plain: bytes) -> bool | None:
    """The records may be cut off anywhere, since only the first bytes are there."""
    pos, end, seen = 0, len(plain), None
    for _ in range(_RECORDS):
        try:
            length, start = read_varint(plain, pos, end)
            _, at = read_varlong(plain, start + 1, end)  # behind the attributes: timestampDelta
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
    """Which batches are looked into: one in `every` on average (0: none), at random distances, so that no pattern of the traffic
    hides from it. `seed`: equal ones choose equally."""

    def __init__(self, every: int, seed: int = 0) -> None:
        self._distances = 2 * every - 1
        self._random = Random(seed)
        self._left: float = float("inf") if every <= 0 else self._random.randrange(every)

    def picks(self, batches: int) -> Sequence[int]:
        """Those of the next `batches` that are due, by their place among them: nearly always none."""
        if self._left >= batches:
            self._left -= batches
            return ()
        picked, at = [], int(self._left)
        while at < batches:
            picked.append(at)
            at += 1 + self._random.randrange(self._distances)
        self._left = at - batches
        return picked
