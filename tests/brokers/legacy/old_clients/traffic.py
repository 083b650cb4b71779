"""Records for old clients to write, and common steps of tests."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.content.records import EPOCH_MS

from .client import CREATE_TIME, NO_TIMESTAMP, Record, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .client import OldClient
    from .kinds import Kind

_NAMES = (f"one-{number}" for number in count(1))
_KEYS = (None, b"", b"key", b"\x00\xff")
_VALUES = (b"", b"value", b"\xff" * 300, b"long " * 400)
_RUN = 100  # records in one request of the Scala producer


def various(number: int, kind: Kind) -> list[Record]:
    """Null and empty keys, null, empty and longer values, all different; with timestamps if the client has them."""
    return [_record(index, kind) for index in range(number)]


def _record(index: int, kind: Kind) -> Record:
    key = _KEYS[index % 4]
    value = None if index % 17 == 3 and key is not None else _VALUES[index // 4 % 4] + b"#%d" % index
    return Record(key, b"" if index == 5 else value, EPOCH_MS + index if kind.timestamps else -1)


def write(
    client: OldClient,
    kind: Kind,
    bootstrap: str,
    topic: str,
    records: Sequence[Record],
    codec: str,
    partition: int = 0,
    *,
    run: int = 0,
    settings: Mapping[str, object] | None = None,
) -> list[str]:
    """The result of each record, see `OldClient.outcomes`. `run`: records per flush; `settings`: of the client."""
    name = next(_NAMES)
    client.ask("producer", name, *kind.words({**kind.producer(bootstrap, codec), **(settings or {})}))
    run = run or (_RUN if kind.family == "scala" else len(records))
    outcomes = []
    for start in range(0, len(records), run):
        client.send(name, topic, partition, records[start : start + run])
        outcomes += client.outcomes(name)
    client.ask("close", name)
    return outcomes


def consumer(
    client: OldClient,
    kind: Kind,
    bootstrap: str,
    group: str,
    *,
    commits: bool = False,
    settings: Mapping[str, object] | None = None,
) -> str:
    """The name of a new consumer."""
    name = next(_NAMES)
    client.ask("consumer", name, *kind.words({**kind.consumer(bootstrap, group, commits=commits), **(settings or {})}))
    return name


def read(
    client: OldClient, kind: Kind, bootstrap: str, topic: str, number: int, *, partition: int = 0, offset: int = 0
) -> list[Seen]:
    """`number` records from `offset` on, by a consumer without a group."""
    name = consumer(client, kind, bootstrap, f"none-{topic}")
    client.ask("assign", name, topic, partition, offset)
    seen = client.take(name, number)
    client.ask("close", name)
    return seen


def as_seen(records: Iterable[Record], kind: Kind, *, partition: int = 0) -> list[Seen]:
    """The records that a client of this kind must see at offsets 0, 1, 2, ..., without timestamps if it has none."""
    return [
        Seen(partition, at, record, CREATE_TIME)
        if kind.timestamps
        else Seen(partition, at, record._replace(timestamp=-1), NO_TIMESTAMP)
        for at, record in enumerate(records)
    ]
