"""What one mirror has copied of one source partition.

    mirrored     every record below it is appended at the target (in_transit.py)
    safe         every record below it is mirrored, in the hands of the running consumer, or reported as a gap
    given        the mirror was given records up to here, perhaps in an earlier life
    asked        the consumer's latest fetch offset

A consumer that asks for an offset above `safe` passes over what is between. The kind of the gap is known when the
broker has answered: the log starts behind `safe`, or it does not. Until a partition has been answered once, nothing is
known of it, so a mirror that starts anew has no gaps.

A *life* is that of a consumer. A new one continues where the mirror had committed: what the former one was given, and
had not produced, is lost with it. So in a new life, `safe` is the fetch offset, or `mirrored` if that is higher (it
reads some records again). A fetch offset above `given` is a gap, because no mirror that runs through Shoal commits it.

Two consumers may read at once for a while: a worker that stood still does not know that its tasks are with another one.
So an answer to another request than the latest one counts, too: what it has was given.

In one life, a consumer that asks below `safe` again may have that already: if it changes between the leader and a
follower (KIP-392), it asks both at once, and takes the first answer. So `safe` stays until it gets the records again,
or is reset because they are gone.

The number of records is a difference of offsets, as in all of Kafka's tools: compacted and transactional topics have
fewer records than offsets.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shoal.protocol.shallow.monitor.gap import Gap, GapKind
from shoal.protocol.shallow.monitor.in_transit import InTransit, Span
from shoal.protocol.shallow.monitor.source_log import SourceLog

__all__ = ["Lag", "PartitionCopy", "Position"]

_SETTLE_SECONDS = 30.0  # a mirror's producer sends within linger.ms, or at once after a broker's restart
_DECAY_OFFSETS = 100_000  # the average size is that of about as many records
_STALE_SECONDS = 15.0  # an end that was reported before is not the end
_MAX_REPORTED = 16  # gaps behind records that are in transit
_UNKNOWN = -1


class Lag(NamedTuple):
    """`records`: offsets that are not mirrored. `size`: their bytes in the log, by the average of those before.

    `seconds`: how long the oldest of them has been in the log, as far as Shoal has seen (it asks every 2 s).
    """

    records: int
    size: float
    seconds: float


class Position(NamedTuple):
    """What must survive a restart of Shoal; `size` is the average bytes per offset."""

    mirrored: int
    given: int
    end: int
    size: float


class PartitionCopy:
    """`counts`: plain records of this partition arrive at the target listener.

    Otherwise (the mirror's producer is not known, or the listener is in another process) `mirrored` is the fetch
    offset: records that the mirror has taken count as mirrored.

    `doubtful`: the log may have lost records, or be another one: Shoal must ask.

    `kept`: of an earlier process; not `is_exact`: the mirror may have been given more since.
    """

    __slots__ = (
        "_bytes",
        "_is_exact",
        "_jump",
        "_moved_at",
        "_offsets",
        "_reported",
        "_transit",
        "asked",
        "counts",
        "doubtful",
        "given",
        "life",
        "log",
        "next_offset",
        "safe",
        "seen_at",
    )

    def __init__(self, kept: Position | None = None, *, is_exact: bool = True) -> None:
        self._is_exact = is_exact
        self._transit = InTransit(kept.mirrored if kept else _UNKNOWN)
        self.given = kept.given if kept else _UNKNOWN
        self.safe = self.given
        self.asked = self.next_offset = _UNKNOWN
        self.life = 0
        self.counts = False
        self.doubtful = False
        self.log = SourceLog()
        self.seen_at = float("-inf")
        self._jump: int | None = None
        self._reported: list[tuple[int, int]] = []
        self._moved_at = float("-inf")
        self._bytes = kept.size if kept else 0.0
        self._offsets = 1.0 if kept and kept.size else 0.0
        if kept:
            self.log.end = kept.end

    @property
    def is_known(self) -> bool:
        return self.given != _UNKNOWN

    @property
    def mirrored(self) -> int:
        """-1: unknown."""
        known = self._transit.mirrored
        return known if self.counts or self.asked > self.safe else max(known, self.asked)

    @property
    def position(self) -> Position:
        average = self._bytes / self._offsets if self._offsets else 0.0
        return Position(self._transit.mirrored if self.counts else self.mirrored, self.given, self.log.end, average)

    # -- fetch side --------------------------------------------------------------------------------------------------

    def ask(self, offset: int, life: int, now: float) -> None:
        """The consumer requests records from `offset` on."""
        self.seen_at = now
        if offset == self.next_offset and life == self.life:
            self.asked = offset
            return
        is_new = life != self.life
        if self.is_known and not is_new and offset < self.safe:
            self.asked, self._jump = offset, None
            return
        self.asked = self.next_offset = offset
        self.life = life
        if not self.is_known:
            return
        if not self._is_exact:
            self._is_exact = True
            if offset > self.given:
                self.given = offset
                self._transit.clear(offset)
        if offset > self.given:
            self.safe = max(self.safe, self.given) if is_new else self.safe
        elif is_new:  # it reads records again
            self.safe = max(offset, self._transit.mirrored)
        self._transit.rewind(offset)
        self._jump = self.safe if offset > self.safe else None

    def refuse(self, *, is_out_of_range: bool = False) -> None:
        """The broker answered with an error, so the consumer goes on elsewhere, or asks again.

        `is_out_of_range`: it is reset, and does not have what it has asked for again.
        """
        if is_out_of_range and self.is_known and self.asked < self.safe:
            self.safe = max(self.asked, self._transit.mirrored)
            self._transit.rewind(self.asked)
        self._jump = None
        self.next_offset = _UNKNOWN
        self.doubtful = True

    def answer(self, start: int, end: int, now: float) -> list[Gap]:
        """The broker has answered the latest request, perhaps without records -> what the mirror passes over.

        That is one gap, unless some of it was reported before (the mirror has crashed, and is behind that again).
        """
        gaps = list[Gap]()
        if not self.is_known:
            self.given = self.safe = self.asked
            self._transit.clear(self.asked)
        elif self._jump is not None:
            kind = GapKind.DELETED if start > self._jump else GapKind.SKIPPED
            gaps = [Gap(kind, *offsets) for offsets in self._unreported(self._jump, self.asked)]
            self._pass_over(self._jump)
        self.doubtful = self.doubtful or end < self.given
        self.log.observe(start, end, self.mirrored, now)
        return gaps

    def _unreported(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of a range that no gap has had; they have from now on."""
        parts = list[tuple[int, int]]()
        for known_first, known_end in sorted(self._reported):
            if known_end <= first:
                continue
            if known_first > first:
                parts.append((first, min(known_first, end)))
            first = max(first, known_end)
            if first >= end:
                break
        if first < end:
            parts.append((first, end))
        waiting = [offsets for offsets in self._reported if offsets[1] > self._transit.mirrored]
        self._reported = [*waiting, *parts][-_MAX_REPORTED:]
        return parts

    def _pass_over(self, first: int) -> None:
        """Records from `first` up to `asked` never arrive."""
        self._jump = None
        self._transit.rewind(first)
        start = max(self._transit.end, first) if self._transit else first
        if not self._transit:
            self._transit.mirrored = max(self._transit.mirrored, start)
        self._transit.give(start, [Span(self.asked, 0)])
        self.safe = self.asked
        self.given = max(self.given, self.asked)

    def give(self, spans: Sequence[Span], size: int, now: float) -> None:
        """The answer has these spans, adjacent from the fetch offset on, of `size` bytes in the log (0: unknown)."""
        if not spans:
            return
        start, end = self.asked, spans[-1].end
        if end <= start:
            return
        if self.next_offset != start:
            self._transit.rewind(start)
        self._transit.give(start, spans)
        self.next_offset = end
        self.given = max(self.given, end)
        if start <= self.safe:
            self.safe = max(self.safe, end)
        self._moved_at = now
        if size:
            self._bytes += size
            self._offsets += end - start
        if self._offsets > _DECAY_OFFSETS:
            self._bytes /= 2
            self._offsets /= 2

    def give_also(self, start: int, end: int) -> None:
        """The answer to another request than the latest one has these offsets."""
        if self.is_known and start <= self.given:
            self.given = max(self.given, end)
            if start <= self.safe:
                self.safe = max(self.safe, end)

    # -- produce side ------------------------------------------------------------------------------------------------

    def appended(self, offset: int, now: float) -> None:
        """An envelope with the records before `offset` is appended."""
        self.counts = True
        self._moved_at = now
        if offset <= self.given:
            self._transit.appended(offset)

    def arrived(self, records: int, now: float) -> None:
        self._moved_at = now
        self._transit.arrived(records)

    def settle(self, now: float) -> None:
        """Call it about every second, while the mirror's producer is connected."""
        if not self._transit or now - self._moved_at < _SETTLE_SECONDS:
            return
        if self.asked >= self._transit.end and not self._transit.has_envelopes:
            self._transit.settle(self._transit.end)

    # -- Shoal's own questions ---------------------------------------------------------------------------------------

    def observe(self, start: int, end: int, *, given: int, asked_at: float, now: float) -> Gap | None:
        """The leader says so, by ListOffsets v5+, to a question at `asked_at`; `given` as it was then.

        Such an answer is never behind the high watermark that consumers have seen, so a log that ends before what was
        given has lost it.
        """
        gap, self.doubtful = None, False
        if given != _UNKNOWN and end < given:
            gap = Gap(GapKind.TRUNCATED, end, given)
            self.given = min(self.given, end)
            self._reported = []
            self.safe = min(self.safe, end)
            self._transit.clear(min(self._transit.mirrored, end))
            self.asked = self.next_offset = min(self.asked, end)
            self.log.restart(start)
        self.log.observe(start, end, self.mirrored, now, is_certain=self.log.observed_at <= asked_at)
        return gap

    def make_anew(self) -> Gap | None:
        """The topic was deleted and created again -> what was not mirrored of the old one; None: it was unknown.

        A consumer that knows topics by name may have been reset, and have read some of the new one.
        """
        gap, begun = None, 0
        if self.is_known:
            first = max(self.mirrored, 0)
            gap = Gap(GapKind.RECREATED, first, max(self.log.end, self.given, first))
            begun = max(self.next_offset, 0) if self.asked < self.given else 0
            self.given = self.safe = begun
        self._transit.clear(begun if gap else _UNKNOWN)
        self.asked = self.next_offset = _UNKNOWN
        self._jump = None
        self._reported = []
        self.log.restart()
        return gap

    # -- results -----------------------------------------------------------------------------------------------------

    def lag(self, now: float) -> Lag | None:
        """None: unknown."""
        mirrored = max(self.mirrored, self.log.start)
        if mirrored < 0 or self.log.end < 0 or now - self.log.observed_at > _STALE_SECONDS:
            return None
        records = max(self.log.end - mirrored, 0)
        since = self.log.waiting_since(mirrored)
        seconds = max(now - since, 0.0) if records and since is not None else 0.0
        average = self._bytes / self._offsets if self._offsets else 0.0
        return Lag(records, records * average, seconds)

    def lose_sight(self) -> None:
        """The topic is deleted, as far as is known."""
        self.log.restart()

    @property
    def lost_so_far(self) -> Gap | None:
        """Records that are gone from the log before the mirror has asked for them; it may be about to."""
        first = max(self.safe if self._transit else self.mirrored, 0)
        if self.is_known and self.log.start > first:
            return Gap(GapKind.DELETED, first, self.log.start)
        return None
