"""A consumer group moves to the target while records are written and mirrored.

    the group   reads the source .. stops; its offsets are copied; goes on at the target .......... to the end
    traffic     round 1, 2, 3 ................... all rounds but one ..................... the last round

The group stops when it has read a number of records that ends within a round. The last round is written once it reads
the target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.demo_offsets.group import GroupReading, committed_offsets, read_as_group, set_offsets
from shoal.scenarios.demo_offsets.log_ends import LogEnds
from shoal.scenarios.demo_offsets.plan import GROUP, PARTITIONS, ROUNDS, TOPICS, mirrored_name
from shoal.scenarios.demo_offsets.traffic import write_all
from shoal.scenarios.kafka.process import together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.scenarios.demo_offsets.plan import Plan

__all__ = ["Move", "at_target"]

_PAUSE_S = 1.0  # between rounds
_SHARE = 0.4  # of the live traffic, before the group moves; not a whole number of rounds


def at_target(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The same, by the names of the copies."""
    return {TopicPartition(mirrored_name(topic), partition): at for (topic, partition), at in offsets.items()}


@dataclass(slots=True, kw_only=True)
class Move:
    plan: Plan
    source: str
    """Bootstrap servers."""
    target: str
    backlog: int
    """Committed records of the source before this traffic."""
    check: Callable[[], None]
    """Called regularly, to raise an error."""
    at_source: GroupReading = field(default_factory=GroupReading)
    at_target: GroupReading = field(default_factory=GroupReading)
    source_ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Once all is written."""
    _moved: trio.Event = field(default_factory=trio.Event)

    async def run(self, show: Callable[[str], None]) -> None:
        """Raises HarnessError."""
        await together(partial(self._write, show), partial(self._read, show))

    async def _write(self, show: Callable[[str], None]) -> None:
        for number in range(1, ROUNDS + 1):
            if number == ROUNDS:
                await self._moved.wait()
            await write_all(self.source, self.plan.live, seed=number)
            show(f"round {number} of {ROUNDS} written")
            await trio.sleep(_PAUSE_S)
        self.source_ends = await LogEnds(self.source, [topic.name for topic in TOPICS]).now()

    async def _read(self, show: Callable[[str], None]) -> None:
        names = {topic.name: topic.name for topic in TOPICS}
        await read_as_group(
            self.source,
            GROUP,
            names,
            self.at_source,
            reset="earliest",
            done=self._may_stop,
            check=self.check,
        )
        show("the group has stopped at the source")
        await self._copy_offsets()
        await read_as_group(
            self.target,
            GROUP,
            {mirrored_name(name): name for name in names},
            self.at_target,
            reset="error",  # an offset that the target does not have is an error, not a reason to read again
            done=self._is_over,
            check=self.check,
        )

    async def _copy_offsets(self) -> None:
        offsets = at_target(await committed_offsets(self.source, GROUP))
        await LogEnds(self.target, map(mirrored_name, (topic.name for topic in TOPICS))).until(offsets, self.check)
        await set_offsets(self.target, GROUP, offsets)

    def _may_stop(self) -> bool:
        live = ROUNDS * sum(map(self.plan.live, TOPICS))
        enough = self.backlog + live * _SHARE
        return self.at_source.records.total() >= enough and len(self.at_source.positions) == len(TOPICS) * PARTITIONS

    def _is_over(self) -> bool:
        read = self.at_target.positions
        if read:
            self._moved.set()
        return bool(self.source_ends) and all(
            read.get(partition, 0) >= end for partition, end in self.source_ends.items()
        )
