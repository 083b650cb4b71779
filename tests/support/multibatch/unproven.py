"""Brokers that must not get sets of several batches, and one that checks whether it got any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kio.schema.errors import ErrorCode

from shoal.protocol.multibatch.trial import SCRATCH_PREFIX
from tests.support.multibatch.broker import BatchBroker, Habits

__all__ = ["Watching", "bad"]


def bad(stores: Habits) -> dict[str, Habits]:
    """By their fault; otherwise they are like the one that `stores` sets."""
    return {
        "refuses": replace(stores, refuses=ErrorCode.invalid_record),
        "closes": replace(stores, closes=True),
        "loses": replace(stores, keeps=1),
        "counts the first": replace(stores, counts_first=True),
        "wrong base offset": replace(stores, answers_late_by=2),
        "reverses": replace(stores, reverses=True),
        "in part": replace(stores, in_part=True),
        "no rights": replace(stores, create_error=ErrorCode.topic_authorization_failed),
    }


@dataclass
class Watching(BatchBroker):
    """`early`: sets for other topics than the probe's that arrived before the probe's last answer, or at a faulty
    broker. `good`: the others."""

    good: tuple[Habits, ...] = ()
    proven: bool = False
    early: int = 0

    def change(self, habits: Habits) -> None:
        self.habits, self.proven = habits, False

    def delete(self, request: Any, schema: Any) -> Any:
        self.proven = self.habits in self.good
        return super().delete(request, schema)

    def produce(self, request: Any, schema: Any) -> Any:
        (topic,) = request.topic_data
        before = self.sets[topic.name]
        answer = super().produce(request, schema)
        is_set = self.sets[topic.name] > before
        self.early += is_set and not self.proven and not topic.name.startswith(SCRATCH_PREFIX)
        return answer
