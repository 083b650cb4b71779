"""The cascade's turns, with a dictionary as state: sums of every level against a plain count, for any rows in any
order."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.scenarios.jobs.cascade.cells import OTHERS, Cells, Counted, Keys
from shoal.scenarios.jobs.cascade.levels import Bucket, CascadeSettings, Flows

SMALL = CascadeSettings(levels=(10, 60, 600), delay=5, grace=20, keep=100)
Counts = tuple[int, ...]


class CellKey(NamedTuple):
    window: int
    topic: str
    client: str


class CascadeRow(NamedTuple):
    level: int
    key: CellKey
    total: Counts
    diff: Counts
    version: int
    final: bool
    late: bool
    orphan: bool
    past: float
    past_windows: int


Increments = list[tuple[CellKey, Counts]]


class Kept:
    def __init__(self) -> None:
        self.clock: int | None = None
        self.chunks: dict[tuple[int, int], bool] = {}
        self.data: dict[tuple[int, int], bytes] = {}

    def get(self, level: int, number: int) -> bytes | None:
        return self.data.get((level, number))

    def put(self, level: int, number: int, data: bytes) -> None:
        self.data[level, number] = data

    def remove(self, level: int, number: int) -> None:
        self.data.pop((level, number), None)


def _turn(kept: Kept, increments: Increments, captured: int, chosen: CascadeSettings = SMALL) -> list[CascadeRow]:
    flows = _turned(Bucket(chosen, kept), increments, captured)
    assert kept.data.keys() <= kept.chunks.keys()
    return flows


def _turned(bucket: Bucket, increments: Increments, captured: int) -> list[CascadeRow]:
    windows, topics, clients = ([key[at] for key, _ in increments] for at in range(3))
    keys = Keys(np.array(windows, np.int64), pa.array(topics, pa.string()), pa.array(clients, pa.string()))
    counts = np.array([counts for _, counts in increments], np.int64).reshape(-1, 4)
    return [row for flows in bucket.turn(Counted.summed(keys, counts), captured) for row in _rows(flows)]


def _rows(flows: Flows) -> Iterator[CascadeRow]:
    keys = zip(flows.keys.window.tolist(), flows.keys.topic.to_pylist(), flows.keys.client.to_pylist(), strict=True)
    for at, key in enumerate(keys):
        total, diff = tuple(flows.total[at].tolist()), tuple(flows.diff[at].tolist())
        late, past, windows = bool(flows.late[at]), float(flows.past[at]), int(flows.past_windows[at])
        version = int(flows.version[at])
        yield CascadeRow(
            flows.level, CellKey(*key), total, diff, version, flows.final, late, flows.orphan, past, windows
        )


def _one(window: int, records: int = 1, client: str = "a") -> tuple[CellKey, Counts]:
    return CellKey(window, "t", client), (records, 10 * records, 1, 0)


def _of(flows: list[CascadeRow], level: int) -> list[CascadeRow]:
    return [flow for flow in flows if flow.level == level]


ROW = st.tuples(st.integers(0, 200), st.integers(1, 9), st.sampled_from("ab"))
TURN = st.tuples(st.lists(ROW, max_size=8), st.integers(0, 80))


@settings(max_examples=100)
@given(turns=st.lists(TURN, max_size=25), hold=st.sampled_from([(), (0, 0, 30), (7, 40, 200)]))
def test_diffs_and_latest_values_are_the_sums_of_what_came(turns: list, hold: tuple[int, ...]) -> None:  # type: ignore[type-arg]
    chosen = CascadeSettings(levels=(10, 60, 600), delay=5, grace=20, keep=100, hold=hold)
    kept, now = Kept(), 10_000
    wanted: dict[int, Counter[CellKey]] = defaultdict(Counter)
    summed: dict[int, Counter[CellKey]] = defaultdict(Counter)
    latest: dict[tuple[int, CellKey], CascadeRow] = {}
    orphans: set[tuple[int, CellKey]] = set()
    for rows, pause in [*turns, ([], 3000), ([], 3000)]:
        now += pause
        increments = [_one((now - age) // 10 * 10, records, client) for age, records, client in rows]
        for key, counts in increments:
            for level in chosen.levels:
                wanted[level][key._replace(window=key.window // level * level)] += counts[0]
        versions: set[tuple[int, CellKey, int]] = set()
        for flow in _turn(kept, increments, now, chosen):
            summed[flow.level][flow.key] += flow.diff[0]
            if flow.orphan:
                orphans.add((flow.level, flow.key))
                continue
            assert (flow.level, flow.key, flow.version) not in versions
            versions.add((flow.level, flow.key, flow.version))
            assert flow.version > latest.get((flow.level, flow.key), flow._replace(version=0)).version
            latest[flow.level, flow.key] = flow
    assert summed == wanted
    values = {place: flow.total[0] for place, flow in latest.items() if place not in orphans}
    assert values == {
        (level, key): count
        for level, found in wanted.items()
        for key, count in found.items()
        if (level, key) not in orphans
    }
    assert all(flow.final or flow.late for flow in latest.values())
    assert not kept.data, "all is forgotten in the end"


def test_only_diffs_go_up() -> None:
    kept = Kept()
    _turn(kept, [_one(1000, 5)], 1005)
    flows = _turn(kept, [_one(1000, 2), _one(1010, 1)], 1015)
    assert [(flow.key.window, flow.total[0], flow.diff[0], flow.version) for flow in _of(flows, 10)] == [
        (1000, 7, 2, 2),
        (1010, 1, 1, 1),
    ]
    assert [(flow.key.window, flow.total[0], flow.diff[0]) for flow in _of(flows, 60)] == [(960, 8, 3)]
    assert [(flow.key.window, flow.total[0], flow.diff[0]) for flow in _of(flows, 600)] == [(600, 8, 3)]


def test_a_window_becomes_final_once_and_what_comes_later_is_late() -> None:
    kept = Kept()
    _turn(kept, [_one(1000)], 1005)
    assert not any(flow.final for flow in _turn(kept, [], 1034))
    finals = _turn(kept, [], 1035)
    assert [(flow.level, flow.key.window, flow.final, flow.diff[0]) for flow in finals] == [(10, 1000, True, 0)]
    assert _turn(kept, [], 1036) == []
    [late, *above] = _turn(kept, [_one(1000, 3)], 1036)
    assert (late.late, late.final, late.total[0], late.version) == (True, False, 4, 3)
    assert [flow.late for flow in above] == [False, False]


def test_what_is_forgotten_comes_back_as_an_orphan_and_is_counted_above() -> None:
    kept = Kept()
    _turn(kept, [_one(1000)], 1005)
    _turn(kept, [], 1200)
    assert not any(level == 0 for level, _ in kept.chunks)
    flows = _turn(kept, [_one(1000, 3)], 1201)
    [orphan] = _of(flows, 10)
    assert (orphan.orphan, orphan.diff[0]) == (True, 3)
    [above] = _of(flows, 600)
    assert (above.orphan, above.diff[0], above.total[0]) == (False, 3, 4)


def test_the_clock_never_goes_back() -> None:
    kept = Kept()
    _turn(kept, [_one(1000)], 1100)
    _turn(kept, [_one(1000)], 900)
    assert kept.clock == 1095


def test_too_many_keys_are_counted_together() -> None:
    few = CascadeSettings(levels=(10, 60), most_cells=2)
    flows = _turn(Kept(), [_one(1000, 1, client) for client in "abcde"], 1001, few)
    first = {flow.key.client: flow.total[0] for flow in _of(flows, 10)}
    assert first == {"a": 1, "b": 1, OTHERS: 3}
    assert sum(flow.total[0] for flow in _of(flows, 60)) == 5


def test_the_past_is_the_median_of_the_windows_before() -> None:
    kept = Kept()
    for number, records in enumerate([10, 20, 60]):
        _turn(kept, [_one(1000 + 10 * number, records)], 1005 + 10 * number)
    [flow] = _of(_turn(kept, [_one(1030, 500)], 1035), 10)[:1]
    assert (flow.key.window, flow.past, flow.past_windows) == (1030, 20.0, 3)


def test_a_hold_tells_in_slots_of_the_bucket() -> None:
    chosen = CascadeSettings(levels=(10, 60), delay=0, hold=(0, 100), buckets=4)
    told = {}
    for number in range(4):
        kept = Kept()
        for now in range(1000, 1100, 10):
            flows = _turned(Bucket(chosen, kept, number), [_one(960)], now)
            if now > 1000 and _of(flows, 60):
                told[number] = now
    assert told == {1: 1080, 2: 1050, 3: 1030}


def test_cells_are_kept_as_they_were() -> None:
    kept = Kept()
    _turn(kept, [_one(1000, 5), _one(1000, 7, "b")], 1005)
    for data in kept.data.values():
        assert Cells.decoded(data).encoded() == data


def test_levels_must_fit_into_each_other() -> None:
    with pytest.raises(ValueError, match="not a multiple"):
        CascadeSettings(levels=(60, 90))
