"""A pair of listeners, a mirror, and a source that Shoal reads by itself: batches stay here, or are read again.

The clock jumps when all tasks wait.
"""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import TRANSACTIONAL
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key
from shoal.proxy.config.settings import MIB
from shoal.proxy.statistics import CloseCause
from tests.support.kio_messages import decode_request, response_frame
from tests.support.rig import FakeBroker, api_key, correlation_id
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Script, SourceBroker, make, version
from tests.support.shallow.mirror import COPY, FIRST, SIZE, Mirror, log, logs, rest
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import poll, produced, some_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from trio.testing import MockClock

    from shoal.proxy.config.settings import Address
    from shoal.proxy.shallow.claims.claim_checks import ClaimChecks
    from tests.support.rig import BrokerSide
    from tests.support.shallow.brokers import Place
    from tests.support.shallow.world import Seen

Entity = Any
OWN = 10  # the version of Shoal's own Fetch requests; the mirror's is another
ANSWERS = 30
START = 3
WHOLE = b"".join(log(number) for number in range(ANSWERS))
_AT = sum(len(log(number)) for number in range(START))
ALTERED = WHOLE[:_AT] + some_batch(SIZE * START, SIZE) + WHOLE[_AT + len(log(START)) :]
LATER_FIRST = WHOLE[:_AT].replace(log(START - 1), some_batch(SIZE * (START - 1), SIZE)) + WHOLE[_AT:]


@dataclass
class ReadableSource(SourceBroker):
    """It answers Shoal's own Fetch requests from `log`, whatever the mirror has got.

    `own`: the offsets of these. `starts`: there is nothing below. `ends`: the log end offset, if it is not behind all.
    `refuses`: the error of each answer. `over_quota`: so many answers after each one with records have no partition.
    `throttle`: seconds for which it reads nothing after such an answer. `most`: bytes of an answer.
    """

    log: bytes = WHOLE
    own: list[int] = field(default_factory=list)
    starts: int = 0
    ends: int = ANSWERS * SIZE
    refuses: ErrorCode = ErrorCode.none
    over_quota: int = 0
    throttle: int = 0
    most: int = MIB
    is_silent: bool = False
    takes: float = 0  # seconds for an answer
    said: set[tuple[int, int, int, int]] = field(default_factory=set)  # session id and epoch, leader epoch, log start
    is_closing: bool = False  # instead of an answer to Metadata
    address: Address | None = None
    hung: Address | None = None  # the leader of partition 1
    _empty: int = 0

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if self.is_closing and api_key(frame) == ApiKey.METADATA:
            return await side.stream.aclose()
        if api_key(frame) != ApiKey.FETCH or version(frame) != OWN:
            return await super().answer(side, frame)
        _, request = decode_request(frame, load_request_schema(1, OWN))
        ((asked,),) = (topic.partitions for topic in request.topics)
        self.own.append(asked.fetch_offset)
        session = request.session_id, request.session_epoch
        self.said.add((*session, asked.current_leader_epoch, asked.log_start_offset))
        await trio.sleep(self.takes)
        if self._empty:
            self._empty -= 1
            entity = self.fetched(load_response_schema(1, OWN), {})
            answer = bytearray(response_frame(entity, correlation_id(frame)))
            struct.pack_into(">i", answer, 8, self.throttle * 1000)
            await side.send(bytes(answer))
            await trio.sleep(self.throttle)
        elif not self.is_silent:
            is_there = self.starts <= asked.fetch_offset <= self.ends
            error = self.refuses if is_there else ErrorCode.offset_out_of_range
            most = min(asked.partition_max_bytes, self.most)
            found = b"" if error is not ErrorCode.none else self._from(asked.fetch_offset, most)
            self._empty = self.over_quota if found else 0
            entity = self.fetched(load_response_schema(1, OWN), {(ORDERS, asked.partition): found}, error)
            await side.send(response_frame(entity, correlation_id(frame)))

    def _from(self, offset: int, most: int) -> bytes:
        """From the batch with this offset on: that batch, and up to so many bytes."""
        at = 0
        while at < len(self.log):
            base, length, delta = (
                int.from_bytes(self.log[at + start : at + end], "big") for start, end in ((0, 8), (8, 12), (23, 27))
            )
            if base + delta >= offset:
                return self.log[at : at + max(most, 12 + length)]
            at += 12 + length
        return b""

    def _metadata(self, request: Entity, schema: type[Entity]) -> Entity:
        entity = super()._metadata(request, schema)
        if self.address is None:
            return entity
        nodes = [(1, self.address)] + ([(2, self.hung)] if self.hung else [])
        brokers = tuple(
            make(schema, "MetadataResponseBroker", node_id=node, host=at.host, port=at.port, rack=None)
            for node, at in nodes
        )
        leaders = {1: 2} if self.hung else {}
        topics = tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(partition, leader_id=leaders.get(partition.partition_index, 1))
                    for partition in topic.partitions
                ),
            )
            for topic in entity.topics
        )
        return replace(entity, brokers=brokers, topics=topics)


