"""Fetch v0-v3 through a legacy listener with a scripted broker: clients' answers, and the requests sent to the
broker."""

from __future__ import annotations

import logging

import pytest
import trio

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import KIB, MIB, Isolation, SetCompression
from shoal.proxy.statistics import CloseCause
from tests.support.batches import damaged
from tests.support.legacy.rig import PLACE, Batch, OldConsumer, Place, as_messages, legacy_rig, records
from tests.support.rig import request, until

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
TRANSACTIONAL = 0x10
CORRUPT_MESSAGE, NOT_LEADER = 2, 6


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", CODECS)
async def test_every_version_gets_every_record(version: int, codec: Codec) -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        log, sent = r.broker.log(), []
        for number in range(5):
            made = records(number * 300, 300)
            sent += as_messages(log.end, made, magic=int(version > 1))
            log.append(made, codec)
        consumer = await r.consumer(version)
        got = await consumer.consume({PLACE: 0}, {PLACE: log.end})
        assert got[PLACE] == sent
        assert set(r.broker.isolation) == {1}
        statistics = r.path.fetches.statistics()
        assert statistics.records == 1500
        assert statistics.chunks >= statistics.converted_bytes // (16 * KIB)


@pytest.mark.parametrize("codec", CODECS)
async def test_a_batch_larger_than_chunk_limit_and_fetch_is_read_whole(codec: Codec) -> None:
    async with legacy_rig(chunk_bytes=16 * KIB, fetch_bytes=64 * KIB) as r:
        log, made = r.broker.log(), records(0, 3000, 400)
        log.append(made, codec)
        consumer = await r.consumer()
        got = await consumer.consume({PLACE: 0}, {PLACE: 3000}, most=50_000)
        assert got[PLACE] == as_messages(0, made)
        assert len(r.broker.fetches) == 1  # the rest of the batch is kept for the next requests


async def test_an_answer_from_the_middle_begins_with_the_message_asked_for() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        log, made = r.broker.log(), records(0, 1000)
        log.append(made, Codec.GZIP)
        consumer = await r.consumer()
        given = (await consumer.fetch({PLACE: 567}))[PLACE]
        assert given.messages[0] == as_messages(0, made)[567]
        assert given.high_watermark == 1000


async def test_an_error_does_not_change_the_high_watermark_of_later_answers() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB, fetch_bytes=64 * KIB) as r:
        other = ("t", 1)
        consumer = await r.consumer()
        r.broker.log(other).append(records(0, 5))
        assert (await consumer.fetch({other: 5}))[other].high_watermark == 5
        r.broker.log().append(records(0, 3000), Codec.GZIP)
        r.broker.log(other).error = NOT_LEADER
        given = await consumer.fetch({PLACE: 0, other: 5}, most=20_000)
        assert given[other].error == NOT_LEADER
        given = await consumer.fetch({PLACE: len(given[PLACE].messages), other: 5}, most=20_000)
        assert (given[other].error, given[other].high_watermark) == (0, 5)
        assert len(r.broker.fetches) == 2  # the third answer is the rest of the second one's batch


async def test_one_message_larger_than_all_limits_is_given() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        made = records(0, 1, 300_000)
        r.broker.log().append(made)
        consumer = await r.consumer(3)
        given = (await consumer.fetch({PLACE: 0}, most=1000, max_bytes=2000))[PLACE]
        assert given.messages == as_messages(0, made)
        assert not given.padding


async def test_the_promised_size_keeps_to_the_limits_of_the_client() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        places = [("t", index) for index in range(4)]
        for place in places:
            r.broker.log(place).append(records(0, 500))
        consumer = await r.consumer(3)
        given = await consumer.fetch(dict.fromkeys(places, 0), most=30_000, max_bytes=40_000)
        assert all(one.size <= 30_000 for one in given.values())
        assert sum(one.size for one in given.values()) <= 40_000
        assert any(one.messages for one in given.values())


async def test_what_is_left_of_a_source_serves_the_next_question_without_the_broker() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        log = r.broker.log()
        for number in range(10):
            log.append(records(number * 100, 100))
        consumer = await r.consumer()
        first = (await consumer.fetch({PLACE: 0}, most=40_000))[PLACE]
        asked = r.broker.fetches.copy()
        second = (await consumer.fetch({PLACE: first.messages[-1].offset + 1}, most=20_000))[PLACE]
        assert second.messages[0].offset == first.messages[-1].offset + 1
        assert r.broker.fetches == asked
        await consumer.fetch({PLACE: 7}, most=20_000)  # another offset: fetched anew
        assert r.broker.fetches[-1] == {PLACE: 7}


