"""`python -m bench.tiny_batches`: what a batch of three records costs Shoal's rules, step by step, in CPU microseconds.

No socket and no broker: the rest of what Shoal takes in `make demo-small` is sockets, pumps and requests.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.unwrap.appended_log import AppendedLog
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.sequences.own import Stamp
from shoal.protocol.shallow.wrap.wrap import WrapContext, wrap
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.kafka.content.records import orders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCHES, RECORDS = 1_100, 3  # about what a mirror fetches of a partition at most
REPEATS, ROUNDS = 40, 5


def main() -> None:
    frame = _source()
    scanned = scan(frame, 0, len(frame))
    context = _context(min_batch_bytes=0)
    produced = _produced(frame)
    plans = [
        plan for record_set in produced if isinstance(plan := plan_record_set(record_set, 0, len(record_set)), Plan)
    ]
    print(f"{BATCHES} batches of {len(frame) / BATCHES:,.0f} bytes; CPU microseconds for a batch, the best of {ROUNDS}")
    _measure("read the headers", lambda: scan(frame, 0, len(frame)))
    _measure("leave them raw (a stock broker)", lambda: wrap(frame, scanned, _context(min_batch_bytes=4096)))
    _measure("put them into envelopes", lambda: wrap(frame, scanned, context))
    _measure(
        "plan what is in the envelopes",
        lambda: [plan_record_set(record_set, 0, len(record_set)) for record_set in produced],
    )
    _measure("stamp them, and take the answer", partial(_send, plans))


def _source() -> bytearray:
    """Batches as a broker stores them."""
    values = [record.value for record in orders(BATCHES * RECORDS)]
    batches = bytearray()
    for first in range(0, len(values), RECORDS):
        records = [NewRecord(1_700_000_000_000 + first, b"key", value) for value in values[first : first + RECORDS]]
        stamps = {"producer_id": 1000, "producer_epoch": 0, "base_sequence": first}
        batches += encode_batch(records, base_offset=first, codec=Codec.LZ4, leader_epoch=3, **stamps)
    return batches


def _context(min_batch_bytes: int) -> WrapContext:
    return WrapContext(
        cluster="cluster",
        topic="orders",
        partition=0,
        fetch_offset=0,
        flow=1,
        serials=count().__next__,
        min_batch_bytes=min_batch_bytes,
    )


def _produced(frame: bytearray) -> list[bytearray]:
    """The envelopes as a mirror produces them."""
    parts = wrap(frame, scan(frame, 0, len(frame)), _context(min_batch_bytes=0)).parts or []
    whole = b"".join(bytes(part) for part in parts)
    found = scan(whole, 0, len(whole))
    return [bytearray(whole[start:end]) for start, end in zip(found.starts, found.ends, strict=True)]


def _send(plans: Sequence[Plan]) -> None:
    for plan in plans:
        progress = PartitionProgress(TopicPartition("copy", 0), plan, AppendedLog(), sets=True)
        record_set = progress.next_record_set()
        assert record_set is not None
        record_set.stamp = Stamp(1, 0, 0)
        record_set.buffers()
        progress.answered(0, 0)


def _measure(step: str, run: Callable[[], object]) -> None:
    best = min(_seconds(run) for _ in range(ROUNDS))
    print(f"{step:<34} {best / BATCHES * 1e6:6.2f}")


def _seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(REPEATS):
        run()
    return (time.process_time() - began) / REPEATS


if __name__ == "__main__":
    main()
