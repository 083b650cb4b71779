"""Pads a promised record set to its size: an incomplete message, which every old client drops.

Brokers always cut a set at the client's limit, so clients drop an incomplete message at the end. Kafka ends a lazily
converted set in the same way (LazyDownConversionRecordsSend.java), with bytes that clients are known to read: offset
-1, a size beyond the set's end, nothing else. The size must be at least that of a whole message, or
ByteBufferMessageSet (0.8) and ByteBufferLogInputStream (0.10.2) call it corrupt; the magic byte must be one that
librdkafka knows, and 0 is.

A set must not consist of padding alone: clients below Fetch v3 take that for a message larger than their limit
(RecordTooLarge).
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from shoal.protocol.wire.types import Buffer

__all__ = ["overflow"]

_HEAD = Struct(">qi")  # offset, size
_LEAST: Final = 61
"""As in Kafka: the size of the smallest magic 2 batch, so no less than that of any message."""
_ZEROS: Final = memoryview(bytes(64 * 1024))


def overflow(size: int) -> Sequence[Buffer]:
    """Exactly `size` bytes (1 or more): one head and slices of one static buffer."""
    head = _HEAD.pack(-1, max(size, _LEAST))[:size]
    whole, rest = divmod(size - len(head), len(_ZEROS))
    return [head, *[_ZEROS] * whole, *([_ZEROS[:rest]] if rest else [])]
