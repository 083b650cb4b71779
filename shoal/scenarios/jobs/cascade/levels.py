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

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from shoal.scenarios.jobs.cascade.cells import NOTHING, Cell, CellKey, Counts, decode_cells, encode_cells, plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["OTHERS", "Bucket", "CascadeRow", "CascadeSettings", "Store"]

OTHERS: Final = "(others)"
_PAST: Final = 10
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


class CascadeRow(NamedTuple):
    """One row of both flows: `total` and `version` are the changelog's, `diff` is the diff flow's.

    `past`: the median of the key's records in the known previous windows (`past_windows`, up to 10). The first minute
    of a runaway client would raise a mean.
    """

    level: int  # seconds
    key: CellKey
    total: Counts
    diff: Counts
    version: int
    final: bool
    late: bool
    orphan: bool
    past: float
    past_windows: int


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
        self._cells: dict[tuple[int, int], dict[CellKey, Cell]] = {}
        self._changed: set[tuple[int, int]] = set()

    def turn(self, increments: Iterable[tuple[CellKey, Counts]], captured: int) -> Iterator[CascadeRow]:
        """`captured`: the newest capture time in this turn, in seconds. The keys' windows are of the first level."""
        self._now = max(self._before, captured - self._settings.delay)
        coming: dict[CellKey, Counts] = defaultdict(lambda: NOTHING)
        for key, counts in increments:
            coming[key] = plus(coming[key], counts)
        for level in range(len(self._settings.levels)):
            following: dict[CellKey, Counts] = defaultdict(lambda: NOTHING)
            for flow in self._level(level, coming):
                yield flow
                if any(flow.diff) and level + 1 < len(self._settings.levels):
                    above = self._window(level + 1, flow.key)
                    following[above] = plus(following[above], flow.diff)
            coming = following
        self._forget()
        self._save()

    def _window(self, level: int, key: CellKey) -> CellKey:
        return key._replace(window=key.window - key.window % self._settings.levels[level])

    def _level(self, level: int, coming: dict[CellKey, Counts]) -> Iterator[CascadeRow]:
        touched: dict[int, dict[CellKey, None]] = defaultdict(dict)
        for key, counts in coming.items():
            number = key.window // self._settings.chunk_seconds(level)
            if self._is_forgotten(level, number):
                yield self._flow(level, key, Cell(), counts, orphan=True)
            else:
                touched[number][self._add(level, number, key, counts)] = None
        if self._is_due(level):
            yield from self._emit(level, touched)
        else:
            self._store.chunks.update(dict.fromkeys(((level, number) for number in touched), True))
        yield from self._finish(level)

    def _add(self, level: int, number: int, key: CellKey, counts: Counts) -> CellKey:
        cells = self._load(level, number)
        cell = cells.get(key)
        if cell is None:
            if len(cells) >= self._settings.most_cells:
                key = CellKey(key.window, OTHERS, OTHERS)
            cell = cells.setdefault(key, Cell())
        cell.add(counts)
        self._store.chunks.setdefault((level, number), False)
        self._changed.add((level, number))
        return key

    def _is_due(self, level: int) -> bool:
        hold = self._settings.held(level)
        if not hold or self._before == _NEVER:
            return True
        slot = hold * self._number // self._settings.buckets
        return (self._now + slot) // hold > (self._before + slot) // hold

    def _emit(self, level: int, touched: dict[int, dict[CellKey, None]]) -> Iterator[CascadeRow]:
        """Changes of this turn, and those held back in earlier ones."""
        for (at, number), waits in list(self._store.chunks.items()):
            if at == level and waits:
                touched[number] = dict.fromkeys(self._load(level, number))
                self._store.chunks[at, number] = False
        for number, keys in touched.items():
            cells = self._load(level, number)
            for key in keys:
                if cells[key].total != cells[key].emitted:
                    self._changed.add((level, number))
                    yield self._flow(level, key, cells[key], cells[key].emit())

    def _flow(
        self, level: int, key: CellKey, cell: Cell, diff: Counts, *, orphan: bool = False, final: bool = False
    ) -> CascadeRow:
        seconds = self._settings.levels[level]
        late = not final and self._end(level, key.window) <= self._before
        past, windows = (0.0, 0) if orphan else self._past(level, key)
        return CascadeRow(seconds, key, cell.total, diff, cell.version, final, late, orphan, past, windows)

    def _end(self, level: int, window: int) -> int:
        """The time at which a window becomes final."""
        return window + self._settings.levels[level] + self._settings.grace

    def _past(self, level: int, key: CellKey) -> tuple[float, int]:
        seconds, chunk = self._settings.levels[level], self._settings.chunk_seconds(level)
        known = []
        for window in range(key.window - seconds, key.window - (_PAST + 1) * seconds, -seconds):
            if (level, window // chunk) in self._store.chunks:
                cell = self._load(level, window // chunk).get(key._replace(window=window))
                known += [cell.total[0]] if cell is not None else []
        return (float(median(known)), len(known)) if known else (0.0, 0)

    def _finish(self, level: int) -> Iterator[CascadeRow]:
        """The windows that the clock has passed in this turn."""
        chunk = self._settings.chunk_seconds(level)
        for at, number in list(self._store.chunks):
            ends = self._end(level, number * chunk), self._end(level, (number + 1) * chunk)
            if at != level or ends[0] > self._now or ends[1] <= self._before:
                continue
            for key, cell in self._load(level, number).items():
                if self._before < self._end(level, key.window) <= self._now:
                    self._changed.add((level, number))
                    yield self._flow(level, key, cell, cell.emit(), final=True)

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

    def _load(self, level: int, number: int) -> dict[CellKey, Cell]:
        cells = self._cells.get((level, number))
        if cells is None:
            data = self._store.get(level, number) if (level, number) in self._store.chunks else None
            cells = self._cells[level, number] = {} if data is None else decode_cells(data)
        return cells

    def _save(self) -> None:
        for level, number in sorted(self._changed):
            self._store.put(level, number, encode_cells(self._cells[level, number]))
        self._store.clock = None if self._now == _NEVER else self._now
