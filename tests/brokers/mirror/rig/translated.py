"""Translated offsets, compared with what is at these offsets: every record of source and target is read.

An offset is right if the record there is a copy of the one that was asked for, and every later record of the source has
a copy behind it. Records are recognised by key, value and timestamp, so they should be unique.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections import Counter
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from shoal.scenarios.kafka.content.reading import READ_UNCOMMITTED, read_all
from tests.support.processes import shoal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

    from tests.brokers.mirror.rig.flow import Flow

__all__ = ["Checked", "ask", "check_offsets"]

_Record = tuple[bytes | None, bytes | None, int]
_Log = dict[int, _Record]


class Checked(NamedTuple):
    """`checked` offsets: `exact` answers, of which `wrong` ones; the others have bounds. `why`: by code."""

    checked: int
    exact: int
    wrong: int
    why: Counter[str]
    faults: tuple[str, ...]


async def ask(flow: Flow, *arguments: str) -> dict[str, Any]:
    """`shoal translate --json`."""
    given = ("translate", "--state-dir", str(flow.work / "state"), *arguments, "--json")
    done = await trio.to_thread.run_sync(partial(shoal, *given))
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def check_offsets(
    flow: Flow, topic: str, count: int, *, seed: int = 0, online: bool = True, to_source: bool = False
) -> Checked:
    """`count` random offsets of the topic, of all partitions; some have no record. The copy must be complete."""
    pair = flow.pair
    ours, theirs = await _read(pair.source.bootstrap, topic), await _read(pair.target.bootstrap, flow.remote(topic))
    given = [f"--source-bootstrap={pair.source.bootstrap}", f"--target-bootstrap={pair.target.bootstrap}"]
    name, asked_of, arguments = topic, ours, given if online else []
    if to_source:
        name, asked_of, arguments = flow.remote(topic), theirs, [*arguments, "--to-source"]
    why, faults, exact = Counter[str](), list[str](), 0
    wanted = _drawn({number: max(log, default=0) + 1 for number, log in asked_of.items()}, count, seed)
    for number, offsets in wanted.items():
        truth = _Truth(ours[number], theirs[number])
        rows = (await ask(flow, f"{name}-{number}", *map(str, offsets), *arguments))["offsets"]
        assert [row["offset"] for row in rows] == offsets
        for row in rows:
            why[row["why"]] += 1
            exact += row["exact"]
            fault = truth.fault_to_source(row) if to_source else truth.fault_to_target(row)
            if fault is not None:
                faults.append(f"{name}-{number} {row['offset']}: {fault}: {row}")
    return Checked(count, exact, len(faults), why, tuple(faults[:10]))


def _drawn(ends: dict[int, int], count: int, seed: int) -> dict[int, list[int]]:
    rng, found = random.Random(seed), dict[int, list[int]]()
    for _ in range(count):
        number = rng.choice(sorted(ends))
        found.setdefault(number, []).append(rng.randrange(ends[number]))
    return found


async def _read(bootstrap: str, topic: str) -> dict[int, _Log]:
    logs: dict[int, _Log] = {}

    def take(messages: Sequence[Message]) -> None:
        for message in messages:
            record = message.key(), message.value(), message.timestamp()[1]
            logs.setdefault(message.partition() or 0, {})[message.offset() or 0] = record

    count = await read_all(bootstrap, topic, take, isolation_level=READ_UNCOMMITTED)
    return {number: logs.get(number, {}) for number in range(count)}


class _Truth:
    """What is in a source partition and in its copy."""

    def __init__(self, ours: _Log, theirs: _Log) -> None:
        self._ours, self._theirs = ours, theirs
        self._originals = {record: offset for offset, record in ours.items()}
        self._copies: dict[_Record, list[int]] = {}
        for offset, record in theirs.items():
            self._copies.setdefault(record, []).append(offset)
        end = max(theirs, default=-1) + 1
        self._offsets = sorted(ours)
        lasts = [self._copies.get(ours[offset], [end])[-1] for offset in self._offsets]
        self._best = [*accumulate(reversed(lasts), min, initial=end)][::-1]  # per record: what misses no later one

    def fault_to_target(self, row: dict[str, Any]) -> str | None:
        """What is wrong; None: nothing."""
        asked, low, high = row["offset"], row["low"], row["high"]
        best = self._best[bisect_left(self._offsets, asked)]
        places = self._copies.get(self._ours[asked], []) if asked in self._ours else []
        if low > best:
            return f"misses the record at {best}"
        if not row["exact"]:
            is_within = high is None or not places or any(low <= place < high for place in places)
            return None if is_within else f"the record is at {places}, outside the bounds"
        if places and low not in places:
            return f"the record is at {places}"
        following = self._theirs.get(low)
        if not places and following is not None and self._originals.get(following, asked) < asked:
            return f"repeats the record {self._originals[following]}"
        return None

    def fault_to_source(self, row: dict[str, Any]) -> str | None:
        """What is wrong; None: nothing."""
        original = self._originals.get(self._theirs.get(row["offset"], (None, None, 0)))
        if original is None:
            return None
        if row["exact"]:
            is_right = self._ours.get(row["translated"]) in (None, self._ours[original])  # compaction may remove it
            return None if is_right else f"the record is at {original}"
        is_first = self._copies[self._ours[original]][0] == row["offset"]
        return f"misses the record {original}" if is_first and row["low"] > original else None
