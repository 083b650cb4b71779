"""A row of the index: one table, from which the writer's structs and every reader's data types are generated.

A row has a part that is equal for all batches of a partition in one request or answer, a part per batch, and the record
batch's header as on the wire. So the proxy writes a batch with three appends, without decoding, and readers find the
header's fields at Kafka's offsets (big-endian; the rest is little-endian). Append new fields, and raise VERSION.

A row without records has a zero header. Names are numbers of the block type NAMES; 0 is no name.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

__all__ = [
    "BATCH",
    "CONTEXT",
    "FIELDS",
    "HEADER_SIZE",
    "NO_RECORDS",
    "ROW_SIZE",
    "VERSION",
    "Direction",
    "Field",
    "Handling",
    "Kind",
]

VERSION: Final = 1
HEADER_SIZE: Final = 61  # of a record batch of magic 2 (DefaultRecordBatch.RECORD_BATCH_OVERHEAD)


class Kind(IntEnum):
    REQUEST = 0
    """A request without records, and its answer."""
    BATCH = 1


class Direction(IntEnum):
    PRODUCED = 0
    """From a client to a broker."""
    FETCHED = 1
    """From a broker to a client."""
    OTHER = 2


class Handling(IntEnum):
    PASSED = 0
    """Unchanged, on a plain listener."""
    RAW = 1
    """Unchanged, on a listener that wraps, unwraps or joins; `reason` has the cause."""
    WRAPPED = 2
    UNWRAPPED = 3
    COALESCED = 4
    OWN = 5
    """Shoal's own request."""
    FENCED = 6
    """Unwrapped, and appended at its offsets in the source, or not at all: of a mirror topic."""
    ABORTED = 7
    """Fetched for a mirror topic, and left out: its transaction was aborted."""


class Field(NamedTuple):
    """`code`: of the struct module and, with its byte order, of numpy."""

    name: str
    code: str
    meaning: str
    name_number: bool = False


_CONTEXT = (
    Field(
        "time_ns",
        "q",
        "Unix time at which Shoal had the request (produced, other) or the answer (fetched), nanoseconds",
    ),
    Field("latency_ns", "q", "from the request to the first byte of the broker's answer; -1: not known, or no answer"),
    Field("connection", "I", "number of the client connection in this process, from 1"),
    Field("request", "I", "number of the request on its connection, from 1"),
    Field("client", "I", "client id", name_number=True),
    Field(
        "software",
        "I",
        "client software name and version of ApiVersions v3 (KIP-511): `name/version`",
        name_number=True,
    ),
    Field("listener", "I", "name of the listener", name_number=True),
    Field("cluster", "I", "name of the cluster in the configuration", name_number=True),
    Field("topic", "I", "name of the topic, or its id in hexadecimal where the name is not known", name_number=True),
    Field("reason", "I", "why a batch is RAW, in the words of the report", name_number=True),
    Field(
        "source_topic",
        "I",
        "of an UNWRAPPED or FENCED batch: the topic that it was fetched from; of a probe (OWN): the mirror topic's",
        name_number=True,
    ),
    Field("source_partition", "i", "and the partition; -1: none"),
    Field("node", "i", "id of the broker; -1: not known"),
    Field("partition", "i", "-1: none"),
    Field("throttle_ms", "i", "of the answer; 0 where it has none"),
    Field("request_bytes", "i", "the request frame with its size; -1: not known"),
    Field("response_bytes", "i", "the answer frame with its size; -1: not known, or no answer"),
    Field("api_key", "h", ""),
    Field("api_version", "h", ""),
    Field("acks", "h", "of a Produce request; -2: none"),
    Field("error", "h", "error code of the partition, or of the whole answer; -32768: not known"),
    Field("kind", "B", "Kind"),
    Field("direction", "B", "Direction"),
    Field("handling", "B", "Handling"),
    Field("spare", "B", "0"),
)
_BATCH = (
    Field("log_offset", "q", "base offset of the batch in the partition's log; -1: not known (acks 0, an error)"),
    Field("source_first", "q", "of an UNWRAPPED or FENCED batch: its base offset in the source; -1: none"),
    Field("source_last", "q", "and its last offset"),
    Field(
        "raw_bytes",
        "i",
        "size of the records without compression, where the codec states it (or there is none); -1: unknown",
    ),
    Field("has_keys", "b", "whether the first records have keys: 1, 0; -1: not looked into"),
)
_HEADER = (  # DefaultRecordBatch
    Field("base_offset", "q", "as it stood on the wire: 0 in a Produce request"),
    Field("batch_length", "i", "bytes behind this field: the whole batch has 12 more"),
    Field("partition_leader_epoch", "i", ""),
    Field("magic", "b", "0 in a row without records"),
    Field("crc", "I", ""),
    Field("attributes", "h", "bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon"),
    Field("last_offset_delta", "i", ""),
    Field("base_timestamp", "q", "ms"),
    Field("max_timestamp", "q", "ms"),
    Field("producer_id", "q", "-1: none"),
    Field("producer_epoch", "h", ""),
    Field("base_sequence", "i", ""),
    Field("record_count", "i", ""),
)


def _packed(order: str, fields: tuple[Field, ...]) -> Struct:
    return Struct(order + "".join(field.code for field in fields))


CONTEXT: Final = _packed("<", _CONTEXT)
BATCH: Final = _packed("<", _BATCH)
assert _packed(">", _HEADER).size == HEADER_SIZE
ROW_SIZE: Final = CONTEXT.size + BATCH.size + HEADER_SIZE
NO_RECORDS: Final = BATCH.pack(-1, -1, -1, -1, -1) + bytes(HEADER_SIZE)
"""What follows the context in a row without records."""
FIELDS: Final = (
    *((field, "<") for field in (*_CONTEXT, *_BATCH)),
    *((field, ">") for field in _HEADER),
)
"""All fields of a row, in order and without padding, each with its byte order (of the struct module)."""