@asynccontextmanager
async def mirroring(source: ReadableSource | None = None, **options: Any) -> AsyncIterator[Mirror]:
    """A proven mirror: it has copied `START` answers, and Shoal has tried to read the last of them."""
    source = source or ReadableSource()
    source.sets = [{(ORDERS, 0): log(number)} for number in range(ANSWERS)]
    source.topics = {ORDERS_ID: (ORDERS, 1)}
    async with shallow_rig(source=source, min_batch_bytes=0, **options) as r:
        source.address = r.brokers[0].address
        mirror = await Mirror.of(r)
        await mirror.prove()
        assert await mirror.copy()
        await trio.sleep(6)
        yield mirror


def source_of(mirror: Mirror) -> ReadableSource:
    assert isinstance(mirror.source, ReadableSource)
    return mirror.source


def checks_of(mirror: Mirror) -> ClaimChecks:
    checks = mirror.r.wrap.interlock.checks
    assert checks is not None
    return checks


def key_of(seen: Seen) -> EnvelopeKey:
    key = decode_key(seen.record.key or b"")
    assert key is not None
    return key


def is_check(seen: list[Seen]) -> bool:
    (one,) = seen
    return key_of(one).is_claim_check


async def retry(mirror: Mirror, seen: list[Seen]) -> tuple[ErrorCode, str | None]:
    """Produce it -> the answer's error."""
    await mirror.producer.send(mirror.producer.request({(COPY, 0): produced(seen)}))
    ((one,),) = (topic.partition_responses for topic in (await mirror.producer.answer()).responses)
    return one.error_code, one.error_message


async def test_batches_stay_here_until_they_are_appended(clock: MockClock) -> None:
    async with mirroring() as mirror:
        checks = checks_of(mirror)
        for _ in range(5):
            seen = await mirror.fetch()
            assert is_check(seen)
            assert len(checks.kept) == 1
            assert checks.kept.held > len(log(START))
            await mirror.produce(seen)
            assert (len(checks.kept), checks.kept.held) == (0, 0)
        assert mirror.copied == logs(START + 5)
        assert source_of(mirror).own == [SIZE * (START - 1)], "read once, as a proof, and never again"
        assert mirror.r.wrap.tally.claim_checks == 5
        assert mirror.r.wrap.tally.read_again == 0


async def test_what_is_not_here_is_read_again(clock: MockClock) -> None:
    async with mirroring() as mirror:
        first, second = await mirror.fetch(), await mirror.fetch()
        checks_of(mirror).kept.clear()
        await mirror.produce([*first, *second])
        assert mirror.copied == logs(START + 2)
        assert source_of(mirror).own[1:] == [SIZE * START, SIZE * (START + 1)]
        assert mirror.r.wrap.tally.read_again == 2
        await mirror.produce(first)  # the answer was lost
        assert mirror.copied == logs(START + 2)


@pytest.mark.parametrize("ends", ["reads first", "produces first"])
async def test_a_restart_redeems_what_the_process_before_gave(clock: MockClock, ends: str) -> None:
    """Also if the mirror's task does not fetch before its request is answered."""
    async with mirroring() as mirror:
        given = await mirror.fetch()
    if ends == "reads first":
        async with mirroring() as mirror:
            await mirror.produce(given)
            assert mirror.copied == [*logs(START), *logs(START + 1)[-SIZE:]]
            return
    source = ReadableSource(topics={ORDERS_ID: (ORDERS, 1)})
    async with shallow_rig(source=source, min_batch_bytes=0) as r:
        source.address = r.brokers[0].address
        mirror = Mirror(r, await r.consumer(), await r.producer())
        await mirror.produce(given)
        assert mirror.copied == logs(START + 1)[-SIZE:]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (ReadableSource(), "has no offset 30 any more"),
        (ReadableSource(), "has no offset 31 any more"),
        (ReadableSource(), "other batches at 30..39"),
    ],
    ids=["deleted", "truncated", "other batches"],
)
async def test_what_the_source_has_no_more_is_refused_for_good(
    clock: MockClock, source: ReadableSource, says: str
) -> None:
    async with mirroring(source) as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        if "other" in says:
            source.log = ALTERED
        elif "31" in says:
            source.log, source.ends = WHOLE[:_AT], START * SIZE
        else:
            source.starts = (START + 1) * SIZE
        error, message = await retry(mirror, given)
        assert error is ErrorCode.invalid_record
        assert says in (message or "")
        assert "restart the mirror's task" in (message or "")
        assert mirror.copied == logs(START)


