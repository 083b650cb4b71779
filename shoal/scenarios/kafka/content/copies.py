"""Contents of a topic as fingerprints: every record is read, 16 bytes of each are kept.

A fingerprint is Python's 64-bit SipHash of (timestamp, key, value, headers). Within one process equal records have
equal fingerprints; among two million different records, the probability of a collision is 10^-7. Where two copies
differ, the records themselves are read again to show how.
"""

from array import array
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from confluent_kafka import Message

from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity

from .clients import Setting, in_thread
from .reading import READ_TIMEOUT_S, READ_UNCOMMITTED, partition_of, read_all, read_one

_SHOWN = 120  # bytes of a key or value in an error message


def _int64s() -> "array[int]":
    return array("q")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCopy:
    fingerprints: "array[int]" = field(default_factory=_int64s)
    offsets: "array[int]" = field(default_factory=_int64s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    bootstrap: str
    topic: str
    partitions: dict[int, PartitionCopy]
    timestamp_types: bool
    login: ClientSecurity = ANYBODY

    @property
    def records(self) -> int:
        return sum(len(partition.offsets) for partition in self.partitions.values())

    async def contents(self, partition: int, index: int) -> "Contents":
        """The record whose fingerprint has number `index`. Raises TrafficFailed when it is gone."""
        offset = self.partitions[partition].offsets[index]
        message = await in_thread(partial(read_one, self.bootstrap, self.topic, partition, offset, login=self.login))
        return Contents(*_parts(message, self.timestamp_types))


class Contents(NamedTuple):
    """One record with its fields as on the wire."""

    timestamp: int
    timestamp_type: int | None
    """confluent_kafka.TIMESTAMP_CREATE_TIME (1) or TIMESTAMP_LOG_APPEND_TIME (2); None if not compared."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={_brief(part)}" for name, part in self._asdict().items())


def _brief(part: object) -> str:
    if isinstance(part, bytes) and len(part) > _SHOWN:
        return f"{part[:_SHOWN]!r}... ({len(part)} bytes)"
    return repr(part)


Parts = tuple[int, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _parts(message: Message, types: bool) -> Parts:
    """The fields of `Contents` as a plain tuple, which is cheaper: called for every record."""
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    return timestamp, kind if types else None, message.key(), message.value(), headers  # type: ignore[return-value]


def fingerprint(message: Message, *, timestamp_types: bool) -> int:
    """The fingerprint of a consumed record; with `timestamp_types`, the type counts too."""
    return hash(_parts(message, timestamp_types))


async def read_copy(
    bootstrap: str,
    topic: str,
    *,
    isolation: str = READ_UNCOMMITTED,
    timestamp_types: bool = False,
    within: float = READ_TIMEOUT_S,
    login: ClientSecurity = ANYBODY,
    **settings: Setting,
) -> Copy:
    """Read all of `topic` that exists now; with `timestamp_types`, the type counts too. Raises TrafficFailed."""
    partitions: dict[int, PartitionCopy] = {}

    def take(messages: list[Message]) -> None:
        for message in messages:
            _, partition = partition_of(message)
            copy = partitions.get(partition) or partitions.setdefault(partition, PartitionCopy())
            copy.fingerprints.append(fingerprint(message, timestamp_types=timestamp_types))
            copy.offsets.append(message.offset() or 0)

    count = await read_all(bootstrap, topic, take, within=within, isolation_level=isolation, login=login, **settings)
    whole = {partition: partitions.get(partition, PartitionCopy()) for partition in range(count)}
    return Copy(bootstrap=bootstrap, topic=topic, partitions=whole, timestamp_types=timestamp_types, login=login)
