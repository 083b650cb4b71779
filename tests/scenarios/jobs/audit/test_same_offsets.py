"""The audit of a mirror topic, without Spark: each batch is at its source's offset, once, or is named."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shoal.protocol.capture.index.columns import Direction, Handling, Kind
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.audit.packing import COLUMNS, pack
from shoal.scenarios.jobs.audit.place import audit_place
from tests.scenarios.jobs.captures import one_chunk
from tests.support.captures.synthetic import Array, Chunk
from tests.support.captures.synthetic_mirror import mirrored, same_offsets

BATCHES = 40
CUT = 20  # a batch in the middle
NOON = 1_764_000_000_000_000_000


class Copy:
    """One partition. `source`, `target`: rows by the order of their offsets, to be changed by a test."""

    def __init__(self) -> None:
        chunk = one_chunk(3_000)
        key = chunk.rows["topic"].astype(int) * 1000 + chunk.rows["partition"]
        rows = chunk.rows[key == np.bincount(key).argmax()][:BATCHES]
        assert len(rows) == BATCHES
        copy = same_offsets(mirrored(Chunk(rows=rows, names=chunk.names)))
        self.source, self.target, self._names = copy.fetched.rows, copy.target.rows, copy.both.names
        self.target["time_ns"] = NOON + 2 * np.arange(BATCHES)
        self.others: list[Array] = []

    @property
    def records(self) -> int:
        return int(self.source["record_count"].sum())

    def lose(self, first: int, last: int) -> None:
        """The target's rows of these batches."""
        self.target = np.delete(self.target, range(first, last + 1))

    def again(self, at: int, **different: int) -> None:
        """Another row of the target."""
        self._other(self.target[at], different)

    def another_consumer(self, at: int) -> None:
        """It has fetched this batch, and not the mirror."""
        self._other(self.source[at], {"handling": Handling.PASSED})
        self.source = np.delete(self.source, at)

    def probe(self, at: int, *, before: int, short: int = 0, **different: int) -> None:
        """Shoal asks before it sends the batch `before`, and the log ends `short` of the end of the batch `at`."""
        time = NOON + 2 * before - 1
        end = int(self.source[at]["log_offset"] + self.source[at]["last_offset_delta"]) + 1 - short
        changes = {
            "handling": Handling.OWN,
            "time_ns": time,
            "record_count": 0,
            "last_offset_delta": 0,
            "log_offset": end,
        }
        self._other(self.target[0], {**changes, "source_first": -1, "source_last": -1, **different})

    def _other(self, row: Array, different: dict[str, int]) -> None:
        row = row.copy().reshape(1)
        for name, value in different.items():
            row[name] = value
        self.others.append(row)

    def audit(self, tolerance: int = 0) -> dict[str, Any]:
        decoder = Decoder(chosen(), NameTable(dict(enumerate(self._names, 1))), "00c0ffee")
        rows = decoder.decode(np.concatenate([self.source, self.target, *self.others])).select(COLUMNS)
        packed = pa.Table.from_batches(pack("source", "target", "", None, [rows]))
        key = tuple(packed[name].unique() for name in ("topic", "partition"))
        assert [len(names) for names in key] == [1, 1]
        [place] = audit_place((key[0][0], key[1][0]), packed, tolerance).to_pylist()
        return dict(place)


@pytest.fixture
def copy() -> Copy:
    return Copy()


def states(place: dict[str, Any]) -> list[tuple[str, int]]:
    return [(batch["state"], batch["base_offset"]) for batch in place["batches"]]


def expect(place: dict[str, Any], copy: Copy, *wanted: tuple[str, Array]) -> None:
    """These findings and no other; all others are proven."""
    assert states(place) == [(state, int(row["log_offset"])) for state, row in wanted]
    others = sum(int(row["record_count"]) for _, row in wanted)
    assert place["counts"]["same_offset_records"] == copy.records - others
    assert (place["counts"]["short"], place["counts"]["over"]) == (0, 0)


def test_each_record_is_proven(copy: Copy) -> None:
    place = copy.audit()
    expect(place, copy)
    assert (place["counts"]["wrong_records"], place["counts"]["missing_records"]) == (0, 0)


def test_an_ordinary_copy_is_not_judged_by_offset(copy: Copy) -> None:
    copy.target["handling"] = Handling.UNWRAPPED
    copy.target["log_offset"] += 7
    place = copy.audit()
    assert place["batches"] == []
    assert place["counts"]["same_offset_records"] is None


