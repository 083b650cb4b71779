"""An idempotent mirror through the unwrap listener: its own stamps on everything, despite lost answers and restarts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import BatchHeader, encode_batch, read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import Limits
from tests.support.rig import until
from tests.support.shallow.batches import BATCHES, EARLIER, LATER, NONE, NOT_LEADER, OTHERS, envelope, records
from tests.support.shallow.brokers import Script, TargetBroker
from tests.support.shallow.proofs import Vouched, vouch
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import some_batch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
QUICK = Limits(close_seconds=0.01)
by_the_mirror = partial(encode_batch, producer_id=5, producer_epoch=2)


def opened(*batches: bytes, sequence: int) -> bytes:
    return by_the_mirror([seen.record for seen in envelope(*batches)], base_sequence=sequence)


def headers(target: TargetBroker, partition: int = 0) -> list[BatchHeader]:
    """Stamps of all batches received for a partition."""
    sets = (sent for request in target.requests for (_, index), sent in request.items() if index == partition)
    return [read_batch_header(sent, 0, len(sent)) for sent in sets]


async def test_every_batch_has_the_mirrors_stamps_and_a_sequence_of_its_own() -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        plain = by_the_mirror([EARLIER], base_sequence=0)
        await client.produce(plain)
        await client.produce(opened(*BATCHES, sequence=1))
        await client.produce(by_the_mirror([LATER, EARLIER], base_sequence=2))
        await client.produce(opened(*OTHERS, sequence=4))
        assert [await client.answers() for _ in range(4)] == [{0: (NONE, at)} for at in (0, 15, 16, 22)]
        assert r.target.log() == [EARLIER, *records(*BATCHES), LATER, EARLIER, *records(*OTHERS)]
        came = headers(r.target)
        assert {(one.producer_id, one.producer_epoch) for one in came} == {(5, 2)}
        assert [one.base_sequence for one in came] == [0, 1, 5, 11, 16, 18, 20]
        assert plain in r.target.requests[0].values(), "what came before the first envelope is untouched"


MANY = [some_batch(200 + at, 1) for at in range(8)]  # more than a broker remembers


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("others", [False, True])
async def test_a_raw_batch_comes_again_behind_envelopes(version: int, others: bool) -> None:
    """Several in flight: its answer is lost with the connection, and Shoal continues with what it had received."""
    plain, wrapped = by_the_mirror([EARLIER], base_sequence=0), opened(*MANY, sequence=1)
    beside = [opened(*OTHERS, sequence=0)] if others else []
    gate = trio.Event()
    async with shallow_rig(scripts={0: Script(gate=gate)}) as r:
        first, second = await r.producer(), await r.producer()
        first.version = second.version = version
        await first.produce(plain, *beside)
        await first.produce(wrapped)
        await until(lambda: len(r.target.requests) == 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await first.leave()
        gate.set()
        await until(lambda: len(r.target.log()) == 9)
        for sent, offset in ((plain, 0), (wrapped, 8)):
            await second.produce(sent)
            assert await second.answers() == {0: (NONE, offset)}
        assert r.target.log() == [EARLIER, *records(*MANY)]


async def test_where_more_producers_come_than_there_are_slots_the_setting_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shallow_rig(producer_slots=2) as r:
        client = await r.producer()
        for number, producer_id in enumerate((5, 6, 7, 8)):
            await client.produce(encode_batch([EARLIER], producer_id=producer_id, producer_epoch=2, base_sequence=0))
            assert await client.answers() == {0: (NONE, number)}
            told = [record for record in caplog.records if "producer-slots" in record.message]
            assert len(told) == (number > 1)
        for producer_id, forgotten in ((5, True), (99, False)):
            caplog.clear()
            await client.produce(encode_batch([LATER], producer_id=producer_id, producer_epoch=2, base_sequence=1))
            assert await client.answers() == {0: (OUT_OF_ORDER, -1)}
            assert ("was forgotten, since more than 2" in caplog.text) is forgotten


async def test_more_slots_keep_what_the_file_holds_and_fewer_do_not_shrink_it(tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "to.producers"
    for number, slots in enumerate((2, 4, 1)):
        async with shallow_rig(target=target, producers_file=path, producer_slots=slots) as r:
            client = await r.producer()
            await client.produce(opened(some_batch(10 * number, 2), sequence=number))
            assert await client.answers() == {0: (NONE, 2 * number + 1)}
    assert path.stat().st_size == 4096 + 4 * 512


async def test_a_mirror_s_own_stamps_go_in_sets() -> None:
    async with shallow_rig() as r:
        vouch(r, Vouched())
        client = await r.producer()
        await client.produce(opened(*BATCHES, sequence=0))
        await client.produce(opened(*OTHERS, sequence=1))
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 14)}, {0: (NONE, 19)}]
        assert r.target.log() == [*records(*BATCHES), *records(*OTHERS)]
        assert [header.base_sequence for header in headers(r.target)] == [0, 15]


async def test_a_mirror_s_own_stamps_go_one_by_one_where_the_broker_does_not_know_the_batches_of_a_set_again() -> None:
    async with shallow_rig() as r:
        vouch(r, Vouched(stamps=False))
        client = await r.producer()
        await client.produce(opened(*BATCHES, sequence=0))
        assert await client.answers() == {0: (NONE, 14)}
        assert [header.base_sequence for header in headers(r.target)] == [0, 4, 10]


@pytest.mark.parametrize("there", [0, 1, 7, 12])
@pytest.mark.parametrize("takes_sets", [True, False])
async def test_a_mirror_s_own_set_that_a_new_leader_has_in_part_is_gone_on_with(
    there: int, takes_sets: bool, tmp_path: Path
) -> None:
    """Shoal is another process by then, and knows only its file."""
    many = [some_batch(200 + at, 1) for at in range(12)]
    target, path, batch = TargetBroker(), tmp_path / "to.producers", opened(*many, sequence=1)
    async with shallow_rig(target=target, producers_file=path, scripts={1: Script(closes=True)}, limits=QUICK) as r:
        vouch(r, Vouched())
        client = await r.producer()
        await client.produce(opened(*BATCHES, sequence=0))
        assert await client.answers() == {0: (NONE, 14)}
        await client.produce(batch)
        await r.closed()
    log = target.logs["orders", 0]
    assert log.sets == 2
    log.fail_over(12 - there, acknowledged=15)
    target.scripts.clear()
    async with shallow_rig(target=target, producers_file=path) as r:
        vouch(r, Vouched())
        log.takes_sets = takes_sets
        client = await r.producer()
        await client.produce(batch)
        assert await client.answers() == {0: (NONE, 26)}
        assert target.log() == records(*BATCHES, *many)
        assert log.sets == 2, "a set is never sent again as a set"


async def test_numbers_diverge_in_each_partition_by_itself() -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(opened(*BATCHES, sequence=0), by_the_mirror([EARLIER], base_sequence=0))
        await client.produce(by_the_mirror([LATER], base_sequence=1), by_the_mirror([LATER], base_sequence=1))
        assert [await client.answers() for _ in range(2)] == [
            {0: (NONE, 14), 1: (NONE, 0)},
            {0: (NONE, 15), 1: (NONE, 1)},
        ]
        assert [header.base_sequence for header in headers(r.target)] == [0, 4, 10, 15]
        assert [header.base_sequence for header in headers(r.target, 1)] == [0, 1]


async def test_plain_batches_behind_an_envelope_are_compressed_too() -> None:
    async with shallow_rig(plain_compression="zstd") as r:
        client = await r.producer()
        many = [EARLIER._replace(value=b"x" * 200)] * 20
        await client.produce(opened(*BATCHES, sequence=0))
        await client.produce(by_the_mirror(many, base_sequence=1))
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 14)}, {0: (NONE, 15)}]
        assert headers(r.target)[-1].codec is Codec.ZSTD
        assert r.target.log()[15:] == many


async def test_an_error_in_the_middle_goes_on_there_with_the_same_numbers() -> None:
    async with shallow_rig(scripts={1: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer()
        batch = opened(*BATCHES, sequence=0)
        await client.produce(batch)
        assert await client.answers() == {0: (NOT_LEADER, -1)}
        await client.produce(opened(*OTHERS, sequence=1))
        assert await client.answers() == {0: (OUT_OF_ORDER, -1)}, "it was in flight behind the first"
        await client.produce(batch)
        await client.produce(opened(*OTHERS, sequence=1))
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 14)}, {0: (NONE, 19)}]
        assert r.target.log() == [*records(*BATCHES), *records(*OTHERS)]
        assert [header.base_sequence for header in headers(r.target)] == [0, 4, 4, 10, 15, 17]


async def test_what_is_too_large_is_cut_and_its_pieces_are_numbered() -> None:
    async with shallow_rig() as r:
        r.target.logs["orders", 0].max_message_bytes = 150
        client = await r.producer()
        await client.produce(opened(*BATCHES, sequence=0))
        await client.produce(by_the_mirror([LATER], base_sequence=1))
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 14)}, {0: (NONE, 15)}]
        assert r.target.log() == [*records(*BATCHES), LATER]
        assert len(headers(r.target)) > 4


@pytest.mark.parametrize("lost", range(4))
async def test_another_shoal_with_the_same_file_goes_on(lost: int, tmp_path: Path) -> None:
    """The answer to one of the three batches is lost with Shoal, or the answer to the mirror."""
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    batch = opened(*BATCHES, sequence=1)
    async with shallow_rig(
        target=target, producers_file=path, scripts={1 + lost: Script(closes=True)}, limits=QUICK
    ) as r:
        client = await r.producer()
        await client.produce(by_the_mirror([EARLIER], base_sequence=0))
        assert await client.answers() == {0: (NONE, 0)}
        await client.produce(batch)
        if lost < 3:
            await r.closed()
        else:
            await until(lambda: len(target.log()) == 16)
            await client.leave()
    target.scripts.clear()
    async with shallow_rig(target=target, producers_file=path) as r:
        client = await r.producer()
        await client.produce(batch)
        await client.produce(by_the_mirror([LATER], base_sequence=2))
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 15)}, {0: (NONE, 16)}]
    assert target.log() == [EARLIER, *records(*BATCHES), LATER]


async def test_a_lost_file_makes_the_mirror_begin_anew(tmp_path: Path) -> None:
    target = TargetBroker()
    for name in ("one", "other"):
        async with shallow_rig(target=target, producers_file=tmp_path / name) as r:
            client = await r.producer()
            await client.produce(opened(*BATCHES, sequence=0) if name == "one" else opened(*OTHERS, sequence=1))
            assert await client.answers() == {0: (NONE, 14) if name == "one" else (OUT_OF_ORDER, -1)}
    assert target.log() == records(*BATCHES)
