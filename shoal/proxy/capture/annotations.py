"""What the listeners' paths tell the index of their requests and answers. Nothing is told where there is no index."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from shoal.protocol.capture.index.columns import Handling
from shoal.protocol.capture.index.pending import FetchOutcome, RequestAnnotation, Source, Treatment
from shoal.protocol.shallow.unwrap.reconcile import mismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shoal.protocol.capture.index.tap import Tap
    from shoal.protocol.shallow.unwrap.delivery import Target
    from shoal.protocol.shallow.unwrap.parcel import OutgoingRecordSet
    from shoal.protocol.shallow.unwrap.plan import Item
    from shoal.protocol.shallow.wrap.wrap import Wrapped
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.topic_names import Naming

__all__ = ["CONVERTED", "JUDGED", "NOT_UNWRAPPED", "OWN", "Judgement", "raw", "unwrapped"]

OWN = RequestAnnotation(treatment=Treatment(handling=Handling.OWN))
JUDGED = RequestAnnotation(judged=True)
CONVERTED = RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason="converted for an old client"))
_NO_ENVELOPE = "no envelope"


@lru_cache(maxsize=100)
def raw(reason: str) -> RequestAnnotation:
    """A request that passes as it is."""
    return RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason=str(reason)))


NOT_UNWRAPPED = raw(_NO_ENVELOPE)


class Judgement:
    """What becomes of the partitions of one Fetch answer."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[Topic, int], FetchOutcome] = {}

    def raw(self, place: tuple[Topic, int], reason: str, *, given_below: int | None = None) -> None:
        self._verdicts[place] = FetchOutcome(reason=str(reason), given_below=given_below)

    def withheld(self, place: tuple[Topic, int]) -> None:
        self._verdicts[place] = FetchOutcome(given_below=0)

    def wrapped(self, place: tuple[Topic, int], what: Wrapped) -> None:
        """Where batches are raw for several reasons, it is not told which is raw for which."""
        reason = ", ".join(sorted(str(why) for why, count in what.raw.items() if count)) or None
        inside = [(key.first_offset, key.last_offset) for key in what.envelopes]
        self._verdicts[place] = FetchOutcome(wrapped=inside, reason=reason)

    def give(self, tap: Tap | None, correlation_id: int) -> None:
        if tap is not None:
            tap.judge(correlation_id, self._verdicts)


def unwrapped(
    parcels: Mapping[Target, OutgoingRecordSet], items: Mapping[Target, Sequence[Item]], naming: Naming
) -> RequestAnnotation:
    """A request with these parcels, which are made of these items."""
    sources = {
        (naming.said(target), target.partition): list(_sources(parcel, items[target]))
        for target, parcel in parcels.items()
    }
    return RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason=_NO_ENVELOPE), sources=sources)


def _sources(parcel: OutgoingRecordSet, items: Sequence[Item]) -> Iterable[Source | None]:
    for piece in parcel.pieces:
        item = items[piece.item]
        wrong = None if item.key is None else mismatch(item.headers, item.key)
        for at, records in enumerate(piece.row.records):
            base = item.batches.source_of(piece.batch + at)
            if item.key is None or isinstance(base, str):
                yield None
            else:
                first = base + (0 if at else piece.first)
                yield Source(item.key.topic, item.key.partition, first, first + records - 1, wrong and wrong.kind)