def test_other_requests_of_shoal_make_no_mirror_topic(copy: Copy) -> None:
    copy.target["handling"] = Handling.UNWRAPPED
    copy.probe(CUT, before=CUT, source_topic=0, source_partition=-1)
    assert copy.audit()["counts"]["same_offset_records"] is None


@pytest.mark.parametrize("moved", [-1, 1])
def test_one_batch_at_another_offset_is_found(copy: Copy, moved: int) -> None:
    copy.target["log_offset"][CUT] += moved
    place = copy.audit()
    expect(place, copy, ("different_offset", copy.source[CUT]))
    assert place["batches"][0]["target_offset"] == copy.source["log_offset"][CUT] + moved
    assert place["counts"]["wrong_records"] == copy.source["record_count"][CUT]


def test_a_copy_that_a_broker_without_the_agent_has_appended_differs_from_its_first_record_on(copy: Copy) -> None:
    copy.target["log_offset"] += 3
    assert {state for state, _ in states(copy.audit())} == {"different_offset"}


def test_a_lost_batch_is_missing(copy: Copy) -> None:
    copy.lose(CUT, CUT)
    place = copy.audit()
    expect(place, copy, ("missing", copy.source[CUT]))
    assert place["counts"]["missing_records"] == copy.source["record_count"][CUT]


def test_a_batch_at_two_offsets_is_doubled(copy: Copy) -> None:
    copy.again(CUT, log_offset=10**9)
    place = copy.audit()
    expect(place, copy, ("doubled", copy.source[CUT]))
    assert place["counts"]["wrong_records"] == copy.source["record_count"][CUT]


def test_a_batch_with_another_number_of_records_is_different(copy: Copy) -> None:
    copy.source["record_count"][CUT] += 1
    expect(copy.audit(), copy, ("different", copy.source[CUT]))


def test_what_the_log_had_already_is_there_once(copy: Copy) -> None:
    for at in range(CUT, CUT + 3):
        copy.again(at)
    expect(copy.audit(), copy)


