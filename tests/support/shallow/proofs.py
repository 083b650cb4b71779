"""A proof made by a test instead of a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.cluster.multi_batch import MultiBatchProofs
from tests.support.shallow.brokers import ORDERS

if TYPE_CHECKING:
    from shoal.proxy.cluster.multi_batch import ProbeConnection
    from tests.support.shallow.brokers import Topic
    from tests.support.shallow.rig import ShallowRig

__all__ = ["Vouched", "vouch"]


class Vouched(MultiBatchProofs):
    """A proof that holds until it is withdrawn."""

    def __init__(self, *, stamps: bool = True) -> None:
        self.holds, self.stamps = True, stamps
        self.why: list[str] = []

    def may_send_sets(self, connection: ProbeConnection) -> bool:
        return self.holds

    def is_proven(self, node_id: int) -> bool:
        return self.holds

    def is_due(self, connection: ProbeConnection) -> bool:
        return not self.holds

    async def ensure(self, connection: ProbeConnection) -> bool:
        return self.holds

    def stamps_are_known(self, connection: ProbeConnection) -> bool:
        return self.stamps

    def withdraw(self, connection: ProbeConnection, why: str) -> None:
        self.holds = False
        self.why.append(why)

    def ended(self, connection: ProbeConnection) -> None:
        pass


def vouch(rig: ShallowRig, proof: Vouched, partitions: int = 2, topic: Topic = ORDERS) -> None:
    """The target's first partitions accept sets, and Shoal assumes so."""
    rig.server.listeners["to"].cluster.proofs = proof
    for index in range(partitions):
        rig.target.logs[topic, index].takes_sets = True