async def test_a_source_that_does_not_answer_lets_the_mirror_try_again(clock: MockClock) -> None:
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source, mirror.producer.patience = source_of(mirror), 60
        source.is_silent, began = True, trio.current_time()
        error, message = await retry(mirror, given)
        assert error is ErrorCode.request_timed_out
        assert "the source does not answer" in (message or "")
        assert trio.current_time() - began == pytest.approx(10, abs=0.5)
        assert not mirror.r.unwrap.tally.mismatches, "it will be what its key says"
        source.is_silent, began = False, trio.current_time()
        assert (await retry(mirror, given))[0] is ErrorCode.request_timed_out
        assert trio.current_time() - began < 0.1, "at once: other partitions of a request shall not wait"
        await patiently(mirror, given, 40)
        assert mirror.copied == logs(START + 1)


async def patiently(mirror: Mirror, given: list[Seen], seconds: float) -> None:
    """As a mirror does, until it succeeds."""
    began = trio.current_time()
    while (await retry(mirror, given))[0] is not ErrorCode.none:
        assert trio.current_time() - began < seconds
        await trio.sleep(1)


async def test_a_slow_source_is_read_in_the_background(clock: MockClock) -> None:
    """An answer takes longer than a request waits, and comes after an outage."""
    async with mirroring() as mirror:
        given, source = await mirror.fetch(), source_of(mirror)
        checks_of(mirror).kept.clear()
        source.refuses, mirror.producer.patience = ErrorCode.not_leader_or_follower, 60
        assert (await retry(mirror, given))[0] is ErrorCode.request_timed_out
        source.refuses, source.takes, own = ErrorCode.none, 12, len(source.own)
        await patiently(mirror, given, 20)
        assert len(source.own) == own + 1
        assert mirror.copied == logs(START + 1)


async def test_a_quota_delays_what_is_read_again(clock: MockClock) -> None:
    """A broker answers a client over its quota without a partition. What it has given before is kept."""
    async with mirroring() as mirror:
        source, mirror.producer.patience = source_of(mirror), 60
        given = await mirror.fetch()
        assert key_of(given[0]).batches == 2
        checks_of(mirror).kept.clear()
        source.over_quota, source.most = 3, 1
        await patiently(mirror, given, 10)
        assert mirror.copied == logs(START + 1)
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source.over_quota = 1000
        for _ in range(70):
            _, message = await retry(mirror, given)
            await trio.sleep(1)
        assert "raise the quotas of client id shoal (" in (message or "")


async def test_a_broker_that_delays_a_client_over_its_quota_is_not_silent(clock: MockClock) -> None:
    """A batch above some 10 s of the quota never comes, and the broker says so again and again, after a minute each."""
    async with mirroring() as mirror:
        source, mirror.producer.patience = source_of(mirror), 60
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source.over_quota, source.throttle, source.most = 1000, 50, 1
        messages = []
        for _ in range(70):
            messages.append((await retry(mirror, given))[1] or "")
            await trio.sleep(1)
        assert any("raise the quotas of client id shoal (" in message for message in messages)
        assert not any("no answer within" in message for message in messages)


async def test_many_partitions_of_one_leader_are_read_in_a_row(clock: MockClock) -> None:
    async with mirroring() as mirror:
        (seen,) = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source, mirror.producer.patience = source_of(mirror), 60
        source.topics, source.takes, own = {ORDERS_ID: (ORDERS, 30)}, 1, len(source.own)
        sets: dict[Place, bytes] = {}
        for number in range(30):
            key = encode_key(replace(key_of(seen), partition=number, serial=number))
            sets["elsewhere", number] = produced([seen._replace(record=seen.record._replace(key=key))])
        left, began = dict(sets), trio.current_time()
        while left:
            assert trio.current_time() - began < 40
            await mirror.producer.send(mirror.producer.request(left))
            answers = await mirror.producer.answers()
            left = {place: one for place, one in left.items() if answers[place[1]][0] is not ErrorCode.none}
            await trio.sleep(1)
        assert len(source.own) == own + 30