def test_what_a_fence_has_refused_is_sent_again(copy: Copy) -> None:
    for at, error in ((CUT, ErrorCode.RECORD_LIST_TOO_LARGE), (CUT + 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        copy.again(at, log_offset=-1, error=error)
    expect(copy.audit(), copy)
    copy.target["error"][CUT], copy.target["log_offset"][CUT] = ErrorCode.INVALID_RECORD, -1
    expect(copy.audit(), copy, ("unconfirmed", copy.source[CUT]))


def test_acks_of_nobody_prove_no_offset(copy: Copy) -> None:
    copy.target["acks"][CUT], copy.target["error"][CUT], copy.target["log_offset"][CUT] = 0, -32768, -1
    expect(copy.audit(), copy, ("unconfirmed", copy.source[CUT]))


def test_aborted_batches_and_markers_are_gaps(copy: Copy) -> None:
    copy.source["handling"][CUT] = Handling.ABORTED
    copy.source["attributes"][CUT + 1] |= 0x30
    left_out = int(copy.source["record_count"][CUT : CUT + 2].sum())
    copy.lose(CUT, CUT + 1)
    place = copy.audit()
    assert (place["batches"], place["counts"]["missing_records"]) == ([], 0)
    assert place["counts"]["same_offset_records"] == place["counts"]["records"] == copy.records - left_out
    assert place["counts"]["offsets_not_seen"] == 0


def test_an_aborted_batch_at_the_target_is_found(copy: Copy) -> None:
    copy.source["handling"][CUT] = Handling.ABORTED
    place = copy.audit()
    expect(place, copy, ("aborted", copy.source[CUT]))
    assert place["counts"]["wrong_records"] == copy.source["record_count"][CUT]


def test_an_aborted_batch_that_another_consumer_has_fetched_is_not_expected(copy: Copy) -> None:
    aborted = copy.source[CUT].copy()
    copy.another_consumer(CUT)
    aborted["handling"] = Handling.ABORTED
    copy.source = np.insert(copy.source, CUT, aborted)
    copy.lose(CUT, CUT)
    assert copy.audit()["batches"] == []


def test_empty_batches_over_gaps_are_no_copies(copy: Copy) -> None:
    filler = {"record_count": 0, "handling": Handling.RAW, "source_topic": 0, "source_partition": -1}
    copy.again(CUT, **filler, source_first=-1, source_last=-1, log_offset=10**9)
    expect(copy.audit(), copy)


def test_a_record_that_a_broker_without_the_agent_has_stored_is_no_copy(copy: Copy) -> None:
    locator = {"record_count": 1, "handling": Handling.RAW, "source_topic": 0, "source_partition": -1}
    copy.again(CUT, **locator, source_first=-1, source_last=-1, log_offset=10**9)
    expect(copy.audit(), copy)


def test_answers_that_were_lost_with_shoal_are_known_by_the_end_of_the_log(copy: Copy) -> None:
    copy.probe(CUT, before=CUT)  # which is sent again
    lost = [("below_end", copy.source[at]) for at in range(CUT - 3, CUT)]
    copy.lose(CUT - 3, CUT - 1)
    place = copy.audit()
    expect(place, copy, *lost)
    assert place["counts"]["below_end_records"] == sum(int(row["record_count"]) for _, row in lost)
    assert (place["counts"]["missing_records"], place["counts"]["wrong_records"]) == (0, 0)


def test_the_mirror_may_send_several_again(copy: Copy) -> None:
    copy.probe(CUT, before=CUT - 2)
    lost = [("below_end", copy.source[at]) for at in range(CUT - 5, CUT - 2)]
    copy.lose(CUT - 5, CUT - 3)
    expect(copy.audit(), copy, *lost)


def test_a_batch_with_holes_is_not_sent_again(copy: Copy) -> None:
    copy.probe(CUT, before=CUT + 1)
    lost = [("below_end", copy.source[at]) for at in range(CUT - 3, CUT + 1)]
    copy.lose(CUT - 3, CUT)
    expect(copy.audit(), copy, *lost)


def test_a_request_whose_answer_was_lost_is_below_the_end(copy: Copy) -> None:
    copy.probe(CUT, before=CUT)
    copy.target["log_offset"][CUT - 1], copy.target["error"][CUT - 1] = -1, -32768
    expect(copy.audit(), copy, ("below_end", copy.source[CUT - 1]))


def test_without_the_answer_to_a_probe_they_are_missing(copy: Copy) -> None:
    copy.lose(CUT - 3, CUT - 1)
    assert [state for state, _ in states(copy.audit())] == ["missing"] * 3


def test_a_probe_excuses_nothing_beyond_the_end(copy: Copy) -> None:
    copy.probe(CUT, before=CUT + 1)
    copy.lose(CUT + 1, CUT + 2)
    assert [state for state, _ in states(copy.audit())] == ["missing"] * 2


def test_a_log_that_ends_within_a_batch_does_not_have_it(copy: Copy) -> None:
    copy.probe(CUT, before=CUT + 1, short=1)
    lost = copy.source[CUT - 1 : CUT + 1]
    copy.lose(CUT - 1, CUT)
    expect(copy.audit(), copy, ("below_end", lost[0]), ("missing", lost[1]))


@pytest.mark.parametrize("behind", range(1, 4))
def test_a_probe_excuses_nothing_if_the_answer_for_a_later_batch_came_before_it(copy: Copy, behind: int) -> None:
    copy.probe(CUT, before=CUT + 1)
    copy.again(CUT, time_ns=NOON + 2 * CUT + 1)  # for the sake of the probe
    copy.lose(CUT - behind, CUT - behind)
    expect(copy.audit(), copy, ("missing", copy.source[CUT - behind]))


def test_a_batch_that_only_others_have_fetched_was_passed_over(copy: Copy) -> None:
    lost = copy.source[CUT].copy()
    copy.another_consumer(CUT)
    copy.lose(CUT, CUT)
    place = copy.audit()
    assert states(place) == [("missing", int(lost["log_offset"]))]


@pytest.mark.parametrize("at", [0, BATCHES - 1])
def test_what_others_fetch_before_or_after_the_mirror_is_not_expected(copy: Copy, at: int) -> None:
    copy.another_consumer(at)
    copy.lose(at, at)
    expect(copy.audit(), copy)


def test_the_last_batch_may_be_on_its_way(copy: Copy) -> None:
    copy.lose(BATCHES - 1, BATCHES - 1)
    expect(copy.audit(tolerance=1), copy, ("pending", copy.source[-1]))
    assert [state for state, _ in states(copy.audit())] == ["missing"]


def test_a_copy_of_which_only_the_end_is_known_is_a_mirror_topic(copy: Copy) -> None:
    copy.probe(BATCHES - 1, before=BATCHES)
    copy.lose(0, BATCHES - 1)
    place = copy.audit()
    assert {state for state, _ in states(place)} == {"below_end"}
    assert place["counts"]["below_end_records"] == copy.records


def test_rows_of_the_synthetic_copy_are_those_of_fenced_batches(copy: Copy) -> None:
    assert set(copy.target["direction"]) == {Direction.PRODUCED}
    assert set(copy.target["kind"]) == {Kind.BATCH}
    assert np.array_equal(copy.target["log_offset"], copy.source["log_offset"])
