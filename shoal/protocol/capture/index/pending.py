"""A request until its answer, and the proxy's annotations of it (`RequestAnnotation`, `FetchOutcome`)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.protocol.capture.index.columns import Handling
from shoal.protocol.wire.types import Topic

if TYPE_CHECKING:
    from shoal.protocol.capture.index.record_sets import PartitionRows, SingleBatch

__all__ = ["NO_NOTE", "PASSED", "BatchSource", "FetchOutcome", "Request", "RequestAnnotation", "Treatment"]

NO_ACKS: Final = -2
TOKEN: Final = 1 << 16
"""Instead of an API key (int16): not a Kafka request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How Shoal handled the batch of a row."""

    handling: Handling = Handling.PASSED
    reason: str | None = None
    source_topic: str | None = None
    source_partition: int = -1


PASSED: Final = Treatment()


class BatchSource(NamedTuple):
    """Source of an unwrapped batch; `first` and `last` are its offsets there. `reason`: a problem of its envelope.

    `handling`: UNWRAPPED or FENCED; OWN for the probe of a mirror topic, which has no offsets there.
    """

    topic: str
    partition: int
    first: int
    last: int
    reason: str | None = None
    handling: Handling = Handling.UNWRAPPED


class FetchOutcome(NamedTuple):
    """Outcome of a fetched partition: batches within `wrapped` (first and last offsets) were wrapped, the others are
    raw for `reason`. `given_below`: the client got only batches below this offset (0: none) and will fetch the others
    again; those make no rows. `aborted`: base offsets of batches that were left out, also within `wrapped`.
    """

    wrapped: Sequence[tuple[int, int]] = ()
    reason: str | None = None
    given_below: int | None = None
    aborted: Collection[int] = ()


class RequestAnnotation(NamedTuple):
    """How Shoal handles a request. `judged`: a `Tap.judge` follows, with an outcome per partition.

    `sources`: of the batches of each partition, in order; None: not from an envelope.
    """

    treatment: Treatment = PASSED
    judged: bool = False
    sources: Mapping[tuple[Topic, int], Sequence[BatchSource | None]] = MappingProxyType({})


NO_NOTE: Final = RequestAnnotation()


class Request:
    """`sent_ns`: when its last byte was sent."""

    __slots__ = (
        "acks",
        "api_key",
        "api_version",
        "client",
        "correlation_id",
        "note",
        "number",
        "partitions",
        "sent_ns",
        "size",
    )

    def __init__(self, api_key: int, api_version: int, correlation_id: int, size: int, number: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.size = size
        self.number = number
        self.client = b""
        self.acks = NO_ACKS
        self.sent_ns = 0
        self.note = NO_NOTE
        self.partitions: list[PartitionRows | SingleBatch] = []

    @property
    def is_token(self) -> bool:
        return self.api_key == TOKEN
