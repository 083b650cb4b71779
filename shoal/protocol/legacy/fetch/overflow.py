"""What fills a promised record set to its size: one message that does not end within it, which every old client drops.

A broker always cut a set wherever the client's limit fell, so clients drop an unfinished message at the end. Kafka ends a lazily
converted set in the same way (LazyDownConversionRecordsSend.java), and what it wrote is what clients are known to read: offset -1,
a size that reaches beyond the set, nothing else. The size must not be below that of a whole message, or ByteBufferMessageSet (0.8)
and ByteBufferLogInputStream (0.10.2) call it corrupt; the magic byte must be one that librdkafka knows, and 0 is.

A set must not consist of this alone: clients below Fetch v3 take that for a message larger than their limit (RecordTooLarge).
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from shoal.protocol.wire.types import Buffer

__all__ = ["overflow"]

_HEAD = Struct(">qi")  # offset, size
_LEAST: Final = 61
"""As in Kafka: no smaller than a batch of magic 2, so neither than any message."""
_ZEROS: Final = memoryview(bytes(64 * 1024))


def overflow(size: int) -> Sequence[Buffer]:
    """Exactly `size` bytes (1 or more). Of whatever size, they are one head and slices of one static buffer."""
    head = _HEAD.pack(-1, max(size, _LEAST))[:size]
    whole, rest = divmod(size - len(head), len(_ZEROS))
    return [head, *[_ZEROS] * whole, *([_ZEROS[:rest]] if rest else [])]