@pytest.mark.parametrize(("partitions", "checks", "takes"), [(1, 14, 12.0), (10, 20, 1.0)])
async def test_what_takes_longer_than_batches_stay_is_read_in_the_end(
    clock: MockClock, partitions: int, checks: int, takes: float
) -> None:
    async with trio.open_nursery() as ticking, mirroring() as mirror:
        (seen,) = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source, mirror.producer.patience = source_of(mirror), 60
        source.topics, source.takes = {ORDERS_ID: (ORDERS, partitions)}, takes
        own = len(source.own)
        left: dict[tuple[str | UUID, int], bytes] = {
            ("elsewhere", index): produced(
                [check(seen, partition=index, serial=100 * index + number + 1) for number in range(checks)]
            )
            for index in range(partitions)
        }
        listener = next(one for one in mirror.r.server.listeners.values() if one.path is mirror.r.wrap)

        async def tick() -> None:
            while True:
                await trio.sleep(1)
                listener.tick(trio.current_time())

        ticking.start_soon(tick)
        with trio.fail_after(600):
            while left:
                await mirror.producer.send(mirror.producer.request(left))
                answers = await mirror.producer.answers()
                left = {place: one for place, one in left.items() if answers[place[1]][0] is not ErrorCode.none}
                await trio.sleep(1)
        assert len(source.own) - own == partitions * checks
        ticking.cancel_scope.cancel()


def check(seen: Seen, *, partition: int, serial: int) -> Seen:
    """Another claim check for the same batches."""
    return seen._replace(
        record=seen.record._replace(key=encode_key(replace(key_of(seen), partition=partition, serial=serial)))
    )


async def test_a_forged_claim_check_delays_no_honest_one_of_its_partition(clock: MockClock) -> None:
    async with mirroring() as mirror:
        (seen,) = given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        key = replace(key_of(seen), first_offset=10_000, last_offset=10_009, serial=1)
        forged = produced([seen._replace(record=seen.record._replace(key=encode_key(key)))])
        other, mirror.producer.patience = await mirror.r.producer(), 60
        await other.send(other.request({("elsewhere", 0): forged}))
        await trio.sleep(15)
        await patiently(mirror, given, 5)
        assert mirror.copied == logs(START + 1)


async def test_own_requests_are_for_any_leader_epoch(clock: MockClock) -> None:
    """Brokers compare the epoch of a request with the leader's (KIP-320), and open a session if it asks for one."""
    async with mirroring() as mirror:
        assert source_of(mirror).said == {(0, -1, -1, -1)}
        assert is_check(await mirror.fetch())


@asynccontextmanager
async def two_leaders() -> AsyncIterator[tuple[Mirror, list[Seen], list[Seen]]]:
    """-> the mirror, and two claim checks whose batches are not here: their source partitions have two leaders, and the
    first of these accepts connections and does not answer.
    """

    async def nothing(side: BrokerSide, frame: bytes) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start((hung := FakeBroker(nothing)).run)
        async with mirroring() as mirror:
            (seen,) = good = await mirror.fetch()
            source = source_of(mirror)
            source.hung, source.topics = hung.address, {ORDERS_ID: (ORDERS, 2)}
            checks_of(mirror).kept.clear()
            key = encode_key(replace(key_of(seen), partition=1, serial=1))
            mirror.producer.patience = 60
            yield mirror, [seen._replace(record=seen.record._replace(key=key))], good
        nursery.cancel_scope.cancel()


async def test_a_leader_that_hangs_delays_no_other_one(clock: MockClock) -> None:
    async with two_leaders() as (mirror, bad, good):
        other, answers = await mirror.r.producer(), list[ErrorCode]()

        async def fail() -> None:
            await other.send(other.request({("elsewhere", 0): produced(bad)}))
            answers.extend(error for error, _ in (await other.answers()).values())

        other.patience = 60
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep(0.5)
            began = trio.current_time()
            await mirror.produce(good)
            assert trio.current_time() - began < 0.1
            assert mirror.copied == logs(START + 1)
        assert answers == [ErrorCode.request_timed_out]


