"""Questions that the proxy asks about every Produce request and response, and about every Fetch response, answered for
common frames without a walk.

They answer only when certain; otherwise the caller uses the walkers of `produce.py` and `addresses.py`. With cold
caches, as between two requests of a producer, the walks take 18 us per request, these functions 4 us.
"""

from struct import Struct
from typing import Final

from shoal.protocol.schema.headers import REQUEST_PREFIX
from shoal.protocol.wire.types import Buffer

__all__ = ["fetch_names_no_broker", "names_no_broker", "usual_acks", "usual_head"]

_BEFORE_ACKS: Final = {version: b"\xff\xff" if version < 9 else b"\x00\x00" for version in range(3, 14)}
"""The bytes between client id and acks, by version: [no header tags], no transactional id."""

_NAMED: Final = range(10, 13)
_BY_ID: Final = 13
_ONE_TOPIC: Final = b"\x00\x02"
"""No header tags, an array of one element."""
_ONE_TOPIC_AT: Final = 8
_TOPIC_AT: Final = 10
_TOPICS: Final = Struct("2sB").unpack_from  # the array's size, the first byte behind it
_SMALLEST_PARTITION: Final = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
"""Index, error code, base offset, log append time, log start offset, record errors, error message, tags."""
_AFTER_PARTITIONS: Final = 1 + 4 + 1
"""Topic tags, throttle time, tags."""
_FETCH_VERSIONS: Final = range(16, 19)
_FETCHED: Final = Struct(">8xB10xB16xB30xB4xB")
"""Header tags; number of topics, of partitions, of aborted transactions; first byte of the records' length. Skipped:
size, correlation id; throttle, error, session; topic id; index, error, three offsets; preferred replica."""
_NO_TOPICS: Final = 20 + 1
_NO_TAGS: Final = bytes(3)  # of the partition, the topic, the answer
_ONE, _NONE = 2, 1  # lengths of compact arrays
_ONE_BYTE: Final = 127
"""The largest unsigned varint of one byte."""


def usual_acks(first: Buffer, version: int) -> int | None:
    """`peek_acks` for a Produce request v3-v13 without header tags and transactional id.

    None for any other request, or when more bytes are needed.
    """
    end = usual_head(first, version)
    return int.from_bytes(first[end - 2 : end], "big", signed=True) if end else None


def usual_head(first: Buffer, version: int) -> int:
    """The end of acks in such a request; 0 for any other."""
    client_id = max(int.from_bytes(first[REQUEST_PREFIX : REQUEST_PREFIX + 2], "big", signed=True), 0)
    at = REQUEST_PREFIX + 2 + client_id
    return at + 4 if len(first) >= at + 4 and first[at : at + 2] == _BEFORE_ACKS.get(version) else 0


def names_no_broker(frame: Buffer, version: int) -> bool:
    """True for the common Produce response v10-v13: one topic, no errors, no NodeEndpoints. False is inconclusive.

    Each part of such a response has a minimum size (null strings, empty arrays, no tagged fields). A frame no larger
    than the minimum sizes of its topic and its partitions together cannot contain anything else.
    """
    if len(frame) <= _TOPIC_AT or not (version == _BY_ID or version in _NAMED):
        return False
    one, topic = _TOPICS(frame, _ONE_TOPIC_AT)
    if version == _BY_ID:
        topic = 16
    count_at = _TOPIC_AT + topic
    if one != _ONE_TOPIC or topic > _ONE_BYTE or count_at >= len(frame):
        return False
    count = frame[count_at]
    size: int = count_at + 1 + (count - 1) * _SMALLEST_PARTITION + _AFTER_PARTITIONS
    return count <= _ONE_BYTE and len(frame) == size


def fetch_names_no_broker(frame: Buffer, version: int) -> bool:
    """True for the common Fetch response v16-v18: no topic, or one partition; no tags. False is inconclusive."""
    size = len(frame)
    if version not in _FETCH_VERSIONS or size < _FETCHED.size + len(_NO_TAGS):
        return size == _NO_TOPICS and version in _FETCH_VERSIONS and bytes(frame[-2:]) == b"\1\0" and not frame[8]
    tags, topics, partitions, aborted, length = _FETCHED.unpack_from(frame)
    if tags or topics != _ONE or partitions != _ONE or aborted > _NONE:
        return False
    end = _FETCHED.size
    if length > _ONE_BYTE:
        length += (frame[end] << 7) - 0x80
        end += 1
        if length > 0x3FFF:  # two bytes
            length += (frame[end] << 14) - 0x4000
            end += 1
            if length > 0x1FFFFF:
                return False
    return end + max(length - 1, 0) + len(_NO_TAGS) == size and bytes(frame[-len(_NO_TAGS) :]) == _NO_TAGS
