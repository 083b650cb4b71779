"""A record set judged as a whole, against the rules asked batch by batch."""

from collections.abc import Callable
from struct import Struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL, body_crc, read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.records.scan import ScannedSet, scan
from shoal.protocol.shallow.wrap.eligible import Measure, are_plain
from shoal.protocol.shallow.wrap.runs import Found, WrapContext, find_rows, rows_by_rules
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.protocol.shallow.strategies import record_sets
from tests.support.batches import damaged
from tests.support.shallow.world import context, some_batch

DENSE = record_sets(kinds=("dense",))
LOG = b"".join(some_batch(base) for base in range(0, 60, 3))


def scanned(log: bytes) -> ScannedSet:
    found = scan(log, 0, len(log))
    if not found.is_readable:
        raise RemoteProtocolError("unreadable")
    return found


def outcome(find: Callable[[], Found]) -> object:
    """The result as comparable values."""
    try:
        rows, *counts = find()
    except RemoteProtocolError:
        return "unreadable"
    return [(row.start, row.end, row.is_run, row.starts, row.headers) for row in rows], counts


def by_rules(log: bytes, how: WrapContext) -> Found:
    """By the rules only: they do not check checksums, so they are applied again without damaged batches."""
    found = rows_by_rules(scanned(log), how, ())
    damage = [
        at
        for row in found.rows
        if row.is_run
        for at, end, header in zip(row.starts, row.ends, row.headers, strict=True)
        if body_crc(log, at, end) != header[4]
    ]
    return rows_by_rules(scanned(log), how, damage) if damage else found


def both(log: bytes, **changes: object) -> tuple[object, object]:
    """As it is done, and by the rules alone."""
    how = context(**changes)
    return outcome(lambda: find_rows(log, scanned(log), how)), outcome(lambda: by_rules(log, how))


@given(
    record_sets() | DENSE,
    st.integers(0, 40),
    st.integers(0, 60),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1000, 2000, 1 << 19]),
)
def test_it_is_what_the_rules_say(
    log: bytes, cut: int, fetch_offset: int, first_raw: bool, read_committed: bool, run_limit: int
) -> None:
    seen, ruled = both(
        log[: len(log) - cut],
        fetch_offset=fetch_offset,
        first_raw=first_raw,
        read_committed=read_committed,
        run_limit=run_limit,
    )
    assert seen == ruled


@given(DENSE.filter(bool), st.data())
def test_a_changed_header_is_judged_alike(log: bytes, data: st.DataObject) -> None:
    """Offsets, lengths, formats, attributes, counts, checksums."""
    span = data.draw(st.sampled_from(split(log, 0, len(log)).spans))
    where = span.start + data.draw(st.sampled_from([*range(13), 16, 17, 21, 22, 23, 24, 25, 26, *range(57, 61)]))
    broken = bytearray(log)
    broken[where] = data.draw(st.integers(0, 255))
    seen, ruled = both(bytes(broken))
    assert seen == ruled


def changed(log: bytes, **fields: int) -> bytes:
    """With other fields in the header of its last batch, and a checksum that fits."""
    *_, last = split(LOG, 0, len(log)).spans
    header = read_batch_header(log, last.start, last.end)._replace(**fields)
    batch = bytearray(Struct(">qiibIhiqqqhii").pack(*header) + log[last.start + HEADER_SIZE : last.end])
    batch[17:21] = body_crc(batch, 0, len(batch)).to_bytes(4, "big")
    return log[: last.start] + batch


ODD = {
    "a count of none": changed(LOG, record_count=0, last_offset_delta=-1),
    "a count below none": changed(LOG, record_count=-1, last_offset_delta=-2),
    "the last offset there is": changed(LOG, base_offset=(1 << 63) - 3),
    "the last offset but one": changed(LOG, base_offset=(1 << 63) - 4),
    "no offset": changed(LOG, base_offset=-1),
    "a hole": changed(LOG, last_offset_delta=3),
    "a tail that is no entry": LOG + bytes(16) + b"\x07" + bytes(20),
    "a tail that is one": LOG + bytes(7) + b"\x50" + bytes(3) + b"\x0e" + bytes(14),
    "the beginning of an entry": LOG + LOG[:60],
    "less than that": LOG + LOG[:16],
    "the oldest format": bytes(7) + b"\x50" + bytes(3) + b"\x0e" + bytes(14),
    "nothing": b"",
}


@pytest.mark.parametrize("log", ODD.values(), ids=ODD.keys())
def test_what_is_odd_is_judged_alike(log: bytes) -> None:
    seen, ruled = both(log)
    assert seen == ruled


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("batches", [1, 3])
def test_runs_are_as_long_as_the_limit_allows(off: int, batches: int) -> None:
    spare = 1000 - context(run_limit=1000).payload_limit
    how = {"run_limit": spare + split(LOG, 0, len(LOG)).spans[batches - 1].end + off}
    seen, ruled = both(LOG, **how)
    assert seen == ruled
    first, *_ = find_rows(LOG, scanned(LOG), context(**how)).rows
    assert len(first.starts) == (batches if off >= 0 else batches - 1)


@given(DENSE.filter(bool), st.data())
@example(LOG, None)
def test_a_dense_log_is_seen_at_a_glance(log: bytes, data: st.DataObject | None) -> None:
    """Otherwise all tests above would compare the rules with themselves."""
    first = split(log, 0, len(log)).spans[0].base_offset
    least = data.draw(st.integers(0, first)) if data else 0
    seen = scanned(log)
    assert are_plain(seen, Measure(least, 1 << 19), committed=True)
    assert list(zip(seen.starts, seen.ends, strict=True)) == [
        (span.start, span.end) for span in split(log, 0, len(log)).spans
    ]


def test_transactions_are_judged_by_their_reader() -> None:
    log, measure = LOG + some_batch(60, producer_id=1, producer_epoch=0, attributes=TRANSACTIONAL), Measure(0, 1 << 19)
    assert are_plain(scanned(log), measure, committed=False)
    assert not are_plain(scanned(log), measure, committed=True)


def test_a_damaged_batch_is_left_out_of_a_glance() -> None:
    broken = damaged(LOG, len(LOG) - 1)
    seen, ruled = both(broken)
    assert seen == ruled
    *_, last = split(LOG, 0, len(LOG)).spans
    rows = find_rows(broken, scanned(broken), context()).rows
    assert [(row.start, row.end, row.is_run) for row in rows] == [(0, last.start, True), (last.start, len(LOG), False)]
