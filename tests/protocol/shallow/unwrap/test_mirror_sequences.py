"""The rules of the sequence map, one by one; and its memory, which may be cut off at any byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.unwrap.sequences.mirror import Misplaced, OuterStamp, Placed, SequenceMap
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE, Lineage, Outer, SlotTable, slot_key
from shoal.protocol.wire.types import TopicPartition

TARGET, OTHER = TopicPartition("A.orders", 3), TopicPartition("A.orders", 4)
LAST_SEQUENCE = (1 << 31) - 1
OUT_OF_ORDER, STALE_EPOCH = 45, 47


def stamp(base: int, records: int = 1, *, epoch: int = 0, crc: int = 1, producer_id: int = 7) -> OuterStamp:
    return OuterStamp(producer_id, epoch, base, records, True, (crc, 100))


def memory(slots: int = 8) -> bytearray:
    return bytearray(slots * SLOT_SIZE)


def a_map(slots: int = 8) -> SequenceMap:
    return SequenceMap(memory(slots))


def take(sequences: SequenceMap, base: int, inner: int, *, target: TopicPartition = TARGET, **fields: int) -> Placed:
    """An outer record for `inner` records, appended whole."""
    one = stamp(base, **fields)
    placed = sequences.place(target, one, inner)
    assert isinstance(placed, Placed)
    sequences.appended(target, one, inner, 1000 + base)
    return placed


def refused(answer: object) -> int:
    assert isinstance(answer, Misplaced)
    return answer.error_code


def test_numbers_are_the_mirrors_own_until_the_first_envelope() -> None:
    sequences = a_map()
    assert take(sequences, 0, 40, records=40).first == 0
    assert take(sequences, 40, 2, records=2).first == 40
    assert take(sequences, 42, 100).first == 42
    assert take(sequences, 43, 10).first == 142


def test_a_batch_without_envelopes_behind_one_is_renumbered() -> None:
    sequences = a_map()
    take(sequences, 0, 100)
    assert sequences.place(TARGET, stamp(1, 5), 5) == Placed(100)


def test_another_partition_counts_for_itself() -> None:
    sequences = a_map()
    take(sequences, 0, 100)
    assert take(sequences, 0, 5, target=OTHER, records=5).first == 0
    assert take(sequences, 5, 10, target=OTHER).first == 5


def test_a_new_epoch_begins_at_0() -> None:
    sequences = a_map()
    take(sequences, 0, 100)
    assert refused(sequences.place(TARGET, stamp(1, epoch=1), 10)) == OUT_OF_ORDER
    assert take(sequences, 0, 10, epoch=1).first == 0
    assert refused(sequences.place(TARGET, stamp(1), 10)) == STALE_EPOCH


def test_what_is_not_known_must_begin_at_0() -> None:
    """The broker may remember inner records 10..19 by now, and outer records 10..19 be others: it would drop them."""
    assert refused(a_map().place(TARGET, stamp(10, 10), 10)) == OUT_OF_ORDER


def test_a_retry_gets_its_numbers_again_and_goes_on_where_it_was() -> None:
    sequences = a_map()
    take(sequences, 0, 100)
    one = stamp(1)
    assert sequences.place(TARGET, one, 30) == Placed(100)
    sequences.appended(TARGET, one, 20, 555)
    assert sequences.place(TARGET, one, 30) == Placed(100, 20, 555, again=True)


def test_the_last_five_outer_batches_are_known() -> None:
    sequences = a_map()
    for base in range(6):
        take(sequences, base, 10)
    assert sequences.place(TARGET, stamp(1), 10) == Placed(10, 10, 1001, again=True)
    assert refused(sequences.place(TARGET, stamp(0), 10)) == OUT_OF_ORDER


def test_other_bytes_with_a_known_number_are_no_retry() -> None:
    sequences = a_map()
    take(sequences, 0, 10)
    take(sequences, 1, 10)
    assert refused(sequences.place(TARGET, stamp(1, crc=2), 10)) == OUT_OF_ORDER


@pytest.mark.parametrize("inner", [1, 10])
def test_nothing_goes_before_all_of_the_batch_before_it(inner: int) -> None:
    sequences = a_map()
    one = stamp(0)
    sequences.place(TARGET, one, inner)
    assert refused(sequences.place(TARGET, stamp(1), 10)) == OUT_OF_ORDER
    sequences.appended(TARGET, one, inner, 5)
    assert sequences.place(TARGET, stamp(1), 10) == Placed(inner)


def test_a_gap_is_out_of_order() -> None:
    sequences = a_map()
    take(sequences, 0, 10)
    assert refused(sequences.place(TARGET, stamp(2), 10)) == OUT_OF_ORDER


def test_what_was_appended_before_the_first_envelope_is_known_behind_it() -> None:
    """The broker remembers five batches: after an envelope of many it would call this one out of order."""
    sequences = a_map()
    take(sequences, 0, 3, records=3)
    take(sequences, 3, 100)
    assert sequences.place(TARGET, stamp(0, 3), 3) == Placed(0, 3, 1000, again=True)
    assert refused(sequences.place(TARGET, stamp(0, 3, crc=2), 3)) == OUT_OF_ORDER, "that is another batch"
    for base in range(4, 9):
        take(sequences, base, 10)
    assert refused(sequences.place(TARGET, stamp(0, 3), 3)) == OUT_OF_ORDER, "it is in flight no more"


def test_both_sides_go_round_by_themselves() -> None:
    sequences = a_map()
    take(sequences, 0, LAST_SEQUENCE - 10, records=LAST_SEQUENCE - 10)
    assert take(sequences, LAST_SEQUENCE - 10, 8).first == LAST_SEQUENCE - 10
    assert take(sequences, LAST_SEQUENCE - 9, 6).first == LAST_SEQUENCE - 2
    assert take(sequences, LAST_SEQUENCE - 8, 1, records=9).first == 3, "sequence 2^31 - 1 was the third of the six"
    assert take(sequences, 0, 1, crc=2).first == 4


def test_the_least_recently_used_is_forgotten() -> None:
    sequences = a_map(slots=2)
    for producer_id in (1, 2):
        take(sequences, 0, 10, producer_id=producer_id)
    assert sequences.place(TARGET, stamp(0, producer_id=1), 10) == Placed(0, 10, 1000, again=True)
    take(sequences, 0, 10, producer_id=3)
    assert take(sequences, 1, 10, producer_id=1).first == 10
    assert refused(sequences.place(TARGET, stamp(1, producer_id=2), 10)) == OUT_OF_ORDER
    assert (sequences.statistics().known, sequences.statistics().forgotten, sequences.statistics().refused) == (2, 1, 1)


# Its memory


def test_another_process_finds_everything() -> None:
    slots = memory()
    sequences = SequenceMap(slots)
    take(sequences, 0, 10)
    one = stamp(1)
    sequences.place(TARGET, one, 30)
    sequences.appended(TARGET, one, 20, 555)
    assert SequenceMap(slots).place(TARGET, one, 30) == Placed(10, 20, 555, again=True)


def test_the_least_recently_written_are_forgotten_after_a_restart() -> None:
    slots = memory(2)
    first = SequenceMap(slots)
    for producer_id in (1, 2, 3):
        take(first, 0, 10, producer_id=producer_id)
    again = SequenceMap(slots)
    take(again, 0, 10, producer_id=4)
    assert take(again, 1, 10, producer_id=3).first == 10
    assert refused(again.place(TARGET, stamp(1, producer_id=2), 10)) == OUT_OF_ORDER


lineages = st.builds(
    Lineage,
    epoch=st.integers(0, 32767),
    window=st.lists(
        st.builds(
            Outer,
            *[st.integers(0, LAST_SEQUENCE)] * 5,
            st.integers(-1, 1 << 60),
            st.integers(0, (1 << 32) - 1),
            st.integers(0, LAST_SEQUENCE),
        ),
        max_size=5,
    ).map(tuple),
)


@given(st.lists(st.tuples(st.integers(0, 2), lineages), min_size=1, max_size=12), st.integers(0, 256))
def test_a_write_that_was_cut_off_leaves_what_was_before(writes: list[tuple[int, Lineage]], cut: int) -> None:
    slots = memory(3)
    table, known = SlotTable(slots), dict[bytes, Lineage]()
    assert table.load() == []
    keys = [slot_key(number, TARGET) for number in range(3)]
    for number, lineage in writes[:-1]:
        table.write(keys[number], lineage)
        known[keys[number]] = lineage
    before = bytes(slots)
    table.write(keys[writes[-1][0]], writes[-1][1])
    changed = [at for at in range(len(slots)) if slots[at] != before[at]]
    start = changed[0] // 256 * 256
    torn = bytearray(before)
    torn[start : start + cut] = slots[start : start + cut]
    after = {**known, keys[writes[-1][0]]: writes[-1][1]}
    assert dict(SlotTable(torn).load()) in (known, after)
    assert dict(SlotTable(slots).load()) == after


def test_rubbish_is_no_map() -> None:
    assert SlotTable(bytearray(b"\xff" * 4 * SLOT_SIZE)).load() == []
