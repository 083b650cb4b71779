"""The benchmark of old consumers: its reader, against hand-made message sets, and its output."""

import gzip
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import lz4.frame
import pytest

from bench.legacy.check import check
from bench.legacy.fast import FastRead, verify
from bench.legacy.fetching import AnswerReader, fetch
from bench.legacy.message_sets import Damaged, Message, SetReader, skim
from bench.legacy.report import BOUND, as_tables
from bench.legacy.sampling import live_heap_mib, tcp_buffers_mib, watching
from bench.legacy.stage import Kind, key_of, kinds, timestamp_of, value_of
from shoal.protocol.records.batch import open_batch
from shoal.protocol.wire.compression import Codec, compress
from shoal.scenarios.kafka.process import Process, until

OPENING = {
    "gzip": (1, gzip.compress),
    "snappy": (2, partial(compress, Codec.SNAPPY)),
    "lz4": (3, lz4.frame.compress),
}
BUSY = "print('began', flush=True)\nwhile True: pass"
TOPIC = Kind(codec="gzip", batches=1, records=9)
NAME = TOPIC.topic.encode()


def message(
    value: bytes | None, key: bytes | None = None, *, magic: int = 1, attributes: int = 0, stamp: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", stamp) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">I", zlib.crc32(body)) + body


def entry(offset: int, stored: bytes) -> bytes:
    return struct.pack(">qi", offset, len(stored)) + stored


def right(offset: int, place: int | None = None, magic: int = 1) -> bytes:
    """The message that belongs at an offset, stored as `place`."""
    stored = message(value_of(offset), key_of(offset), magic=magic, stamp=timestamp_of(offset))
    return entry(offset if place is None else place, stored)


def wrapper(codec: str, first: int, last: int) -> bytes:
    number, compressed = OPENING[codec]
    inner = b"".join(right(offset, offset - first) for offset in range(first, last + 1))
    return entry(last, message(compressed(inner), attributes=number))


def padding(size: int) -> bytes:
    return struct.pack(">qi", -1, max(size + 1, 61)).ljust(size, b"\0")[:size]


def read(data: bytes, start: int, *, piece: int = 7) -> SetReader:
    reader = SetReader(len(data), start, check)
    for one in range(0, len(data), piece):
        reader.feed(data[one : one + piece])
    reader.end()
    return reader


@pytest.mark.parametrize("piece", [1, 13, 1 << 20])
@pytest.mark.parametrize("codec", OPENING)
def test_wrappers_and_plain_messages_are_read_whatever_the_pieces(codec: str, piece: int) -> None:
    reader = read(wrapper(codec, 3, 5) + right(6) + wrapper(codec, 7, 8), 3, piece=piece)
    assert (reader.messages, reader.next_offset, reader.padding) == (6, 9, 0)


def test_what_lies_before_the_offset_asked_for_is_skipped() -> None:
    assert read(wrapper("gzip", 0, 8), 5).messages == 4


@pytest.mark.parametrize("size", [1, 11, 12, 13, 61, 1000])
def test_the_partial_message_is_thrown_away(size: int) -> None:
    reader = read(right(0) + padding(size), 0)
    assert (reader.messages, reader.padding) == (1, size)


def test_a_message_that_is_cut_off_is_none() -> None:
    reader = read(right(0) + right(1)[:-1], 0)
    assert (reader.messages, reader.next_offset) == (1, 1)


def test_values_of_null_and_magic_0_are_read() -> None:
    seen: list[Message] = []
    data = entry(0, message(None, b"k", magic=0)) + entry(1, message(b"", None, stamp=5))
    reader = SetReader(len(data), 0, seen.append)
    reader.feed(data)
    reader.end()
    assert seen == [Message(0, -1, b"k", None), Message(1, 5, None, b"")]


def test_the_wrapper_of_appending_brokers_states_the_time() -> None:
    inner = entry(0, message(b"v", stamp=3)) + entry(1, message(b"w", stamp=4))
    data = entry(11, message(gzip.compress(inner), attributes=1 | 8, stamp=99))
    seen: list[Message] = []
    SetReader(len(data), 10, seen.append).feed(data)
    assert [(one.offset, one.timestamp) for one in seen] == [(10, 99), (11, 99)]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


NESTED = entry(0, message(gzip.compress(wrapper("gzip", 0, 1)), attributes=1))
DAMAGED = {
    "wrong CRC": (flipped(right(0), 40), "wrong CRC"),
    "wrong CRC within": (entry(0, message(gzip.compress(flipped(right(0), 40)), attributes=1)), "wrong CRC"),
    "gap": (right(0) + right(2), "offset 2 where 1 was due"),
    "gap within": (entry(1, message(gzip.compress(right(0, 0) + right(2, 2)), attributes=1)), "where 0 was due"),
    "twice": (right(0) + right(0), "offset 0 where 1 was due"),
    "another record": (entry(0, message(b"x")), "not what was written"),
    "another timestamp": (entry(0, message(value_of(0), key_of(0), stamp=1)), "not what was written"),
    "nested": (NESTED, "another wrapper"),
    "only the partial message": (padding(500), "without a whole message"),
    "negative size": (struct.pack(">qi", 0, -1), "a message of -1 bytes"),
    "unknown codec": (entry(0, message(b"x", attributes=4)), "codec 4"),
    "unknown magic": (entry(0, message(b"x", magic=2)), "magic 2"),
    "cut off within": (entry(0, message(gzip.compress(right(0)[:-1]), attributes=1)), "a message of"),
}


@pytest.mark.parametrize(("data", "what"), DAMAGED.values(), ids=DAMAGED)
def test_what_no_client_could_read_is_damaged(data: bytes, what: str) -> None:
    with pytest.raises(Damaged, match=what):
        read(data, 0)


def answer(start_of_set: bytes, *, error: int = 0) -> bytes:
    body = (
        struct.pack(f">iiih{len(NAME)}siihqi", 0, 0, 1, len(NAME), NAME, 1, 0, error, 9, len(start_of_set))
        + start_of_set
    )
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("piece", [1, 50, 1 << 20])
def test_an_answer_is_read_as_it_trickles_in(piece: int) -> None:
    frame, pos = answer(wrapper("lz4", 0, 4) + padding(30)), 0
    reader = AnswerReader(TOPIC.topic, 0, check)
    while reader.wanted:
        size = min(piece, reader.wanted)
        reader.feed(frame[pos : pos + size])
        pos += size
    assert pos == len(frame)
    assert reader.next_offset == 5


def test_an_error_in_the_answer_is_no_answer() -> None:
    reader = AnswerReader(TOPIC.topic, 0, check)
    with pytest.raises(Damaged, match="an answer that says"):
        reader.feed(answer(b"", error=2)[: reader.wanted])


def test_the_request_asks_for_what_it_should() -> None:
    frame = fetch("t", 7)
    assert struct.unpack_from(">ihh", frame) == (len(frame) - 4, 1, 2)
    assert struct.unpack(">qi", frame[-12:]) == (7, 1 << 20)


def fast_read(sets: Sequence[tuple[int, bytes]]) -> FastRead:
    return FastRead(seconds=1.0, answers=[(start, answer(data)) for start, data in sets])


def test_a_fast_consumer_reads_on_behind_the_last_whole_message() -> None:
    sets = [wrapper("gzip", 0, 3) + padding(20), wrapper("gzip", 4, 8)]
    assert [skim(data) for data in sets] == [3, 8]
    verify(fast_read([(0, sets[0]), (4, sets[1])]), TOPIC)


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        ([(0, wrapper("gzip", 0, 3))], "4 messages of 9"),
        ([(0, wrapper("gzip", 0, 3)), (5, wrapper("gzip", 5, 8))], "went on at 5"),
    ],
)
def test_what_a_fast_consumer_did_not_get_is_told(sets: Sequence[tuple[int, bytes]], what: str) -> None:
    with pytest.raises(Damaged, match=what):
        verify(fast_read(sets), TOPIC)


