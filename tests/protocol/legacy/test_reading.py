from collections.abc import Callable
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.legacy.message import LOG_APPEND_TIME, Message, write_message
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge
from tests.support.batches import damaged
from tests.support.legacy import sets

ONE = Message(5, sets.FIRST, False, b"key", b"value")


# Sets of other writers


@pytest.mark.parametrize("codec", sets.CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_java_wrote(magic: int, codec: Codec) -> None:
    assert sets.read(sets.golden(f"magic{magic}-{codec.name.lower()}")) == sets.golden_messages(magic)


def test_what_the_broker_stamped_has_the_time_of_the_wrapper() -> None:
    assert sets.read(sets.golden("magic1-gzip-log-append-time")) == sets.golden_messages(1, late=True)


@given(st.sampled_from(sets.BY_KAFKA_PYTHON), sets.message_lists)
def test_what_kafka_python_wrote(form: tuple[int, Codec], listed: list[Message]) -> None:
    magic, codec = form
    assert sets.read(sets.by_kafka_python(magic, codec, listed)) == sets.numbered(listed, magic)


@given(st.sampled_from([form for form in sets.BY_KAFKA_PYTHON if form[1]]), sets.message_lists, st.integers(1, 1 << 40))
def test_kafka_python_sees_the_same(form: tuple[int, Codec], listed: list[Message], first: int) -> None:
    magic, codec = form
    expected = sets.numbered(listed, magic, first)
    record_set = sets.wrapped(magic, codec, expected)
    assert sets.seen_by_kafka_python(magic, record_set) == sets.read(record_set) == expected


# Sets of several entries


@given(st.lists(st.tuples(sets.magics, sets.codecs, sets.message_lists), max_size=4))
def test_entries_of_any_kind_follow_each_other(parts: list[tuple[int, Codec, list[Message]]]) -> None:
    record_set, expected = b"", list[Message]()
    for magic, codec, listed in parts:
        own = sets.numbered(listed, magic, first=len(expected) + 3)
        record_set += sets.wrapped(magic, codec, own)
        expected += own
    assert sets.read(record_set) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_holes_of_compaction_stay(magic: int) -> None:
    listed = [each for each in sets.numbered([ONE] * 9, magic, 100) if each.offset not in (101, 104, 105)]
    assert sets.read(sets.wrapped(magic, Codec.GZIP, listed)) == listed


def test_wrapper_at_offset_0_counts_from_0() -> None:
    """As librdkafka produced it: otherwise its last message would be at 0, the first below."""
    inner = sets.singles(1, sets.numbered([ONE] * 3, 1))
    assert [each.offset for each in sets.read(sets.wrapper(1, Codec.GZIP, inner, offset=0))] == [0, 1, 2]


def test_offsets_in_a_wrapper_of_magic_0_are_absolute_whatever_its_own() -> None:
    listed = sets.numbered([ONE] * 3, 0, 10)
    assert sets.read(sets.wrapper(0, Codec.GZIP, sets.singles(0, listed), offset=99)) == listed


def test_time_of_the_broker_is_in_the_wrapper_only() -> None:
    """The first form of LogAppendTime: inner messages keep the producer's timestamps."""
    record_set = sets.wrapper(
        1, Codec.GZIP, sets.singles(1, [ONE, ONE._replace(offset=6)]), 9, sets.FIRST + 77, LOG_APPEND_TIME
    )
    assert [(each.timestamp, each.log_append_time) for each in sets.read(record_set)] == [(sets.FIRST + 77, True)] * 2


def test_offsets_mean_nothing_in_what_is_produced() -> None:
    record_set = sets.singles(1, [ONE, ONE, ONE._replace(offset=-1)])
    assert [each.offset for each in sets.read(record_set, ordered=False)] == [5, 5, -1]


# Hostile sets


def with_crc(message: bytes) -> bytes:
    return message[:12] + crc32(message[16:]).to_bytes(4, "big") + message[16:]


GOOD = sets.singles(1, [ONE])
HOSTILE: dict[str, Callable[[], bytes]] = {
    "a part of a head": lambda: GOOD + GOOD[:17],
    "a part of a message": lambda: GOOD + GOOD[:-1],
    "one byte more": lambda: GOOD + b"\0",
    "crc": lambda: damaged(GOOD, 13),
    "content under the crc": lambda: damaged(GOOD, len(GOOD) - 1),
    "magic 2": lambda: with_crc(damaged(GOOD, 16, 1 ^ 2)),
    "magic -1": lambda: with_crc(damaged(GOOD, 16, 0xFE)),
    "negative size": lambda: GOOD[:8] + b"\xff" * 4 + GOOD[12:],
    "size of an int32": lambda: GOOD[:8] + b"\x7f\xff\xff\xff" + GOOD[12:],
    "size 0": lambda: bytes(40),
    "size below the fields": lambda: GOOD[:8] + (21).to_bytes(4, "big") + GOOD[12:33],
    "key longer than the message": lambda: with_crc(GOOD[:26] + b"\0\0\0\x0e" + GOOD[30:]),
    "key that leaves no room for a value": lambda: with_crc(GOOD[:26] + b"\0\0\0\x0c" + GOOD[30:]),
    "key of an int32": lambda: with_crc(GOOD[:26] + b"\x7f\xff\xff\xff" + GOOD[30:]),
    "key of -2 bytes": lambda: with_crc(GOOD[:26] + b"\xff\xff\xff\xfe" + GOOD[30:]),
    "value shorter than the message": lambda: with_crc(GOOD[:33] + b"\0\0\0\x04" + GOOD[37:]),
    "value longer than the message": lambda: with_crc(GOOD[:33] + b"\0\0\0\x06" + GOOD[37:]),
    "value of -2 bytes": lambda: with_crc(GOOD[:33] + b"\xff\xff\xff\xfe" + GOOD[37:]),
    "wrapper in a wrapper": lambda: sets.wrapper(1, Codec.GZIP, sets.wrapper(1, Codec.GZIP, GOOD)),
    "magic 0 in a wrapper of magic 1": lambda: sets.wrapper(1, Codec.GZIP, sets.singles(0, [ONE])),
    "magic 1 in a wrapper of magic 0": lambda: sets.wrapper(0, Codec.GZIP, GOOD),
    "an empty wrapper": lambda: sets.wrapper(1, Codec.SNAPPY, b""),
    "a wrapper with half a message": lambda: sets.wrapper(1, Codec.LZ4, GOOD + GOOD[:20]),
    "a wrapper with a negative size in it": lambda: sets.wrapper(
        1, Codec.GZIP, GOOD[:8] + b"\xff\xff\xff\xf4" + GOOD[12:], 9
    ),
    "a wrapper without a value": lambda: write_message(1, 0, sets.FIRST, Codec.GZIP, None, None),
    "a wrapper that is not compressed": lambda: write_message(1, 0, sets.FIRST, Codec.GZIP, None, GOOD),
    "lz4 of magic 0 that is none": lambda: write_message(0, 0, -1, Codec.LZ4, None, GOOD),
    "crc in a wrapper": lambda: sets.wrapper(1, Codec.GZIP, damaged(GOOD, len(GOOD) - 1)),
    "zstd": lambda: write_message(1, 0, sets.FIRST, Codec.ZSTD, None, b"\x28\xb5\x2f\xfd"),
    "zstd that can be read": lambda: sets.wrapper(1, Codec.ZSTD, GOOD),
    "an unknown codec": lambda: write_message(1, 0, sets.FIRST, 7, None, GOOD),
    "the same offset twice": lambda: GOOD + GOOD,
    "offsets that go down": lambda: sets.wrapper(1, Codec.GZIP, sets.singles(1, [ONE, ONE._replace(offset=4)]), 9),
    "a negative offset": lambda: sets.singles(0, [ONE._replace(offset=-1)]),
    "a wrapper below what is in it": lambda: sets.wrapper(1, Codec.GZIP, sets.singles(1, [ONE]), offset=-3),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_set_is_refused(what: str) -> None:
    with pytest.raises(RemoteProtocolError):
        sets.read(HOSTILE[what]())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_bomb_is_refused(codec: Codec) -> None:
    bomb = sets.wrapper(1, codec, sets.singles(1, [ONE._replace(value=bytes(3_000_000))]))
    with pytest.raises(TooLarge):
        sets.read(bomb, limit=1 << 20)


def test_wrappers_share_one_limit() -> None:
    listed = [each._replace(value=bytes(50_000)) for each in sets.numbered([ONE] * 4, 1)]
    record_set = b"".join(sets.wrapped(1, Codec.GZIP, [each]) for each in listed)
    assert len(sets.read(record_set, limit=201_000, ordered=False)) == 4
    with pytest.raises(TooLarge):
        sets.read(record_set, limit=160_000, ordered=False)


@given(sets.magics, sets.codecs, sets.message_lists, st.data())
def test_one_wrong_bit_is_found(magic: int, codec: Codec, listed: list[Message], data: st.DataObject) -> None:
    """Anywhere in an entry except its offset, which size and CRC do not cover."""
    record_set = sets.wrapped(magic, codec, sets.numbered(listed if codec else listed[:1], magic, 1000))
    at = data.draw(st.integers(8, len(record_set) - 1))
    with pytest.raises(RemoteProtocolError):
        sets.read(damaged(record_set, at, 1 << data.draw(st.integers(0, 7))))


@given(sets.magics, sets.codecs, sets.message_lists, st.integers(0, 1 << 20))
def test_offsets_ascend(magic: int, codec: Codec, listed: list[Message], first: int) -> None:
    found = sets.read(sets.wrapped(magic, codec, sets.numbered(listed, magic, first)))
    assert all(each.offset < other.offset for each, other in pairwise(found))


def test_log_append_time_is_a_matter_of_magic_1() -> None:
    assert sets.read(write_message(1, 5, sets.FIRST, LOG_APPEND_TIME, b"key", b"value")) == [
        ONE._replace(log_append_time=True)
    ]
    assert not sets.read(write_message(0, 5, -1, LOG_APPEND_TIME, b"key", b"value"))[0].log_append_time
