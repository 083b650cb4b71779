"""The order of the runs: a workload on both sides, then the next one; the order of the sides alternates by round."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import runs
from bench.compare.report import CPU_GIB, CPU_US, P50, Measured
from bench.overhead.connections import connections
from bench.overhead.report import COUNTED
from bench.overhead.schedule import AT_ONCE
from bench.overhead.workloads import BUILDERS, UNWRAP, WRAP
from bench.proxies.names import DIRECT, SHOAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.compare.sides import Side
    from bench.proxies.peer import Peer
    from bench.runs import Workload
    from bench.stage import Stage
    from shoal.scenarios.progress import Progress

__all__ = ["PARTS", "Turns"]

PARTS = ("fetch", "produce", "wrap", "unwrap", "small", "connections", "latency")
_NEEDS = {"wrap": (WRAP,), "unwrap": (WRAP, UNWRAP)}
_LONE = ("Fetch", "Produce")


@dataclass(slots=True, kw_only=True)
class Turns:
    stage: Stage
    direct: Peer
    sides: tuple[Side, Side]
    """This tree, the commit."""
    progress: Progress
    rounds: int
    seconds: float
    requests: int
    found: dict[str, Measured] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Workloads that one side does not do, and why."""

    def run(self, parts: Sequence[str]) -> None:
        for side in self.sides:
            self.left_out |= side.left_out
        steps: dict[str, Callable[[tuple[Side, ...]], None]] = {
            "connections": self._connect,
            "latency": self._latency,
        }
        for turn in range(self.rounds):
            sides = self.sides if turn % 2 == 0 else self.sides[::-1]
            for part in (part for part in parts if part not in self.left_out):
                self.progress.update(f"round {turn + 1} of {self.rounds}: {part}")
                try:
                    if part in steps:
                        steps[part](sides)
                    else:
                        self._forward(part, sides)
                except (RuntimeError, OSError) as error:
                    self._leave_out(part, f"{error}")

    def _forward(self, part: str, sides: tuple[Side, ...]) -> None:
        if any(way not in side.peers for side in sides for way in _NEEDS.get(part, ())):
            raise RuntimeError("a side lacks the mode")
        works = [self._workloads(part, side) for side in sides]
        for pair in zip(*works, strict=True):
            for side, work in zip(sides, pair, strict=True):
                found = runs.run(work, self.seconds)
                if work.name in COUNTED:
                    self._add(part, work.name, CPU_US, side, found.cpu_us_per_request)
                else:
                    self._add(part, work.name, CPU_GIB, side, found.cpu_s_per_gib)

    def _workloads(self, part: str, side: Side) -> list[Workload]:
        """Both sides get the envelopes that this tree makes; each side has a pass of its own: it keeps what it had."""
        peers = dict(side.peers)
        if part == "unwrap":
            peers[WRAP] = self.sides[0].peers[WRAP]
        return BUILDERS[part](self.stage, peers)

    def _connect(self, sides: tuple[Side, ...]) -> None:
        for side in sides:
            found = connections(side.peers[SHOAL], self.seconds, at_once=AT_ONCE)
            self._add("connections", "a new connection", CPU_US, side, found.cpu_us)

    def _latency(self, sides: tuple[Side, ...]) -> None:
        frames = self.stage.small_requests()
        with ExitStack() as stack:
            wires = {DIRECT: stack.enter_context(self.direct.connect())}
            wires |= {side.name: stack.enter_context(side.peers[SHOAL].connect()) for side in sides}
            for wire in wires.values():
                runs.introduce(wire)
            for name in _LONE:
                p50 = {way: runs.lone(wire, frames[name], self.requests).p50 for way, wire in wires.items()}
                for side in sides:
                    self._add("latency", f"a lone {name}, added p50", P50, side, p50[side.name] - p50[DIRECT])

    def _add(self, part: str, name: str, unit: str, side: Side, value: float | None) -> None:
        measured = self.found.setdefault(name, Measured(part=part, unit=unit, values=defaultdict(list)))
        measured.values[side.name].append(value)

    def _leave_out(self, part: str, reason: str) -> None:
        self.left_out[part] = reason
        self.found = {name: measured for name, measured in self.found.items() if measured.part != part}
        self.progress.say(f"without {part}: {reason}")
