"""Windowed counters in a cascade: each level counts what the level below has emitted, and only the first counts
batches.

    increments -> 1 minute -> diffs -> 10 minutes -> diffs -> 1 hour -> diffs -> 1 day

In each turn (a micro-batch of the stream, which is the scheduled flush) every level adds its input, emits each changed
cell once (its new value, its version, and the diff since its last emission), and passes these diffs on. A level with a
`hold` emits less often, in slots that differ by bucket, so that not all of a day's counters are written in each turn;
the cells keep what is not emitted yet.

The clock is the capture clock, `delay` behind the newest batch; windows are of the batches' own times. With one clock
for both, nothing could be late. The clock is kept here instead of Spark's watermark, because Spark drops rows older
than its watermark, and files of several proxies, or of a restart, lag behind each other. Here nothing is dropped:

    final    the clock has passed a window's end by `grace`: its cells are emitted once more, as final
    late     input for a final window: it is counted and emitted, marked
    orphan   input for a window that is forgotten (`keep` after the end of its chunk): its diffs are emitted and passed
             on, marked; its value is not known any more, so it is not part of the changelog

The state is limited: chunks are forgotten, and a chunk has at most `most_cells` cells; further keys are counted as
OTHERS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from shoal.scenarios.jobs.cascade.cells import Cells, Counted, joined
from shoal.scenarios.jobs.cascade.past import PAST, past_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from shoal.scenarios.jobs.cascade.cells import Keys, Longs, Rows

__all__ = ["Bucket", "CascadeSettings", "Flows", "Store"]

_NEVER: Final = -(1 << 62)


@dataclass(frozen=True, kw_only=True)
class CascadeSettings:
    """In seconds. Each level's window is a multiple of the previous one. `hold`: by level; 0 is every turn."""

    levels: tuple[int, ...] = (60, 600, 3600, 86400)
    delay: int = 60
    grace: int = 120
    keep: int = 7200
    hold: tuple[int, ...] = ()
    buckets: int = 64  # of the state; like the levels, it must not change while a checkpoint exists
    most_cells: int = 50_000

    def __post_init__(self) -> None:
        for small, large in zip(self.levels, self.levels[1:], strict=False):
            if large % small or large <= small:
                raise ValueError(f"a window of {large} s is not a multiple of {small} s")

    def chunk_seconds(self, level: int) -> int:
        """The windows within one window of the next level are kept together."""
        return self.levels[min(level + 1, len(self.levels) - 1)]

    def held(self, level: int) -> int:
        return self.hold[level] if level < len(self.hold) else 0

    @property
    def not_held(self) -> tuple[int, ...]:
        """The levels that do not lag behind."""
        return tuple(level for number, level in enumerate(self.levels) if not self.held(number))


class Flows(NamedTuple):
    """Rows of both flows, as columns: `total` and `version` are the changelog's, `diff` is the diff flow's.

    `past`: the median of the key's records in the known previous windows (`past_windows`, up to 10). The first minute
    of a runaway client would raise a mean.
    """

    level: int  # seconds
    keys: Keys
    total: Longs
    diff: Longs
    version: npt.NDArray[np.int32]
    final: bool
    late: npt.NDArray[np.bool_]
    orphan: bool
    past: npt.NDArray[np.float64]
    past_windows: npt.NDArray[np.int32]


class Store(Protocol):
    """The state of one bucket. `clock` None: there was none yet."""

    clock: int | None
    chunks: dict[tuple[int, int], bool]  # by level and number: whether it has changes that are not emitted

    def get(self, level: int, number: int) -> bytes | None: ...
    def put(self, level: int, number: int, data: bytes) -> None: ...
    def remove(self, level: int, number: int) -> None:
        """The chunk may have been created in the same turn."""


