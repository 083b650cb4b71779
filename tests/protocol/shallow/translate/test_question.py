"""The range map and its answers, against a naive model: a list of what a mirror has appended, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.translate.align import Aligned, Seen
from shoal.protocol.shallow.translate.offset_map import OffsetMap, SourcePartition
from shoal.protocol.shallow.translate.question import Known, Why
from shoal.protocol.wire.types import TopicPartition

SOURCE = SourcePartition("cluster", "orders", 0)
TARGET = TopicPartition("A.orders", 0)
FOREIGN = -1


@dataclass
class Mirror:
    """Copies the source's offsets in order; `copies`: the source offset of each target offset."""

    source: list[int]
    known: OffsetMap = field(default_factory=OffsetMap)
    copies: list[int] = field(default_factory=list)
    at: int = 0  # number of the next record
    furthest: int = 0

    def copy(self, records: int, *, raw: bool) -> None:
        taken = self.source[self.at : self.at + records]
        self.at += len(taken)
        if not raw:
            for first, run in runs(taken):
                place = len(self.copies) + first
                self.known.add(TARGET, SOURCE, run[0], place, len(run))
        self.copies += taken
        self.furthest = max(self.furthest, self.at)

    def go_back(self, records: int) -> None:
        self.at = max(self.at - records, 0)

    def foreign(self, records: int) -> None:
        """A marker of a transaction, or another producer's."""
        self.copies += [FOREIGN] * records

    def known_ranges(self) -> Known:
        return Known([one for one in self.known.ranges(TARGET) if one.source == SOURCE])

    def last(self, offset: int) -> int | None:
        return max((place for place, copy in enumerate(self.copies) if copy == offset), default=None)

    def best(self, offset: int) -> int:
        """The last place that misses nothing from this source offset on."""
        lasts = [self.last(copy) for copy in set(self.copies) if copy >= offset]
        return min((place for place in lasts if place is not None), default=len(self.copies))


def runs(offsets: list[int]) -> list[tuple[int, list[int]]]:
    """Without holes: (number of the first one, offsets)."""
    found = list[tuple[int, list[int]]]()
    for number, offset in enumerate(offsets):
        if found and found[-1][1][-1] + 1 == offset:
            found[-1][1].append(offset)
        else:
            found.append((number, [offset]))
    return found


steps = st.one_of(
    st.tuples(st.just("copy"), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("back"), st.integers(1, 15), st.just(False)),
    st.tuples(st.just("foreign"), st.integers(1, 2), st.just(False)),
)


@st.composite
def mirrors(draw: st.DrawFn) -> Mirror:
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 5]), min_size=5, max_size=40))
    mirror = Mirror([sum(gaps[: number + 1]) - 1 for number in range(len(gaps))])
    for kind, records, raw in draw(st.lists(steps, max_size=20)):
        match kind:
            case "copy":
                mirror.copy(records, raw=raw)
            case "back":
                mirror.go_back(records)
            case _:
                mirror.foreign(records)
    mirror.copy(mirror.furthest - mirror.at, raw=draw(st.booleans()))  # what it has gone back for is copied again
    return mirror


@given(mirrors())
def test_an_exact_answer_is_the_record_and_bounds_hold(mirror: Mirror) -> None:
    known = mirror.known_ranges()
    for offset in range(max(mirror.source) + 3):
        answer, best = known.to_target(offset), mirror.best(offset)
        assert answer.low <= best, "it misses a record"
        if answer.why is Why.APPENDED:
            assert mirror.copies[answer.low] == offset
        elif answer.why is Why.HOLE:
            following = next((copy for copy in mirror.copies[answer.low :] if copy != FOREIGN), None)
            assert following in (None, min((copy for copy in mirror.copies if copy >= offset), default=None))
        elif answer.high is not None and offset in mirror.copies:
            assert offset in mirror.copies[answer.low : answer.high]


@given(mirrors())
def test_to_the_source(mirror: Mirror) -> None:
    known = mirror.known_ranges()
    for place in range(len(mirror.copies) + 2):
        answer = known.to_source(place)
        consumed, following = set(mirror.copies[:place]), [copy for copy in mirror.copies[place:] if copy != FOREIGN]
        if answer.why.is_exact:
            assert mirror.copies[place] == answer.low
        new = [one for one in following if one not in consumed]
        assert not new or answer.low <= min(new), "it misses a record that was not consumed before"


@given(mirrors())
def test_reading_the_gap_makes_every_answer_exact(mirror: Mirror) -> None:
    """Unless the files alone show that some records are not known to be copied again."""
    known = mirror.known_ranges()
    for offset in range(max(mirror.source) + 3):
        answer = known.to_target(offset)
        if answer.why.is_exact or answer.why is Why.AGAIN:
            continue
        gap = known.target_gap(offset)
        end = len(mirror.copies) if gap.target_end is None else gap.target_end
        ours = [
            Seen(one, b"%d" % one)
            for one in mirror.source
            if one >= gap.source_first and (gap.source_end is None or one < gap.source_end)
        ]
        theirs = [Seen(place, b"%d" % mirror.copies[place]) for place in range(gap.target_first, end)]
        found = Aligned(gap, ours, theirs, end).copy_of(offset)
        assert found is not None
        assert found <= mirror.best(offset)
        if offset in mirror.copies:
            assert mirror.copies[found] == offset


ranges = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 60),
        st.integers(1, 12),
        st.sampled_from([SOURCE, SOURCE._replace(topic="b")]),
    ),
    max_size=25,
)


@given(ranges)
def test_a_target_offset_has_what_was_appended_there_last(added: list[tuple[int, int, int, SourcePartition]]) -> None:
    known, model = OffsetMap(), dict[int, tuple[SourcePartition, int]]()
    for target_first, source_first, records, source in added:
        new = {target_first + number: (source, source_first + number) for number in range(records)}
        if any(model.get(place, copy) != copy for place, copy in new.items()):  # the log was cut off
            model = {place: copy for place, copy in model.items() if place < target_first}
        model |= new
        known.add(TARGET, source, source_first, target_first, records)
    found = {
        one.target_first + number: (one.source, one.source_first + number)
        for one in known.ranges(TARGET)
        for number in range(one.records)
    }
    assert found == model
    assert len(known) == len(known.ranges(TARGET))
    for before, behind in zip(known.ranges(TARGET), known.ranges(TARGET)[1:], strict=False):
        assert before.target_end <= behind.target_first
        assert not (before.target_end == behind.target_first and before.same_as(behind))
