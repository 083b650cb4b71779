"""Knowledge of appended parts survives the process: the next Shoal does not append that part of an envelope again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Hashable
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.shallow.envelope import EnvelopeKey, encode_key
from shoal.protocol.shallow.unwrap.appended_log import Appended, Refusal
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.settings import Limits
from shoal.proxy.shallow.files.deliveries import DeliveriesLog, encode_identity
from shoal.proxy.shallow.files.kept_lines import KeptLines
from tests.support.rig import until
from tests.support.shallow.batches import BATCHES, EARLIER, LATER, NONE, NOT_LEADER, envelope, outer, records
from tests.support.shallow.brokers import Script, TargetBroker
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import Seen, context, flat, poll, produced
from tests.support.shallow.wrapping import wrap_record_set
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

QUICK = Limits(close_seconds=0.01)


@pytest.mark.parametrize("sent", [outer(*BATCHES), produced([Seen(0, EARLIER), *envelope(*BATCHES), Seen(2, LATER)])])
async def test_a_part_that_was_appended_before_an_orderly_stop_does_not_come_twice(sent: bytes, tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    async with shallow_rig(target=target, producers_file=path, scripts={2: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer()
        await client.produce(sent)
        assert await client.answers() == {0: (NOT_LEADER, -1)}
        appended = list(target.log())
    assert appended
    target.scripts.clear()
    async with shallow_rig(target=target, producers_file=path) as r:
        client = await r.producer()
        await client.produce(sent)
        assert (await client.answers())[0][0] is NONE
    assert sum(one in records(*BATCHES) for one in target.log()) == 15
    assert len(target.log()) in (15, 17)


async def test_an_answer_that_was_lost_before_an_orderly_stop_is_given_again(tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    for _ in range(2):
        async with shallow_rig(target=target, producers_file=path, limits=QUICK) as r:
            client = await r.producer()
            await client.produce(outer(*BATCHES))
            await until(lambda: len(target.log()) == 15)
            await client.leave()
            await r.closed()
    assert target.log() == records(*BATCHES)


async def test_a_killed_shoal_s_answers_are_known(tmp_path: Path) -> None:
    """What was in the files while the third batch was in flight is what a kill leaves."""
    target, state = TargetBroker(), tmp_path / "state"
    gate = trio.Event()
    async with shallow_rig(target=target, producers_file=state / "to.producers", scripts={2: Script(gate=gate)}) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES))
        await r.arrived(3)
        left = (state / "to.deliveries").read_bytes()
        gate.set()
        assert await client.answers() == {0: (NONE, 14)}
    for file in state.iterdir():
        file.unlink()
    (state / "to.deliveries").write_bytes(left)
    target.scripts.clear()
    async with shallow_rig(target=target, producers_file=state / "to.producers") as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES))
        assert (await client.answers())[0][0] is NONE
    assert target.log() == [*records(*BATCHES), *records(BATCHES[2])], "only what was in flight comes twice"


def plan(sent: bytes) -> Plan:
    made = plan_record_set(sent, 0, len(sent))
    assert isinstance(made, Plan)
    return made


T = TopicPartition("t", 0)


def items() -> list[tuple[TopicPartition, Hashable, Appended]]:
    """An envelope, and plain records behind it, of which the target has refused some."""
    found = list[tuple[TopicPartition, Hashable, Appended]]()
    for number, item in enumerate(plan(produced([*envelope(*BATCHES), Seen(2, LATER)])).items):
        refusal = Refusal(32, ("too old",), 4) if number else None
        done = Appended(batches=1, records=number, first=5, last=9, refusal=refusal)
        found.append((TopicPartition("t", number), item.identity, done))
    return found


def opened(path: Path, **options: int) -> DeliveriesLog:
    deliveries = DeliveriesLog(**options)
    deliveries.open(path)
    return deliveries


def known(deliveries: DeliveriesLog) -> dict[object, Appended]:
    return dict(deliveries.items())


def test_what_is_recorded_is_in_the_file_at_once(tmp_path: Path) -> None:
    """No `close`: the process was killed."""
    path = tmp_path / "state" / "to.deliveries"
    deliveries = opened(path)
    for item in items():
        deliveries.record(*item)
        deliveries.record(*item[:2], item[2]._replace(batches=2))
        assert known(opened(path)) == known(deliveries)
    again = opened(path)
    again.record(T, b"later", Appended(batches=7))
    deliveries.forget("t")
    assert (T, b"later") in known(opened(path))
    opened(path).forget("t")
    assert not known(opened(path)), "the topic was deleted"


def test_an_orderly_stop_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "to.deliveries"
    rows = [
        [*target, *encode_identity(identity), *done[:4], done.refusal and [*done.refusal]]
        for target, identity, done in items()
    ]
    KeptLines(path=path, first="shoal deliveries 1", lost="").save(rows)
    wanted = {(target, identity): done for target, identity, done in items()}
    for _ in range(2):  # the first process was killed
        assert known(opened(path)) == wanted


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "to.deliveries"
    deliveries = opened(path, max_rows=4)
    for number in range(20):
        deliveries.record(T, b"%d" % number, Appended(batches=number))
        deliveries.record(T, b"in use", Appended(batches=100 + number))
    assert path.stat().st_size == 5 * 2048
    numbers = {b"in use": 119, b"17": 17, b"18": 18, b"19": 19}
    assert known(opened(path, max_rows=4)) == {(T, name): Appended(batches=of) for name, of in numbers.items()}
    former, deliveries = deliveries, deliveries.for_another_cluster()
    assert not known(opened(path))
    former.record(T, b"under way", Appended(batches=1))
    deliveries.record(T, b"anew", Appended(batches=1))
    assert path.stat().st_size == 5 * 2048
    assert known(opened(path)) == {(T, b"anew"): Appended(batches=1)}


@pytest.mark.parametrize("length", [1, 240, 249])
def test_long_names_have_room(tmp_path: Path, length: int) -> None:
    source = b"".join(BATCHES)
    parts = wrap_record_set(source, 0, len(source), context(topic="t" * length, cluster="c" * 22)).parts
    (item,) = plan(produced(poll(flat(parts or [])))).items
    most = len(item.batches), 2**31 - 1, 2**63 - 1, 2**63 - 1
    target, done = TopicPartition("c" * length, 2**31 - 1), Appended(*most)
    done = done._replace(refusal=Refusal(87, ("€" * 500,) * 3, 2**31 - 1))
    path = tmp_path / "to.deliveries"
    opened(path).record(target, item.identity, done)
    ((key, found),) = known(opened(path)).items()
    assert key == (target, item.identity)
    assert found[:4] == done[:4]


def row_of(text: str) -> bytes:
    padded = text.encode().ljust(2039)
    return padded + b"%08x\n" % zlib.crc32(padded)


KEY = items()[0][1]
assert isinstance(KEY, EnvelopeKey)
SAID = encode_key(KEY).hex()


@pytest.mark.parametrize(
    "row",
    [
        row_of("["),
        row_of(1000 * "["),
        row_of('[0, "t", 0, "envelope", "00", 1, 0, 2, 3, null]'),
        row_of('[0, "t", 0, "envelope", "00", 1, 2, 3, "x", null]'),
        row_of(f'[0, "t", 0, "envelope", "{SAID}", {KEY.batches + 1}, 0, 2, 3, null]'),
        row_of(f'[0, "t", 0, "envelope", "{SAID}", -2, 0, 2, 3, null]'),
        row_of(f'[0, "t", 0, "envelope", "{SAID}", 1e999, 0, 2, 3, null]'),
        row_of("\x00"),
        row_of("null"),
        bytes(2048),
        row_of(f'[0, "t", 0, "envelope", "{SAID}", 1, 0, 2, 3, null]')[:512].ljust(2048, b" "),
    ],
    ids=range(11),
)
def test_a_damaged_row_is_left_out_and_used_again(row: bytes, tmp_path: Path) -> None:
    path = tmp_path / "to.deliveries"
    deliveries = opened(path)
    for name in (b"1", b"2"):
        deliveries.record(T, name, Appended(batches=1))
    content = path.read_bytes()
    path.write_bytes(content[:2048] + row + content[4096:])
    deliveries = opened(path)
    assert known(deliveries) == {(T, b"2"): Appended(batches=1)}
    deliveries.record(T, b"3", Appended(batches=1))
    assert path.stat().st_size == 3 * 2048


def test_a_write_that_a_crash_has_divided_is_left_out(tmp_path: Path) -> None:
    """Half of the row is another item's, with other numbers."""
    path = tmp_path / "to.deliveries"
    opened(path).record(T, b"x" * 200, Appended(batches=9))
    before = path.read_bytes()
    deliveries = opened(path, max_rows=1)
    deliveries.record(T, b"y" * 200, Appended(batches=1))
    path.write_bytes(path.read_bytes()[: 2048 + 512] + before[2048 + 512 :])
    found = known(opened(path))
    assert found in ({}, {(T, b"y" * 200): Appended(batches=1)})