async def test_what_cannot_be_read_delays_the_rest_of_its_request_once(clock: MockClock) -> None:
    async with two_leaders() as (mirror, bad, good):
        waits = list[float]()
        for number in range(3):
            began = trio.current_time()
            sets: dict[Place, bytes] = {("elsewhere", 1): produced(bad), (COPY, 0): produced(good)}
            await mirror.producer.send(mirror.producer.request(sets))
            errors = {index: error for index, (error, _) in (await mirror.producer.answers()).items()}
            assert errors == {1: ErrorCode.request_timed_out, 0: ErrorCode.none}, number
            waits.append(trio.current_time() - began)
            good = await mirror.fetch()
        assert waits == pytest.approx([10, 0, 0], abs=0.5)
        assert len(mirror.r.server.listeners["to"].connections) == 1
        assert mirror.copied == logs(START + 3)


async def test_much_that_cannot_be_read_leaves_room_for_the_rest_of_its_request(clock: MockClock) -> None:
    async with two_leaders() as (mirror, bad, good):
        (one,) = bad
        key = encode_key(replace(key_of(one), payload=64 * MIB - 1))
        much = produced([one._replace(record=one.record._replace(key=key))])
        for _ in range(2):
            await mirror.producer.send(mirror.producer.request({("elsewhere", 1): much, (COPY, 0): produced(good)}))
            errors = {index: error for index, (error, _) in (await mirror.producer.answers()).items()}
        assert errors == {1: ErrorCode.request_timed_out, 0: ErrorCode.none}
        assert mirror.copied == logs(START + 1)


async def test_a_topic_that_is_gone_for_a_minute_is_refused_for_good(clock: MockClock) -> None:
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source, mirror.producer.patience = source_of(mirror), 60
        source.topics, source.refuses = {}, ErrorCode.unknown_topic_or_partition
        found, began = list[ErrorCode](), trio.current_time()
        while not found or found[-1] is ErrorCode.request_timed_out:
            assert trio.current_time() - began < 90
            error, message = await retry(mirror, given)
            found.append(error)
            await trio.sleep(1)
        assert found[-1] is ErrorCode.invalid_record
        assert "has had no orders-0" in (message or "")
        assert trio.current_time() - began > 55


async def test_a_topic_that_is_unknown_twice_for_a_moment_is_not_gone(clock: MockClock) -> None:
    async with mirroring() as mirror:
        source, mirror.producer.patience = source_of(mirror), 60
        given = await mirror.fetch()
        for number in range(2):
            checks_of(mirror).kept.clear()
            source.topics, source.refuses = {}, ErrorCode.unknown_topic_or_partition
            async with trio.open_nursery() as nursery:
                nursery.start_soon(patiently, mirror, given, 30)
                await trio.sleep(0.5)
                source.topics, source.refuses = {ORDERS_ID: (ORDERS, 1)}, ErrorCode.none
            await trio.sleep(100)
            assert mirror.copied == logs(START + 1 + number)
            given = await mirror.fetch()


async def test_another_source_whose_cluster_is_not_known_is_not_asked(clock: MockClock) -> None:
    class Dead(SourceBroker):
        async def answer(self, side: BrokerSide, frame: bytes) -> None:
            await trio.sleep_forever()

    async with mirroring(second=Dead()) as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        await mirror.produce(given)
        assert mirror.copied == logs(START + 1)


@pytest.mark.parametrize("how", ["it may not read the topic", "it does not see the topic"])
async def test_another_login_at_the_same_source_is_not_the_last_word(clock: MockClock, how: str) -> None:
    second = ReadableSource(refuses=ErrorCode.topic_authorization_failed)
    second.topics = {ORDERS_ID: (ORDERS, 1)} if how == "it may not read the topic" else {}
    async with mirroring(second=second, learn=True) as mirror:
        second.address = mirror.r.server.listeners["second"].cluster.bootstrap[0]
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        mirror.producer.patience = 60
        errors = [(await retry(mirror, given))[0] for _ in range(2)]
        assert errors[-1] is ErrorCode.none
        assert mirror.copied == logs(START + 1)


async def test_when_one_of_two_source_listeners_has_left_its_mirror_tries_again(clock: MockClock) -> None:
    second = ReadableSource(cluster_id="the second source")
    async with mirroring(second=second, learn=True, same_cluster=False) as mirror:
        given = await mirror.fetch()
        mirror.r.unwrap.interlocks.leave(mirror.r.wrap.interlock)
        error, _ = await retry(mirror, given)
        assert error is ErrorCode.request_timed_out