class Bucket:
    """One bucket's turn."""

    def __init__(self, settings: CascadeSettings, store: Store, number: int = 0) -> None:
        self._settings = settings
        self._store = store
        self._number = number
        self._before = _NEVER if store.clock is None else store.clock
        self._now = self._before
        self._cells: dict[tuple[int, int], Cells] = {}
        self._changed: set[tuple[int, int]] = set()

    def turn(self, coming: Counted, captured: int) -> Iterator[Flows]:
        """`captured`: the newest capture time in this turn, in seconds. The keys' windows are of the first level."""
        self._now = max(self._before, captured - self._settings.delay)
        for level in range(len(self._settings.levels)):
            flows = list(self._level(level, coming))
            yield from flows
            coming = self._above(level + 1, flows, coming)
        self._forget()
        self._save()

    def _above(self, level: int, flows: Sequence[Flows], coming: Counted) -> Counted:
        """What the diffs of the level below add to this one."""
        if not flows or level == len(self._settings.levels):
            return coming.take(np.arange(0))
        keys, diffs = joined([flow.keys for flow in flows]), np.concatenate([flow.diff for flow in flows])
        rows = np.flatnonzero(diffs.any(axis=1))
        keys = keys._replace(window=keys.window - keys.window % self._settings.levels[level])
        return Counted.summed(keys.take(rows), diffs[rows])

    def _level(self, level: int, coming: Counted) -> Iterator[Flows]:
        touched: set[int] = set()
        numbers = coming.keys.window // self._settings.chunk_seconds(level)
        for number in np.unique(numbers).tolist():
            part = coming.take(numbers == number)
            if self._is_forgotten(level, number):
                yield self._orphans(level, part)
                continue
            self._load(level, number).add(part, self._settings.most_cells)
            self._store.chunks.setdefault((level, number), False)
            self._changed.add((level, number))
            touched.add(number)
        if self._is_due(level):
            yield from self._emit(level, touched)
        else:
            self._store.chunks.update(dict.fromkeys(((level, number) for number in touched), True))
        yield from self._finish(level)

    def _is_due(self, level: int) -> bool:
        hold = self._settings.held(level)
        if not hold or self._before == _NEVER:
            return True
        slot = hold * self._number // self._settings.buckets
        return (self._now + slot) // hold > (self._before + slot) // hold

    def _emit(self, level: int, touched: set[int]) -> Iterator[Flows]:
        """Changes of this turn, and those held back in earlier ones."""
        waiting = [number for (at, number), waits in self._store.chunks.items() if at == level and waits]
        self._store.chunks.update(dict.fromkeys(((level, number) for number in waiting), False))
        for number in sorted({*touched, *waiting}):
            yield from self._flows(level, number, self._load(level, number).changed)

    def _flows(self, level: int, number: int, rows: Rows, *, final: bool = False) -> Iterator[Flows]:
        """Emit these rows of a chunk."""
        if not len(rows):
            return
        cells = self._load(level, number)
        keys, diff = cells.keys.take(rows), cells.emit(rows)
        self._changed.add((level, number))
        late = self._ends(level, keys.window) <= self._before
        past, windows = past_of(keys, self._settings.levels[level], self._recent(level, keys))
        yield Flows(
            self._settings.levels[level], keys, cells.total[rows], diff, cells.version[rows], final, late & (not final),
            False, past, windows,
        )  # fmt: skip

    def _orphans(self, level: int, part: Counted) -> Flows:
        count = part.keys.size
        late = self._ends(level, part.keys.window) <= self._before
        nothing = np.zeros(count, np.int32)
        return Flows(
            self._settings.levels[level], part.keys, np.zeros_like(part.counts), part.counts, nothing, False, late,
            True, np.zeros(count), nothing,
        )  # fmt: skip

    def _ends(self, level: int, windows: Any) -> Any:
        """The times at which windows (one, or an array) become final."""
        return windows + (self._settings.levels[level] + self._settings.grace)

    def _recent(self, level: int, keys: Keys) -> list[Cells]:
        """The known chunks that may have previous windows of these keys."""
        seconds, chunk = self._settings.levels[level], self._settings.chunk_seconds(level)
        first = (int(keys.window.min()) - PAST * seconds) // chunk
        last = (int(keys.window.max()) - seconds) // chunk
        return [
            self._load(level, number) for at, number in self._store.chunks if at == level and first <= number <= last
        ]

    def _finish(self, level: int) -> Iterator[Flows]:
        """The windows that the clock has passed in this turn."""
        chunk = self._settings.chunk_seconds(level)
        for at, number in list(self._store.chunks):
            end = (number + 1) * chunk + self._settings.grace  # of its last window
            if at != level or end <= self._before or self._ends(level, number * chunk) > self._now:
                continue
            ends = self._ends(level, self._load(level, number).keys.window)
            rows = np.flatnonzero((self._before < ends) & (ends <= self._now))
            yield from self._flows(level, number, rows, final=True)

    def _is_forgotten(self, level: int, number: int) -> bool:
        end = (number + 1) * self._settings.chunk_seconds(level) + self._settings.grace + self._settings.keep
        return end <= self._before and (level, number) not in self._store.chunks

    def _forget(self) -> None:
        for level, number in list(self._store.chunks):
            end = (number + 1) * self._settings.chunk_seconds(level) + self._settings.grace + self._settings.keep
            if end <= self._now and not self._store.chunks[level, number]:
                del self._store.chunks[level, number]
                self._cells.pop((level, number), None)
                self._changed.discard((level, number))
                self._store.remove(level, number)

    def _load(self, level: int, number: int) -> Cells:
        cells = self._cells.get((level, number))
        if cells is None:
            data = self._store.get(level, number) if (level, number) in self._store.chunks else None
            cells = self._cells[level, number] = Cells() if data is None else Cells.decoded(data)
        return cells

    def _save(self) -> None:
        for level, number in sorted(self._changed):
            self._store.put(level, number, self._cells[level, number].encoded())
        self._store.clock = None if self._now == _NEVER else self._now
