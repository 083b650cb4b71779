"""Possible broker logs, the answers from them, and what an old client must get: strategies and readers."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import cramjam
from hypothesis import strategies as st

from shoal.protocol.legacy.message import ATTRIBUTES_AT, Message
from shoal.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    NewRecord,
    encode_batch,
)
from shoal.protocol.records.recordset import split
from shoal.protocol.wire.compression import Codec
from tests.support import kafka_python
from tests.support.legacy.sets import message_lists, numbered, read, seen_by_kafka_python, wrapped
from tests.support.strategies import codecs, record_lists

ABORT, COMMIT = 0, 1
_OLD_CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]


class Entry(NamedTuple):
    data: bytes
    last_offset: int


class Transaction(NamedTuple):
    producer: int
    first: int
    last: int


class Log:
    """Entries in the order of their offsets, with `all` messages in them as a client of magic 1 would see them."""

    def __init__(self, first: int = 0) -> None:
        self.end = first
        self.entries: list[Entry] = []
        self.all: list[Message] = []
        self.aborted: list[Transaction] = []
        self._open: dict[int, tuple[int, list[int]]] = {}
        self._hidden: set[int] = set()

    @property
    def committed(self) -> list[Message]:
        return [message for message in self.all if message.offset not in self._hidden]

    def answer(self, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
        """The answer of a broker for `offset`: from the entry with it on, and the aborted transactions that
        reach so far."""
        record_set = b"".join(entry.data for entry in self.entries if entry.last_offset >= offset)
        return record_set, [(one.producer, one.first) for one in self.aborted if one.last >= offset]

    def batch(
        self,
        records: Sequence[NewRecord],
        *,
        codec: Codec = Codec.NONE,
        bits: int = 0,
        producer: int = -1,
        tail: int = 0,
    ) -> None:
        """`producer`: in a transaction of its own; `tail`: offsets at the end that compaction has emptied."""
        deltas = [index if record.offset_delta is None else record.offset_delta for index, record in enumerate(records)]
        last = max(deltas, default=0) + tail
        newest = max((record.timestamp for record in records), default=0)
        late = bool(bits & LOG_APPEND_TIME)
        found = [
            Message(self.end + delta, newest if late else record.timestamp, late, record.key, record.value)
            for record, delta in zip(records, deltas, strict=True)
        ]
        if producer >= 0:
            self._open.setdefault(producer, (self.end, []))[1].extend(message.offset for message in found)
        self.all += found
        bits |= TRANSACTIONAL if producer >= 0 else 0
        self._add(records, last, codec=codec, attributes=bits, producer_id=producer, last_offset_delta=last)

    def marker(self, producer: int, kind: int) -> None:
        first, hidden = self._open.pop(producer, (-1, []))
        if kind == ABORT and first >= 0:
            self.aborted.append(Transaction(producer, first, self.end))
            self._hidden.update(hidden)
        marker = NewRecord(1, kind.to_bytes(4, "big"), bytes(6))
        self._add([marker], 0, attributes=TRANSACTIONAL | CONTROL, producer_id=producer)

    def old(self, magic: int, codec: Codec, listed: Sequence[Message]) -> None:
        """One wrapper, or messages alone, of the time before magic 2."""
        messages = numbered(listed, magic, self.end)
        self.all += messages
        for group in [messages] if codec else [[message] for message in messages]:
            self.entries.append(Entry(wrapped(magic, codec, group), group[-1].offset))
        self.end = messages[-1].offset + 1

    def _add(self, records: Sequence[NewRecord], last_delta: int, **fields: Any) -> None:
        base = None if records else 0
        made = encode_batch(records, base_offset=self.end, base_timestamp=base, **fields)
        self.entries.append(Entry(made, self.end + last_delta))
        self.end += last_delta + 1


_bits = st.sampled_from([0, 0, LOG_APPEND_TIME, DELETE_HORIZON])


def _data(draw: st.DrawFn, log: Log, producer: int = -1) -> None:
    records = draw(record_lists())
    if draw(st.booleans()):  # compacted
        deltas = sorted(draw(st.sets(st.integers(0, 200), min_size=len(records), max_size=len(records))))
        records = [record._replace(offset_delta=delta) for record, delta in zip(records, deltas, strict=True)]
    log.batch(records, codec=draw(codecs), bits=draw(_bits), producer=producer, tail=draw(st.sampled_from([0, 0, 7])))


def _in_transaction(draw: st.DrawFn, log: Log) -> None:
    _data(draw, log, producer=draw(st.integers(0, 1)))


def _marker(draw: st.DrawFn, log: Log) -> None:
    log.marker(draw(st.integers(0, 1)), draw(st.sampled_from([ABORT, COMMIT])))


def _emptied(draw: st.DrawFn, log: Log) -> None:
    log.batch([], tail=draw(st.integers(0, 5)))


def _old(draw: st.DrawFn, log: Log) -> None:
    log.old(draw(st.integers(0, 1)), draw(st.sampled_from(_OLD_CODECS)), draw(message_lists))


_STEPS = (_data, _data, _in_transaction, _in_transaction, _marker, _emptied, _old)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Every transaction in it has ended: a broker gives committed readers nothing behind the first that has not."""
    log = Log(draw(st.integers(0, 1 << 61) | st.just(0)))
    for step in draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=8)):
        step(draw, log)
    for producer in range(2):
        log.marker(producer, draw(st.sampled_from([ABORT, COMMIT])))
    return log


def as_magic(messages: Sequence[Message], magic: int) -> list[Message]:
    return list(messages) if magic else [message._replace(timestamp=-1, log_append_time=False) for message in messages]


def seen(record_set: bytes, magic: int) -> list[Message]:
    """The set as kafka-python reads it, and our reader agrees. kafka-python reads LZ4 of magic 0 only with another
    package."""
    ours = read(record_set)
    theirs: list[Message] = []
    spans, tail = split(record_set, 0, len(record_set))
    assert tail == len(record_set)
    for start, end, entry_magic, _ in spans:
        entry = record_set[start:end]
        assert entry_magic <= magic
        if entry_magic == 0 and entry[ATTRIBUTES_AT] == Codec.LZ4:
            theirs += read(entry)
        else:
            theirs += _seen_with_snappy(entry_magic, entry)
    assert theirs == ours
    return ours


def _seen_with_snappy(magic: int, entry: bytes) -> list[Message]:
    """kafka-python's snappy framing is its own, only the raw blocks are read for it."""
    before = kafka_python.codec.snappy
    kafka_python.codec.snappy = SimpleNamespace(decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)))
    try:
        return seen_by_kafka_python(magic, entry)
    finally:
        kafka_python.codec.snappy = before