async def test_a_source_for_one_format_is_not_given_in_another() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        made = records(0, 1000)
        r.broker.log().append(made)
        consumer = await r.consumer(2)
        first = (await consumer.fetch({PLACE: 0}, most=20_000))[PLACE].messages
        consumer.version = 0
        second = (await consumer.fetch({PLACE: len(first)}, most=20_000))[PLACE].messages
        assert first + second == [
            *as_messages(0, made)[: len(first)],
            *as_messages(0, made, magic=0)[len(first) : len(first) + len(second)],
        ]


async def test_none_starves_of_many_partitions_under_a_bound_that_holds_one() -> None:
    places = [(topic, index) for topic in ("a", "b") for index in range(5)]
    async with legacy_rig(chunk_bytes=16 * KIB, fetch_bytes=32 * KIB) as r:
        sent = {}
        for number, place in enumerate(places):
            made = records(number, 1000)
            r.broker.log(place).append(made[:500], Codec.LZ4)
            r.broker.log(place).append(made[500:], Codec.LZ4)
            sent[place] = as_messages(0, made)
        consumer = await r.consumer()
        served: list[Place] = []
        at = dict.fromkeys(places, 0)
        while len(set(served)) < len(places):
            for place, given in (await consumer.fetch(at)).items():
                if given.messages:
                    served.append(place)
                    at[place] = given.messages[-1].offset + 1
            assert len(served) < 4 * len(places)
        got = await consumer.consume(dict.fromkeys(places, 0), dict.fromkeys(places, 1000))
        assert got == sent


async def test_a_batch_that_is_huge_when_opened_does_not_keep_others_waiting() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB, compression=SetCompression.NONE) as r:
        huge, other = PLACE, ("t", 1)
        r.broker.log(huge).append([NewRecord(1, None, bytes(400))] * 20_000, Codec.GZIP)
        r.broker.log(other).append(records(0, 10))
        consumer = await r.consumer()
        at = {huge: 0, other: 10}
        await consumer.fetch(at, most=50_000)
        at[other] = 0
        for _ in range(6):
            given = await consumer.fetch(at, most=50_000)
            if given[other].messages:
                break
            assert given[huge].messages[0].offset == at[huge]
            at[huge] = given[huge].messages[-1].offset + 1
        assert given[other].messages
        alone = len(r.broker.fetches)
        for _ in range(20):
            given = await consumer.fetch({huge: at[huge]}, most=50_000)
            at[huge] = given[huge].messages[-1].offset + 1
        assert len(r.broker.fetches) <= alone + 1  # without other clients, the rest is served from memory to its end


async def test_a_partition_named_twice_is_answered_once_and_a_question_for_none_too() -> None:
    """As in a broker (FetchRequest.fetchData), so no records are returned for an offset that was not requested."""
    async with legacy_rig() as r:
        r.broker.log().append(records(0, 10))
        consumer = await r.consumer()
        assert await consumer.fetch({}) == {}
        await consumer.send(consumer.question([(PLACE, 7), (("t", 1), 0), (PLACE, 2)]))
        (place, given), (other, _) = consumer.read_parts(await consumer.frame())
        assert (place, other) == (PLACE, ("t", 1))
        assert [message.offset for message in given.messages] == [*range(2, 10)]


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_at_the_end_the_broker_holds_the_question_and_nothing_is_leased() -> None:
    async with legacy_rig() as r:
        log = r.broker.log()
        log.append(records(0, 10))
        consumer = await r.consumer()
        await consumer.ask({PLACE: 10}, max_wait_ms=60_000)
        await until(lambda: len(r.broker.fetches) == 1)
        assert r.path.fetches.budget.statistics().leased == 0
        log.append(records(10, 1))
        assert [message.offset for message in (await consumer.answer())[PLACE].messages] == [10]


async def test_the_throttle_time_is_passed_on() -> None:
    async with legacy_rig() as r:
        r.broker.throttle_ms = 77
        r.broker.log().append(records(0, 10))
        consumer = await r.consumer(1)
        await consumer.fetch({PLACE: 0})
        assert consumer.throttle_ms == 77


