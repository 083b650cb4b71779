"""Two senders in one target partition: two sources of one topic (IdentityReplicationPolicy).

Neither may resolve the other's doubt.
"""

from __future__ import annotations

import pytest

from shoal.protocol.shallow.unwrap.sequences.own import Sequences
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.settings import Limits
from tests.support.shallow.batches import BATCHES, NONE, OTHERS, records
from tests.support.shallow.brokers import ORDERS, Script
from tests.support.shallow.partition import stamp_of
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import context, flat, poll, produced, some_batch
from tests.support.shallow.wrapping import wrap_record_set

pytestmark = pytest.mark.usefixtures("lane")

QUICK = Limits(close_seconds=0.01)
T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def of_source(cluster: str, *batches: bytes, serial: int = 1, topic: str = "orders") -> bytes:
    source = b"".join(batches)
    parts = wrap_record_set(source, 0, len(source), context(cluster=cluster, topic=topic, serials=lambda: serial)).parts
    assert parts is not None
    return produced(poll(flat(parts)))


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize("lost_at", range(3))
async def test_what_one_source_left_in_doubt_is_not_resolved_by_the_other(lost_at: int, appends: bool) -> None:
    """The answer to a batch of the first is lost; the second continues; the first retries."""
    async with shallow_rig(scripts={lost_at: Script(closes=True, appends=appends)}, limits=QUICK) as r:
        first = await r.producer(agrees=True)
        await first.produce(of_source("one", *BATCHES))
        assert await first.at_end()
        second, again = await r.producer(agrees=True), await r.producer(agrees=True)
        await second.produce(of_source("two", *OTHERS))
        (answer,) = (await second.answers()).values()
        assert answer[0] is NONE
        await again.produce(of_source("one", *BATCHES))
        (answer,) = (await again.answers()).values()
        assert answer[0] is NONE
        log = r.target.log()
        assert [one for one in log if one in records(*BATCHES)] == records(*BATCHES)
        assert [one for one in log if one in records(*OTHERS)] == records(*OTHERS)
        assert len(log) == 20


async def test_a_mirror_that_merges_topics_is_one_sender() -> None:
    """After a restart it may begin with another topic than the one with a request in doubt, and must fence that."""
    async with shallow_rig() as r:
        client = await r.producer(agrees=True)
        for serial, topic in enumerate(("one", "other")):
            await client.produce(of_source("A", some_batch(10 * serial), serial=serial, topic=topic))
            assert {error for error, _ in (await client.answers()).values()} == {NONE}
        assert {stamp.producer_id for sent in r.target.requests if (stamp := stamp_of(sent[ORDERS, 0]))} == {1001}


async def test_each_source_has_a_producer_id_of_its_own_and_the_first_one_is_shared_by_partitions() -> None:
    async with shallow_rig() as r:
        client = await r.producer(agrees=True)
        for number in range(3):
            await client.produce(of_source("one", some_batch(10 * number), serial=number), of_source("two", BATCHES[0]))
            await client.produce(of_source("two", some_batch(10 * number + 5), serial=number))
        for _ in range(6):
            assert {error for error, _ in (await client.answers()).values()} == {NONE}
        stamps = [[stamp_of(sent[ORDERS, at]) for sent in r.target.requests if (ORDERS, at) in sent] for at in (0, 1)]
        assert [stamp.producer_id for stamp in stamps[0] if stamp] == [1001, 1002] * 3
        assert {stamp.producer_id for stamp in stamps[1] if stamp} == {1001}


async def test_the_next_life_of_a_mirror_fences_what_the_last_one_has_in_flight() -> None:
    """It reads again from its committed offset: other envelopes of the same source partition, by another client."""
    async with shallow_rig(scripts={1: Script(closes=True, appends=False)}, limits=QUICK) as r:
        first = await r.producer(agrees=True)
        await first.produce(of_source("one", *BATCHES))
        assert await first.at_end()
        again = await r.producer(agrees=True)
        again.client_id = "another"
        await again.produce(of_source("one", *BATCHES, serial=2))
        assert (await again.answers())[0][0] is NONE
        stamps = [stamp for sent in r.target.requests if (stamp := stamp_of(sent[ORDERS, 0]))]
        assert stamps[0].producer_id == stamps[-1].producer_id
        assert stamps[0].epoch < stamps[-1].epoch


def test_the_limit_holds_when_senders_have_taken_turns_with_one_id() -> None:
    sequences = Sequences(limit=1, senders=1)
    sequences.begin(7, 0)
    for sender in "abab":
        assert sequences.of(T, sender)
    assert sequences.of(U)
    assert sequences.lacks_id([(T, None)])


# The pool of producer ids


def test_a_pool_of_ids_grows_with_the_senders_of_one_partition() -> None:
    sequences = Sequences(senders=2)
    assert sequences.of(T, "a") is None
    assert sequences.lacks_id([(T, "a")])
    sequences.begin(7, 0)
    sequences.begin(8, 3)
    assert not sequences.lacks_id([(T, "a"), (T, "b"), (U, "b")])
    for target, sender, producer_id, epoch in ((T, "a", 7, 0), (T, "b", 8, 3), (U, "b", 7, 0), (T, "a", 7, 0)):
        known = sequences.of(target, sender)
        assert known
        assert (known.producer_id, known.epoch) == (producer_id, epoch)


def test_one_sender_more_than_the_pool_takes_the_sequence_of_the_oldest_in_a_new_epoch() -> None:
    sequences = Sequences(senders=2)
    sequences.begin(7, 0)
    sequences.begin(8, 0)
    for sender in "ab":
        known = sequences.of(T, sender)
        assert known
        known.take(5)
    assert not sequences.lacks_id([(T, "c")])
    known = sequences.of(T, "c")
    assert known
    assert (known.producer_id, known.epoch, known.next) == (7, 1, 0)
    again = sequences.of(T, "a")
    assert again
    assert (again.producer_id, again.epoch, again.next) == (8, 1, 0)


def test_an_id_whose_epochs_are_used_up_is_given_to_nobody() -> None:
    sequences = Sequences(senders=1)
    sequences.begin(7, 32767)
    assert sequences.of(T, "a")
    assert sequences.of(T, "b") is None
    assert sequences.lacks_id([(T, "b"), (U, "a")])
    sequences.begin(8, 0)
    known = sequences.of(T, "b")
    assert known
    assert known.producer_id == 8


def test_another_sender_s_records_leave_no_conclusion_from_offsets() -> None:
    sequences = Sequences()
    sequences.begin(7, 0)
    sequences.begin(8, 0)
    known = sequences.of(T, "a")
    assert known
    known.end = 40
    assert sequences.of(T, "a") is known
    assert known.end == 40
    sequences.of(T, "b")
    assert known.end == -1


def test_above_the_limit_all_begin_anew() -> None:
    sequences = Sequences(limit=1)
    sequences.begin(7, 0)
    assert sequences.of(T)
    assert sequences.of(U)
    assert sequences.lacks_id([(T, None)])