@pytest.mark.parametrize("kind", kinds(2).values(), ids=kinds(2))
def test_the_topics_hold_large_batches_of_the_right_records(kind: Kind) -> None:
    sizes, due = [], 0
    for batch in kind.build():
        header, records = open_batch(batch, 0, len(batch), limit=1 << 24)
        for record in records:
            found = Message(due, header.timestamp(record), bytes(record.key or b""), bytes(record.value or b""))
            check(found)
            due += 1
        sizes.append(len(batch))
    assert due == kind.end
    assert all(900_000 < size < 1_048_588 for size in sizes)


def test_the_live_heap_is_what_collections_left() -> None:
    assert (
        live_heap_mib("GC(1) Pause Young (Normal) 51M->12M(256M) 5.1ms\nGC(2) Pause Remark 1013M->901M(1024M)") == 901
    )
    assert live_heap_mib("") is None


async def killed_while_watched(process: Process) -> None:
    async with watching({"busy": process}) as (watches, _):
        process.kill()
        watches["busy"].cost()


async def test_memory_and_cpu_of_a_process_are_told_and_its_end_is_an_error(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", BUSY], log=tmp_path / "log", name="busy")
    try:
        await process.until_printed("began", within=30)
        async with watching({"busy": process}) as (watches, _):
            await until(lambda: process.usage().cpu_s > 0.3, within=30, what="work")
            cost = watches["busy"].cost()
        assert cost.peak_mib > cost.before_mib / 2 > 1
        assert cost.cpu_s > 0
        with pytest.raises(ProcessLookupError):
            await killed_while_watched(process)
    finally:
        process.kill()


def test_tcp_buffers_are_told_in_pages() -> None:
    pages = 1024 * 1024 // os.sysconf("SC_PAGE_SIZE")
    text = f"sockets: used 156\nTCP: inuse 8 orphan 0 tw 676 alloc 129 mem {3 * pages}\nUDP: inuse 0 mem 7\n"
    assert tcp_buffers_mib(text) == 3.0


def test_the_tables_set_the_ways_side_by_side() -> None:
    broker = {
        "cpu_s": 2.5,
        "before_mib": 300.0,
        "peak_mib": 2_100.0,
        "anonymous_mib": 2_000.0,
        "live_heap_mib": 1_500.0,
    }
    proxy = {**broker, "peak_mib": 250.0, "live_heap_mib": None}
    run = {
        "tcp_mib": 68.0,
        "bytes_per_s_since_first": {"slowest": 4_000.0, "median": 4_090.0, "fastest": 4_096.0},
        "first_records_s": {"median": 2.0, "last": 9.0},
        "longest_silence_s": 3.0,
        "messages_in_time": 123_456,
        "consumers_without_a_message": 0,
        "finished": 16,
        "answers_read_whole": 32,
        "padding_bytes": 64_000,
        "largest_entry": 17_000,
    }
    quick = {
        "mb_per_s": 80.0,
        "records_per_s": 160_000.0,
        "cpu_s_per_gib": {"broker": 1.0, "Shoal": 9.5},
        "costs": {"broker": broker, "Shoal": proxy},
    }
    died = {"ended": {"after_s": 31.4, "last_words": "OutOfMemoryError"}}
    ways = {
        "old": {"slow": {**run, "costs": {"broker": broker}}},
        BOUND: {"slow": {**run, "costs": {"broker": broker, "Shoal": proxy}}, "fast": {"gzip": quick}},
        "small": {"slow": died},
    }
    text = as_tables({"crowd": {"consumers": 500, "bite": 4_096, "seconds": 50.0, "finish": 16}, "ways": ways})
    lines = {line.strip().split("   ")[0]: line.split() for line in text.splitlines()}
    assert lines["Shoal, peak memory, MiB"][-2:] == ["-", "250"]
    assert lines["broker, live heap at most, MiB"][-2:] == ["1,500", "1,500"]
    assert lines["padding in these, KB each"][-2:] == ["2.0", "2.0"]
    assert lines["Shoal: gzip"][-6:] == ["160,000", "1.00", "9.50", "10.50", "2,100", "250"]
    assert "small: the broker ended after 31 s: OutOfMemoryError" in text
    assert "stayed below its bound of 300 MiB" in text
