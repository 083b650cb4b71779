"""Translated offsets as text, as JSON, and as the file that `kafka-consumer-groups.sh --reset-offsets` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.shallow.translate.question import Answer, Why

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.wire.types import TopicPartition

__all__ = ["SAME_OFFSETS", "Translated", "Unknown", "line", "reset_lines", "unknown_line"]

SAME_OFFSETS = "a mirror topic has its source's: docs/same-offsets.md"
_WHY = {
    Why.RAW: "the mirror copied what is there raw",
    Why.OLDER: "it is older than what is kept",
    Why.NEWER: "it is behind everything that Shoal has appended",
    Why.DOUBT: "unless a transaction before it was aborted, which its broker does not say now",
    Why.AGAIN: "the mirror has gone back, and has yet to copy it again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """`asked` is at `partition`, the answer is about `other`. `other_cluster`: its id; if that is not known, its name
    or the listener. `why_not`: why the records were not read.
    """

    listener: str
    cluster: str  # id of the source
    partition: TopicPartition
    asked: int
    other: TopicPartition
    other_cluster: str
    answer: Answer
    why_not: str | None = None

    def values(self) -> dict[str, object]:
        answer = self.answer
        return {
            "listener": self.listener,
            "source_cluster": self.cluster,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.asked,
            "other_topic": self.other.topic,
            "other_partition": self.other.partition,
            "exact": answer.why.is_exact,
            "translated": answer.offset,
            "low": answer.low,
            "high": answer.high,
            "why": answer.why.value,
            **({"not_read": self.why_not} if self.why_not else {}),
        }


class Unknown(NamedTuple):
    """Nothing of this partition is known."""

    partition: TopicPartition
    asked: int


def line(found: Translated) -> str:
    answer, other = found.answer, _name(found.other)
    asked = f"{_name(found.partition)} {found.asked}"
    if answer.offset is not None:
        return f"{asked}  ->  {other} {answer.offset}"
    bounds = f"at least {answer.low}" if answer.high is None else f"between {answer.low} and {answer.high}"
    why = f"{_WHY[answer.why]}{f'; {found.why_not}' if found.why_not else ''}"
    return f"{asked}  ->  {other} {bounds} (to continue at {answer.low} misses nothing: {why})"


def unknown_line(unknown: Unknown) -> str:
    where = f"{_name(unknown.partition)} {unknown.asked}"
    return f"{where}  ->  not known: Shoal knows no offsets of this partition ({SAME_OFFSETS})"


def reset_lines(found: Iterable[Translated]) -> list[str]:
    """The lower bound, if it is not exact: it misses nothing. So does the lowest, if topics were merged."""
    lowest: dict[TopicPartition, int] = {}
    for translated in found:
        lowest[translated.other] = min(translated.answer.low, lowest.get(translated.other, translated.answer.low))
    return [f"{topic},{number},{offset}\n" for (topic, number), offset in lowest.items()]


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
