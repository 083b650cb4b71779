"""Produce requests for many partitions, read in one loop while they match the usual form."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

import pytest

from shoal.protocol.records.batch import HEADER_SIZE
from shoal.protocol.wire.compression import Codec
from tests.protocol.capture.index.test_tap import passed
from tests.support.captures.produced import SIZE, a_batch, array, sized, string, topic_of

VERSIONS = [3, 8, 9, 13]
TAG = b"\1\0\3any"  # one, number 0, three bytes


def request(version: int, partitions: Sequence[bytes]) -> bytes:
    compact, tags = version >= 9, b"\0" * (version >= 9)
    topic = topic_of("orders", version, *partitions)
    head = Struct(">hhi").pack(0, version, 7) + string("maker", False) + tags + string(None, compact)
    return sized(head + Struct(">hi").pack(-1, 30_000) + array([topic], compact) + tags)


def partition(version: int, index: int, records: bytes, *, tags: bytes = b"\0", more: int = 0) -> bytes:
    size = len(records) + more
    compact = version >= 9
    length = _uvarint(size + 1) if compact else SIZE.pack(size)
    return SIZE.pack(index) + length + records + tags * compact


def _uvarint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _uvarint(value >> 7) if value > 0x7F else bytes([value])


def seen(frame: bytes) -> list[tuple[Any, ...]]:
    rows = passed(frame, b"").rows
    return [(row["partition"], row["batch_length"] + 12 if row["magic"] else 0, row["raw_bytes"]) for row in rows]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 40, 300, 20_000, 2_200_000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_each_has_its_row(version: int, size: int, codec: Codec) -> None:
    batches = [a_batch(codec, records=at, size=size) for at in (1, 2, 1)]
    plain = [len(a_batch(records=at, size=size)) - HEADER_SIZE for at in (1, 2, 1)]
    frame = request(version, [partition(version, at, batch) for at, batch in enumerate(batches)])
    assert seen(frame) == [(at, len(batch), raw) for at, (batch, raw) in enumerate(zip(batches, plain, strict=True))]


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("tagged", range(3))
def test_tags_behind_a_partition_are_stepped_over(version: int, tagged: int) -> None:
    parts = [partition(version, at, a_batch(), tags=TAG if at == tagged else b"\0") for at in range(3)]
    assert [index for index, *_ in seen(request(version, parts))] == [0, 1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_ends_behind_its_request_is_none(version: int) -> None:
    good, bad = a_batch(), bytearray(a_batch())
    bad[8:12] = (len(bad) - 12 + 90).to_bytes(4)
    parts = [partition(version, 0, good), partition(version, 1, bytes(bad), more=90)]
    assert [index for index, *_ in seen(request(version, parts))] == [0]


@pytest.mark.parametrize("version", VERSIONS)
def test_two_batches_none_and_old_messages_among_them(version: int) -> None:
    sets = [a_batch(), a_batch() * 2, b"", a_batch(), bytes(11), a_batch(Codec.LZ4)]
    frame = request(version, [partition(version, at, one) for at, one in enumerate(sets)])
    assert [index for index, *_ in seen(frame)] == [0, 1, 1, 3, 5]