@pytest.mark.parametrize("header", [bytes(2048), b""], ids=["zeros", "cut off"])
def test_a_file_that_a_crash_has_left_empty_is_used(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "to.deliveries"
    opened(path).record(T, b"1", Appended(batches=1))
    path.write_bytes(header + path.read_bytes()[2048:] if header else b"shoal")
    deliveries = opened(path)
    assert len(known(deliveries)) == len(header) // 2048
    deliveries.record(T, b"2", Appended(batches=1))
    assert (T, b"2") in known(opened(path))


def test_of_two_rows_of_an_item_the_later_counts(tmp_path: Path) -> None:
    """One of them was damaged for a while."""
    path = tmp_path / "to.deliveries"
    rows = [json.dumps([age, "t", 0, "plain", b"1".hex(), 1 + age, 0, 0, 0, None]) for age in (1, 0)]
    opened(path)
    path.write_bytes(path.read_bytes() + b"".join(map(row_of, rows)))
    deliveries = opened(path)
    assert known(deliveries) == {(T, b"1"): Appended(2, 0, 0, 0)}
    deliveries.forget("t")
    assert not known(opened(path))


def test_the_oldest_row_makes_way_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "to.deliveries"
    deliveries = opened(path, max_rows=3)
    for name in (b"1", b"2", b"3", b"1"):
        deliveries.record(T, name, Appended(batches=1))
    deliveries = opened(path, max_rows=3)
    deliveries.record(T, b"4", Appended(batches=1))
    assert known(opened(path, max_rows=3)).keys() == {(T, b"1"), (T, b"3"), (T, b"4")}


@pytest.mark.parametrize("cut", [0, 1, 2047])
def test_a_file_that_is_cut_off_is_used_as_far_as_it_goes(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "to.deliveries"
    deliveries = opened(path)
    for name in (b"1", b"2"):
        deliveries.record(T, name, Appended(batches=1))
    os.truncate(path, 2 * 2048 + cut)
    deliveries = opened(path)
    assert known(deliveries) == {(T, b"1"): Appended(batches=1)}
    deliveries.record(T, b"3", Appended(batches=1))
    assert len(known(opened(path))) == 2


def test_another_file_is_neither_believed_nor_written_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "to.deliveries"
    path.write_text("somebody's")
    deliveries = opened(path)
    deliveries.record(T, b"digest", Appended(batches=1))
    assert path.read_text() == "somebody's"
    assert "not Shoal's" in caplog.text
    assert known(deliveries) == {(T, b"digest"): Appended(batches=1)}


def test_a_full_disk_costs_the_memory_and_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed: list[bool] = []
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        path = disk.path / "to.deliveries"
        deliveries = DeliveriesLog()
        deliveries.open(path, lambda: failed.append(True))
        deliveries.record(T, b"before", Appended(batches=1))
        disk.fill(leave=0)
        for number in range(1000):
            deliveries.record(T, b"%d" % number, Appended(batches=1))
        assert len(known(deliveries)) == 1001
        assert known(opened(path))[T, b"before"] == Appended(batches=1)
    assert failed == [True]
    assert ["No space left on device" in line and "make room" in line for line in caplog.messages] == [True]


async def test_what_cannot_be_kept_counts_as_an_error_of_the_state_directory(tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    path.parent.mkdir()
    path.with_suffix(".deliveries").write_text("somebody's")
    async with shallow_rig(target=target, producers_file=path) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES))
        assert (await client.answers())[0][0] is NONE
        errors = {listener.name: listener.state_errors for listener in r.server.statistics().listeners}
        assert (errors["from"], errors["to"]) == (0, 1)
