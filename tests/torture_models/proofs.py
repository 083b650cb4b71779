"""The result of Shoal's own probe for each kind of broker, so that the models send what Shoal would send."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from shoal.protocol.multibatch.probe import Ask, Probe, ProbePlan
from tests.support.multibatch.broker import BatchBroker
from tests.torture_models.replicas import Partition, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.multibatch.proof import Proof

__all__ = ["proof_of"]


@dataclass
class _Broker(BatchBroker):
    """A broker whose logs are `Partition`s."""

    sets_are: Sets = Sets.REFUSED
    partitions: dict[int, Partition] = field(default_factory=dict)

    def _append(self, log: Any, batches: Sequence[bytes]) -> tuple[ErrorCode, int]:
        partition = self.partitions.setdefault(id(log), Partition(1))
        before = len(partition.log)
        error, base, _ = partition.produce(b"".join(batches), self.sets_are)
        self._store(log, [entry.batch for entry in partition.log[before:]])
        return ErrorCode(error), base


@lru_cache
def proof_of(sets: Sets) -> Proof:
    broker = _Broker(sets_are=sets)
    probe = Probe(ProbePlan(node_id=1, token=b"12345678", now=1_700_000_000_000))
    step = probe.start()
    while isinstance(step, Ask):
        answer = broker.answer(step.frame)
        step = probe.lost() if answer is None else probe.answered(answer)
    return step