async def test_a_mirror_that_has_left_gets_nothing_appended_later(clock: MockClock) -> None:
    """It may have begun again meanwhile, and be further on."""
    async with mirroring() as mirror:
        given, source, r = await mirror.fetch(), source_of(mirror), mirror.r
        checks_of(mirror).kept.clear()
        source.refuses = ErrorCode.not_leader_or_follower
        await mirror.producer.send(mirror.producer.request({(COPY, 0): produced(given)}))
        await trio.sleep(1)
        await mirror.producer.stream.aclose()
        again = Mirror(r, await r.consumer(), await r.producer())
        again.number = START
        source.sets = [{(ORDERS, 0): log(number)} for number in range(START, ANSWERS)]
        for _ in range(2):
            await again.copy()
        copied = again.copied
        source.refuses = ErrorCode.none
        await trio.sleep(30)
        assert again.copied == copied == logs(START + 2)


async def test_a_producer_without_answers_may_leave_at_once(clock: MockClock) -> None:
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        await mirror.producer.send(mirror.producer.request({(COPY, 0): produced(given)}, acks=0))
        await mirror.producer.stream.aclose()
        await trio.sleep(2)
        assert mirror.copied == logs(START + 1)


async def test_what_is_appended_stays_until_its_request_has_succeeded(clock: MockClock) -> None:
    """The target's leader moves in the middle of a request, and meanwhile the source deletes what is appended."""
    async with mirroring() as mirror:
        source, target, kept = source_of(mirror), mirror.r.target, checks_of(mirror).kept
        given = [one for _ in range(3) for one in await mirror.fetch()]
        own, at = len(source.own), len(target.requests)
        moved = Script(errors={0: ErrorCode.not_leader_or_follower})
        target.scripts.update({at + number: moved for number in range(4, 8)})
        assert (await retry(mirror, given))[0] is ErrorCode.not_leader_or_follower
        assert 0 < len(mirror.copied) - START * SIZE < 3 * SIZE
        assert len(kept) == 3
        target.scripts.clear()
        source.starts = (START + 2) * SIZE
        await mirror.produce(given)
        assert mirror.copied == logs(START + 3)
        assert (len(source.own), len(kept), kept.held) == (own, 0, 0)


async def test_what_was_read_again_for_nothing_does_not_stay(clock: MockClock) -> None:
    async with mirroring() as mirror:
        given, kept = await mirror.fetch(), checks_of(mirror).kept
        await mirror.produce(given)
        await mirror.produce(given)  # the answer was lost
        assert mirror.r.wrap.tally.read_again == 1
        assert (len(kept), kept.held) == (0, 0)
        assert is_check(await mirror.fetch())


async def test_batches_of_aborted_transactions_do_not_stay(clock: MockClock) -> None:
    @dataclass
    class Transactional(ReadableSource):
        aborted: tuple[int, int] | None = None

        def fetched(self, schema: type[Entity], sets: Any, error: ErrorCode = ErrorCode.none) -> Entity:
            entity = super().fetched(schema, sets, error)
            if self.aborted is None or schema.__version__ == OWN:
                return entity
            producer, first = self.aborted
            listed = (make(schema, "AbortedTransaction", producer_id=producer, first_offset=first),)
            ((topic,),) = (entity.responses,)
            (partition,) = topic.partitions
            return replace(
                entity, responses=(replace(topic, partitions=(replace(partition, aborted_transactions=listed),)),)
            )

    async with mirroring(Transactional()) as mirror:
        source, kept, at = source_of(mirror), checks_of(mirror).kept, START * SIZE
        assert isinstance(source, Transactional)
        aborted = some_batch(at, FIRST, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
        source.sets, source.aborted = [{(ORDERS, 0): aborted + rest(START)}], (7, at)
        seen = poll(await mirror.consumer.fetch(at, isolation_level=1))
        assert [key_of(one).is_claim_check for one in seen] == [True, True]
        assert len(kept) == 1
        await mirror.produce(seen[1:])
        assert kept.held == 0


async def test_names_in_forged_claim_checks_are_not_asked_for_for_ever(clock: MockClock) -> None:
    """Also if the source does not answer."""
    async with mirroring() as mirror:
        (seen,) = await mirror.fetch()
        source, mirror.producer.patience = source_of(mirror), 60
        source.is_closing = True
        keys = [encode_key(replace(key_of(seen), topic=f"none-{number}", serial=number)) for number in range(50)]
        forged = [seen._replace(record=seen.record._replace(key=key)) for key in keys]
        assert (await retry(mirror, forged))[0] is ErrorCode.request_timed_out
        source.is_closing = False
        await trio.sleep(40)
        assert await asked_for(mirror, seen) == {ORDERS}


async def test_a_leader_that_has_moved_is_asked_again(clock: MockClock) -> None:
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source = source_of(mirror)
        source.refuses = ErrorCode.not_leader_or_follower
        asked = len(source.asked)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mirror.produce, given)
            await trio.sleep(1)
            source.refuses = ErrorCode.none
        assert mirror.copied == logs(START + 1)
        assert len(source.asked) > asked


