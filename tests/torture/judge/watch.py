"""Observations during a round, which attribute duplicates to what happened at their time."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from tests.torture.environment.world import ends_of
from tests.torture.plan import TARGET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.environment.world import World

_EVERY_S = 1.0
_BEGINS = "replicating "  # a line of MirrorSourceTask: a task has started, and names its partitions


@dataclass(slots=True)
class Watch:
    clock: Callable[[], float]
    ends: dict[tuple[str, int], list[tuple[int, float]]] = field(default_factory=dict)
    """By topic and partition of the target: (end offset, time at which it was first seen)."""
    peak_mib: float = 0.0
    """Peak of any Shoal process."""
    tasks_began: list[float] = field(default_factory=list)
    """Starts of the mirror's tasks: each continues at its last committed offsets."""
    _lines: int = -1

    async def run(self, world: World) -> None:
        names = [world.target_name(topic) for topic in world.plan.topics]
        while True:
            self._memory(world)
            self._tasks(world)
            with trio.move_on_after(8):
                for place, end in (await ends_of(world, TARGET, names)).items():
                    noted = self.ends.setdefault(place, [])
                    if not noted or noted[-1][0] < end:
                        noted.append((end, self.clock()))
            await trio.sleep(_EVERY_S)

    def _memory(self, world: World) -> None:
        if world.shoal.running:
            try:
                self.peak_mib = max(self.peak_mib, world.shoal.peak_mib())
            except (FileNotFoundError, StopIteration):
                return

    def _tasks(self, world: World) -> None:
        lines = sum(mirror.log.read_text(errors="replace").count(_BEGINS) for mirror in world.mirrors.values())
        if 0 <= self._lines < lines:
            self.tasks_began.append(self.clock())
        self._lines = lines

    def when(self, topic: str, partition: int, offset: int) -> float:
        """The latest time at which a record may have been appended."""
        noted = self.ends.get((topic, partition), [])
        index = bisect_left(noted, offset + 1, key=lambda end: end[0])
        return noted[index][1] if index < len(noted) else self.clock()
