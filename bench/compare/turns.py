"""The order of the runs: a workload in short slices on both sides, then the next one.

Slices are in the order A B B A, and in the next round B A A B, so a drift of the machine affects both sides. The slices
of a side and round count as one run. Longer runs in turns have twice the noise. Each round has new processes: two
processes of the same program differ by some percent as long as they live.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING

from bench import runs
from bench.compare.report import CPU_GIB, CPU_US, P50, THIS, Measured
from bench.overhead.connections import Connections, connections
from bench.overhead.report import COUNTED
from bench.overhead.schedule import AT_ONCE
from bench.overhead.workloads import BUILDERS, JOINS, UNWRAP, WRAP
from bench.proxies.names import DIRECT, SHOAL
from bench.runs import Forwarding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.compare.sides import Side
    from bench.proxies.peer import Peer
    from bench.runs import Workload
    from bench.stage import Stage
    from shoal.scenarios.progress import Progress

__all__ = ["PARTS", "Turns"]

PARTS = ("fetch", "produce", "wrap", "unwrap", "small", "steady", "coalesce", "connections", "latency")
_NEEDS = {"wrap": (WRAP,), "unwrap": (WRAP, UNWRAP), "coalesce": (JOINS,)}
_LONE = ("Fetch", "Produce")
_SLICES = 4  # of each side in a round


@dataclass(slots=True, kw_only=True)
class Turns:
    stage: Stage
    direct: Peer
    progress: Progress
    rounds: int
    seconds: float
    requests: int
    found: dict[str, Measured] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Workloads that one side does not do, and why."""

    def take(self, turn: int, this: Side, commit: Side, parts: Sequence[str]) -> None:
        """One round."""
        self.left_out |= {**this.left_out, **commit.left_out}
        order = (this, commit, commit, this) if turn % 2 == 0 else (commit, this, this, commit)
        for part in (part for part in parts if part not in self.left_out):
            self.progress.update(f"round {turn + 1} of {self.rounds}: {part}")
            try:
                if part == "unwrap":  # a pass over all envelopes is a slice
                    self._forward(part, order)
                elif part == "connections":
                    self._connect(order * (_SLICES // 2))
                elif part == "latency":
                    self._latency(order * (_SLICES // 2))
                else:
                    self._forward(part, order * (_SLICES // 2))
            except (RuntimeError, OSError) as error:
                self._leave_out(part, str(error))

    def _forward(self, part: str, order: tuple[Side, ...]) -> None:
        if any(way not in side.peers for side in order for way in _NEEDS.get(part, ())):
            raise RuntimeError("a side does not have the mode")
        this = next(side for side in order if side.name == THIS)
        envelopes = {WRAP: this.peers[WRAP]} if part == "unwrap" else {}
        works: dict[str, list[Workload]] = {}
        totals: dict[tuple[str, str], Forwarding] = {}
        for side in order:
            if side.name not in works or part == "unwrap":  # to Shoal a repeated envelope is a retry
                works[side.name] = BUILDERS[part](self.stage, side.peers | envelopes)
            for work in works[side.name]:
                found = runs.run(replace(work, rounds=-(-work.rounds // _SLICES)), self.seconds / _SLICES)
                before = totals.get((work.name, side.name), Forwarding(0.0, 0.0, 0.0))
                totals[work.name, side.name] = before.plus(found)
        for (name, side_name), total in totals.items():
            if name in COUNTED:
                self._add(part, name, CPU_US, side_name, total.cpu_us_per_request)
            else:
                self._add(part, name, CPU_GIB, side_name, total.cpu_s_per_gib)

    def _connect(self, order: tuple[Side, ...]) -> None:
        totals = {side.name: Connections(0, 0.0, 0.0) for side in order}
        for side in order:
            found = connections(side.peers[SHOAL], self.seconds / _SLICES, at_once=AT_ONCE)
            totals[side.name] = totals[side.name].plus(found)
        for name, total in totals.items():
            self._add("connections", "a new connection", CPU_US, name, total.cpu_us)

    def _latency(self, order: tuple[Side, ...]) -> None:
        """The mean of the medians of the slices."""
        frames = self.stage.small_requests()
        with ExitStack() as stack:
            wires = {DIRECT: stack.enter_context(self.direct.connect())}
            wires |= {side.name: stack.enter_context(side.peers[SHOAL].connect()) for side in order[:2]}
            for wire in wires.values():
                runs.introduce(wire)
            for name in _LONE:
                p50: dict[str, list[float]] = defaultdict(list)
                for at, side in enumerate(order):
                    for way in (side.name, DIRECT) if at % 2 else (side.name,):
                        p50[way].append(runs.lone(wires[way], frames[name], self.requests // _SLICES).p50)
                for side in order[:2]:
                    added = mean(p50[side.name]) - mean(p50[DIRECT])
                    self._add("latency", f"a lone {name}, added p50", P50, side.name, added)

    def _add(self, part: str, name: str, unit: str, side: str, value: float | None) -> None:
        measured = self.found.setdefault(name, Measured(part=part, unit=unit, values=defaultdict(list)))
        measured.values[side].append(value)

    def _leave_out(self, part: str, reason: str) -> None:
        self.left_out[part] = reason
        self.found = {name: measured for name, measured in self.found.items() if measured.part != part}
        self.progress.say(f"without {part}: {reason}")