@pytest.mark.parametrize("tail", ["markers", "aborted"])
async def test_behind_what_is_left_out_a_client_at_the_end_waits_and_does_not_ask_in_a_circle(tail: str) -> None:
    async with legacy_rig() as r:
        log = r.broker.log()
        log.append(records(0, 10), attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0)
        log.append_marker(5, abort=False)
        if tail == "aborted":
            log.append(records(11, 10), attributes=TRANSACTIONAL, producer_id=6, producer_epoch=0)
            log.append_marker(6, abort=True)
            log.aborted.append((6, 11, 21))
        consumer = await r.consumer()
        got = await consumer.consume({PLACE: 0}, {PLACE: 10})
        assert [one.offset for one in got[PLACE]] == list(range(10))
        before = len(r.broker.fetches)
        for _ in range(5):  # the client knows nothing past 9
            assert (await consumer.fetch({PLACE: 10}, max_wait_ms=20))[PLACE] == (0, log.end, [], 0, 0)
        assert len(r.broker.fetches) - before <= 6  # one to find out, then one each
        assert r.broker.fetches[-1] == {PLACE: log.end}
        await consumer.ask({PLACE: 10}, max_wait_ms=60_000)
        await until(lambda: len(r.broker.fetches) - before >= 7 or r.broker.fetches[-1] == {PLACE: log.end})
        next_offset = log.end
        log.append(records(next_offset, 1))
        assert [message.offset for message in (await consumer.answer())[PLACE].messages] == [next_offset]


async def test_much_that_is_left_out_is_read_over_within_one_question() -> None:
    async with legacy_rig(fetch_bytes=20 * KIB) as r:
        log = r.broker.log()
        for _ in range(30):
            log.append(records(log.end, 100), attributes=TRANSACTIONAL, producer_id=6, producer_epoch=0)
        log.append_marker(6, abort=True)
        log.aborted.append((6, 0, log.end - 1))
        wanted = log.end
        log.append(records(wanted, 3))
        consumer = await r.consumer()
        given = (await consumer.fetch({PLACE: 0}, max_wait_ms=60_000))[PLACE]
        assert [message.offset for message in given.messages] == [wanted, wanted + 1, wanted + 2]
        assert r.path.tally.asked_on > 5


async def test_with_no_time_to_wait_each_question_gets_further() -> None:
    async with legacy_rig(fetch_bytes=20 * KIB) as r:
        log = r.broker.log()
        for _ in range(10):
            log.append(records(log.end, 100), attributes=TRANSACTIONAL, producer_id=6, producer_epoch=0)
        log.append_marker(6, abort=True)
        log.aborted.append((6, 0, log.end - 1))
        log.append(records(log.end, 1))
        consumer = await r.consumer()
        for _ in range(12):
            given = (await consumer.fetch({PLACE: 0}))[PLACE]
            if given.messages:
                break
            assert given == (0, log.end, [], 0, 0)
        assert [message.offset for message in given.messages] == [log.end - 1]


async def test_aborted_records_are_given_to_who_reads_uncommitted() -> None:
    async with legacy_rig(isolation=Isolation.READ_UNCOMMITTED) as r:
        log, made = r.broker.log(), records(0, 10)
        log.append(made, attributes=TRANSACTIONAL, producer_id=6, producer_epoch=0)
        log.append_marker(6, abort=True)
        consumer = await r.consumer()
        assert (await consumer.consume({PLACE: 0}, {PLACE: 10}))[PLACE] == as_messages(0, made)
        assert set(r.broker.isolation) == {0}


# -- unavailable records -----------------------------------------------------------------------------------------------


async def test_headers_are_dropped_and_counted() -> None:
    async with legacy_rig() as r:
        one = NewRecord(5, b"k", None, ((b"a", b"1"), (b"b", None)))
        r.broker.log().append([one])
        consumer = await r.consumer()
        assert (await consumer.fetch({PLACE: 0}))[PLACE].messages == as_messages(0, [one])
        assert r.path.fetches.statistics().dropped_headers == 2


