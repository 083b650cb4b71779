from typing import Any

import pytest

from shoal.protocol.legacy.fetch.overflow import overflow
from shoal.protocol.legacy.message import Message
from shoal.protocol.wire.compression import Codec
from tests.support import kafka_python
from tests.support.legacy.logs import Log

LEAST_MESSAGE = 14  # LegacyRecord.RECORD_OVERHEAD_V0


@pytest.mark.parametrize("size", [*range(1, 100), 65_547, 65_548, 65_549, 1 << 20, (1 << 24) + 1])
def test_it_is_as_long_as_it_should_be_and_never_whole(size: int) -> None:
    parts = overflow(size)
    assert sum(map(len, parts)) == size
    head = b"".join(parts)[:17]
    if size >= 12:
        stated = int.from_bytes(head[8:12], "big")
        assert stated > size - 12
        assert stated >= LEAST_MESSAGE
    assert head[16:] in (b"", b"\0")


def test_a_large_one_is_made_of_one_buffer() -> None:
    parts = overflow(10 << 20)
    assert len({id(part.obj) for part in parts if isinstance(part, memoryview)}) == 1


@pytest.mark.parametrize("size", [1, 11, 12, 13, 16, 17, 61, 300, 100_000])
def test_kafka_python_reads_what_stands_before_and_drops_it(size: int) -> None:
    log = Log()
    log.old(1, Codec.NONE, [Message(0, 5, False, None, b"v")] * 3)
    record_set = b"".join((log.answer(0)[0], *overflow(size)))
    records: Any = kafka_python.memory_records.MemoryRecords(record_set)
    found = 0
    while records.has_next():
        found += len(list(records.next_batch()))
    assert found == 3
    assert records.valid_bytes() == len(record_set) - size
