"""Records of a topic id are reported once its name is known; the cost does not depend on their number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shoal.protocol.shallow.interlock.flow import Flow
from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.shallow.wrap.mirror_fetch import _MAX_UNSEEN, Unseen

ONE, OTHER = b"1" * 16, b"2" * 16


class World:
    """A cluster's topic names, and an interlock that keeps its reports."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}
        self.asked = 0
        self.reported: list[tuple[Flow, tuple[str, int], int]] = []
        rules = SimpleNamespace(
            gave_unseen=lambda flow, place, raw_next, now: self.reported.append((flow, place, raw_next))
        )
        self.unseen = Unseen(SimpleNamespace(rules=rules))  # type: ignore[arg-type]
        self.connection: Any = SimpleNamespace(cluster=SimpleNamespace(topic_name=self._name))

    def _name(self, topic_id: bytes) -> str | None:
        self.asked += 1
        return self.names.get(topic_id)


def flow(token: int) -> Flow:
    return Flow(peer="10.0.0.1", client_id=f"mirror-{token}", token=token)


async def test_it_is_told_when_the_name_is_known() -> None:
    world, one, other = World(), flow(1), flow(2)
    for who, topic, raw_next in ((one, ONE, 7), (one, ONE, 5), (other, ONE, 3), (one, OTHER, 9)):
        world.unseen.note(world.connection, who, PartitionRef(topic, 0), raw_next)
    world.unseen.resolve(world.connection)
    assert world.reported == []
    world.names[ONE] = "orders"
    world.unseen.resolve(world.connection)
    world.unseen.resolve(world.connection)
    assert world.reported == [(one, ("orders", 0), 7), (other, ("orders", 0), 3)]


async def test_it_is_told_at_once_where_the_name_is_known() -> None:
    world, one = World(), flow(1)
    world.names[ONE] = "orders"
    world.unseen.note(world.connection, one, PartitionRef(ONE, 4), 7)
    assert world.reported == [(one, ("orders", 4), 7)]


async def test_a_request_of_many_partitions_costs_no_more_for_each_of_them() -> None:
    """One client requested 10,000 partitions of an unknown topic: each was compared with all before it, which
    blocked the loop for half a minute.
    """
    world, one = World(), flow(1)
    for partition in range(2 * _MAX_UNSEEN):
        world.unseen.note(world.connection, one, PartitionRef(ONE, partition), 1)
    assert world.asked == 2 * _MAX_UNSEEN
    world.unseen.note(world.connection, one, PartitionRef(ONE, 0), 8)  # known topics are kept up to date
    world.names[ONE] = "orders"
    world.unseen.resolve(world.connection)
    assert world.asked == 2 * _MAX_UNSEEN + 2
    assert [place for _, place, _ in world.reported] == [("orders", partition) for partition in range(_MAX_UNSEEN)]
    assert world.reported[0] == (one, ("orders", 0), 8)
    world.unseen.note(world.connection, one, PartitionRef(OTHER, 0), 1)  # there is room again
    world.names[OTHER] = "payments"
    world.unseen.resolve(world.connection)
    assert world.reported[-1] == (one, ("payments", 0), 1)