async def test_damage_ends_a_set_in_front_of_it_and_is_an_error_then(caplog: pytest.LogCaptureFixture) -> None:
    async with legacy_rig() as r:
        log = r.broker.log()
        good = records(0, 10)
        log.append(good)
        first, last, content = log.append(records(10, 10))
        log.batches[-1] = Batch(first, last, damaged(content, 70))
        log.append(records(20, 10))
        r.broker.log(("t", 1)).append(good)
        consumer = await r.consumer()
        given = (await consumer.fetch({PLACE: 0}))[PLACE]
        assert (given.error, given.messages) == (0, as_messages(0, good))
        both = await consumer.fetch({PLACE: 10, ("t", 1): 0}, max_wait_ms=60_000)
        assert both[PLACE][:3] == (CORRUPT_MESSAGE, 30, [])
        assert both["t", 1].messages == as_messages(0, good)
        (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        for part in ("'t'-0", "offset 10", "(client id test)", "127.0.0.1", "damage"):
            assert part in line
        asked = len(r.broker.fetches)
        assert (await consumer.fetch({PLACE: 10}))[PLACE].error == CORRUPT_MESSAGE
        assert len(r.broker.fetches) == asked + 1  # one request, one answer: no loop


async def test_zstd_is_an_error_that_names_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    async with legacy_rig() as r:
        r.broker.log().append(records(0, 10), Codec.ZSTD)
        consumer = await r.consumer()
        given = (await consumer.fetch({PLACE: 0}, max_wait_ms=60_000))[PLACE]
        assert given[:3] == (CORRUPT_MESSAGE, 10, [])
        assert 'compression = "none"' in caplog.text
        assert r.path.fetches.statistics().fetch_errors == 1


async def test_zstd_is_opened_where_sets_are_not_compressed() -> None:
    async with legacy_rig(compression=SetCompression.NONE) as r:
        made = records(0, 3000)
        r.broker.log().append(made, Codec.ZSTD)
        consumer = await r.consumer()
        assert (await consumer.consume({PLACE: 0}, {PLACE: 3000}))[PLACE] == as_messages(0, made)


@pytest.mark.parametrize(("code", "said"), [(NOT_LEADER, 6), (1, 1), (3, 3), (74, 6), (76, 2), (29, 29)])
async def test_errors_of_the_broker_are_told_in_the_clients_words(code: int, said: int) -> None:
    async with legacy_rig() as r:
        r.broker.log().error = code
        r.broker.log(("t", 1)).append(records(0, 10))
        consumer = await r.consumer()
        given = await consumer.fetch({PLACE: 0, ("t", 1): 0})
        assert given[PLACE] == (said, -1, [], 0, 0)
        assert given["t", 1].messages


async def test_an_error_of_the_whole_answer_is_that_of_every_partition() -> None:
    async with legacy_rig() as r:
        r.broker.log().append(records(0, 10))
        r.broker.error = -1
        consumer = await r.consumer()
        given = await consumer.fetch({PLACE: 0, ("t", 1): 0})
        assert [(one.error, one.messages) for one in given.values()] == [(-1, []), (-1, [])]


async def test_an_error_behind_what_was_left_out_is_asked_for_again_where_the_client_is() -> None:
    async with legacy_rig() as r:
        log = r.broker.log()
        log.append_marker(5, abort=False)
        consumer = await r.consumer()
        assert not (await consumer.fetch({PLACE: 0}, max_wait_ms=1))[PLACE].messages
        log.error = 1
        assert (await consumer.fetch({PLACE: 0}, max_wait_ms=1000))[PLACE].error == 1
        assert [one[PLACE] for one in r.broker.fetches[-2:]] == [1, 0]


async def test_a_broken_answer_ends_the_connection() -> None:
    async with legacy_rig() as r:
        log = r.broker.log()
        log.append(records(0, 10))
        r.broker.cut_bytes = 3
        consumer = await r.consumer()
        await consumer.ask({PLACE: 0})
        assert await consumer.at_end()
        assert await r.inner.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}


async def test_hostile_questions_end_the_connection() -> None:
    async with legacy_rig() as r:
        for question in (b"\xff" * 30, b"", b"\0" * 8 + b"\x7f\xff\xff\xff"):
            consumer = OldConsumer((await r.inner.client()).stream)
            await consumer.send(
                len(question + b"12345678ab").to_bytes(4, "big") + b"\0\1\0\2\0\0\0\1\xff\xff" + question
            )
            assert await consumer.at_end()
        assert (await r.inner.closed(3))[CloseCause.CLIENT_PROTOCOL] == 3


async def test_old_and_new_versions_may_share_a_connection() -> None:
    async with legacy_rig() as r:
        r.broker.log().append(records(0, 1000))
        consumer = await r.consumer()
        await consumer.send(_echoed(b"first"))
        await consumer.ask({PLACE: 0})
        await consumer.send(_echoed(b"second"))
        assert (await consumer.frame()).endswith(b"first")
        assert (await consumer.answer())[PLACE].messages
        assert (await consumer.frame()).endswith(b"second")


def _echoed(what: bytes) -> bytes:
    return request(13, 0, 9, what)


async def test_a_megabyte_of_records_in_many_small_batches() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB, fetch_bytes=MIB) as r:
        log, sent = r.broker.log(), []
        for number in range(500):
            made = records(number * 3, 3, 600)
            sent += as_messages(log.end, made)
            log.append(made, CODECS[number % 4])
        consumer = await r.consumer()
        with trio.fail_after(20):
            assert (await consumer.consume({PLACE: 0}, {PLACE: log.end}))[PLACE] == sent