@pytest.mark.parametrize(
    "change",
    [{"refuses": ErrorCode.topic_authorization_failed}, {"log": LATER_FIRST}, {"is_silent": True}],
    ids=["refused", "other batches", "silent"],
)
async def test_what_shoal_cannot_read_passes_through_the_mirror(
    clock: MockClock, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    caplog.set_level("INFO")
    async with mirroring(ReadableSource(**change)) as mirror:
        for _ in range(3):
            seen = await mirror.fetch()
            assert not is_check(seen)
            await mirror.produce(seen)
        assert mirror.copied == logs(START + 3)
    assert caplog.text.count("Shoal cannot read them from the source again") == 1


async def test_a_claim_check_for_another_cluster_is_refused(clock: MockClock) -> None:
    async with mirroring(ReadableSource(cluster_id="the other source"), learn=True) as mirror:
        given = await mirror.fetch()
    async with mirroring(learn=True) as mirror:
        error, message = await retry(mirror, given)
        assert error is ErrorCode.invalid_record
        assert "a cluster that is not the source" in (message or "")
        assert mirror.copied == logs(START)


async def test_checksums_cannot_be_tried_out(clock: MockClock) -> None:
    async with mirroring() as mirror:
        (seen,) = await mirror.fetch()
        checks_of(mirror).kept.clear()
        began, mirror.producer.patience = trio.current_time(), 60
        for wrong in range(5):
            key = replace(key_of(seen), payload_crc=wrong)
            forged = seen._replace(record=seen.record._replace(key=encode_key(key)))
            error, _ = await retry(mirror, [forged])
            assert error is ErrorCode.invalid_record
        assert trio.current_time() - began >= 4.9
        assert mirror.copied == logs(START)


async def test_without_room_an_answer_waits_a_moment_and_then_carries_its_batches(clock: MockClock) -> None:
    async with mirroring(claim_check_bytes=3 * len(log(START)) // 2) as mirror:
        first, began = await mirror.fetch(), trio.current_time()
        second = await mirror.fetch()
        assert (is_check(first), is_check(second)) == (True, False)
        assert trio.current_time() - began == pytest.approx(0.5, abs=0.1)
        third = await mirror.fetch()
        assert not is_check(third)
        assert trio.current_time() - began < 0.7, "no answer waits again before anything has been appended"
        await mirror.produce([*first, *second, *third])
        assert is_check(await mirror.fetch())
        assert mirror.copied == logs(START + 3)


async def test_an_answer_without_room_goes_on_as_soon_as_there_is_some(clock: MockClock) -> None:
    async with mirroring(claim_check_bytes=3 * len(log(START)) // 2) as mirror:
        first = await mirror.fetch()
        await mirror.consumer.ask((START + 1) * SIZE)
        await trio.sleep(0.2)
        began = trio.current_time()
        await mirror.produce(first)
        seen = await mirror.consumer.record_set()
        assert trio.current_time() - began < 0.1
        assert mirror.r.wrap.tally.claim_checks == 2
        assert seen


@pytest.mark.parametrize("nothing", [b"", WHOLE[_AT : _AT + 50]], ids=["empty", "cut off"])
async def test_a_leader_that_has_nothing_yet_is_asked_again(clock: MockClock, nothing: bytes) -> None:
    """Its high watermark may be behind that of the leader before; or an answer was damaged."""
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source = source_of(mirror)
        source.log = nothing
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mirror.produce, given)
            await trio.sleep(0.6)
            source.log = WHOLE[:_AT] + WHOLE[_AT:].replace(log(START)[-9:], bytes(9), 1)
            await trio.sleep(0.6)
            source.log = WHOLE
        assert mirror.copied == logs(START + 1)


@pytest.mark.parametrize("stop", ["end", "drain"])
async def test_a_stop_lets_the_mirror_try_again_at_the_next_shoal(clock: MockClock, stop: str) -> None:
    """It does not wait for the source."""
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source_of(mirror).is_silent = True
        answers = list[tuple[ErrorCode, str | None]]()

        async def produce() -> None:
            answers.append(await retry(mirror, given))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.sleep(1)
            began = trio.current_time()
            if stop == "end":
                mirror.r.wrap.end()
            else:
                listener = mirror.r.server.listeners["from"]
                listener.drain()
                listener.tick(trio.current_time())
        ((error, message),) = answers
        assert trio.current_time() - began < 2
        assert error is ErrorCode.request_timed_out
        assert "Shoal ends" in (message or "")
        began = trio.current_time()
        error, message = await retry(mirror, given)
        assert trio.current_time() - began < 0.1
        assert error is ErrorCode.request_timed_out


async def test_when_the_source_listener_has_left_the_mirror_tries_again(clock: MockClock) -> None:
    """At a stop, the listener whose connections have ended first ends first."""
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        mirror.r.unwrap.interlocks.leave(mirror.r.wrap.interlock)
        error, _ = await retry(mirror, given)
        assert error is ErrorCode.request_timed_out
        mirror.r.unwrap.interlocks.join(mirror.r.wrap.interlock)
        await mirror.produce(given)
        assert mirror.copied == logs(START + 1)


async def test_a_producer_without_answers_learns_of_a_refusal_by_its_connection(clock: MockClock) -> None:
    async with mirroring() as mirror:
        given = await mirror.fetch()
        checks_of(mirror).kept.clear()
        source_of(mirror).starts = SIZE * (START + 1)
        await mirror.producer.send(mirror.producer.request({(COPY, 0): produced(given)}, acks=0))
        await trio.sleep(2)
        assert mirror.r.server.listeners["to"].tally.closed[CloseCause.CLIENT_PROTOCOL] == 1
        assert mirror.copied == logs(START)


async def test_topics_that_do_not_exist_are_not_remembered(clock: MockClock) -> None:
    """A client may put any name into a claim check."""
    async with mirroring() as mirror:
        (seen,) = await mirror.fetch()
        mirror.producer.patience = 60
        for number in range(3):
            key = replace(key_of(seen), topic=f"no-such-topic-{number}")
            error, _ = await retry(mirror, [seen._replace(record=seen.record._replace(key=encode_key(key)))])
            assert error is ErrorCode.request_timed_out
        await trio.sleep(40)
        assert await asked_for(mirror, seen) == {ORDERS}


async def asked_for(mirror: Mirror, seen: Seen) -> set[str]:
    """The topics in Shoal's latest question, which it asks because a leader has moved."""
    source = source_of(mirror)
    checks_of(mirror).kept.clear()
    source.refuses = ErrorCode.not_leader_or_follower
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mirror.produce, [seen])
        await trio.sleep(1)
        source.refuses = ErrorCode.none
    return {topic.name for topic in source.asked[-1].topics}


async def test_a_request_reads_only_so_much_again(clock: MockClock) -> None:
    """A forged claim check may state any size."""
    async with mirroring() as mirror:
        (seen,) = await mirror.fetch()
        sets: dict[Place, bytes] = {}
        for partition in range(5):
            key = encode_key(replace(key_of(seen), payload=40 * MIB, serial=partition))
            sets[COPY, partition] = produced([seen._replace(record=seen.record._replace(key=key))])
        own, mirror.producer.patience = len(source_of(mirror).own), 60
        await mirror.producer.send(mirror.producer.request(sets))
        errors = {index: error for index, (error, _) in (await mirror.producer.answers()).items()}
        later = dict.fromkeys((3, 4), ErrorCode.request_timed_out)
        assert errors == dict.fromkeys((0, 1, 2), ErrorCode.invalid_record) | later
        assert source_of(mirror).own[own:] == [SIZE * START] * 3
        assert mirror.copied == logs(START)


async def test_many_topics_delay_no_answer(clock: MockClock) -> None:
    async with mirroring(ReadableSource(is_silent=True)) as mirror:
        began = trio.current_time()
        for _ in range(5):
            await mirror.produce(await mirror.fetch())
        assert trio.current_time() - began < 0.1
