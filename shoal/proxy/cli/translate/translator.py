"""Answers from the ranges, made exact by reading the records of a gap where both clusters can be asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.shallow.translate.align import Aligned
from shoal.protocol.shallow.translate.question import Answer, Why
from shoal.proxy.cli.translate.output import Translated
from shoal.proxy.cli.translate.read import MAX_RECORDS, Cannot

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from shoal.protocol.shallow.translate.offset_map import SourcePartition
    from shoal.protocol.shallow.translate.question import UnknownStretch
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cli.translate.read import ClusterReader
    from shoal.proxy.cli.translate.state import Pair

__all__ = ["Translator"]

_MAY_BE_READ = frozenset({Why.RAW, Why.OLDER, Why.NEWER})


class _Read(NamedTuple):
    """`begins`: the first offset of the gap that the source still has."""

    begins: int
    records: int
    aligned: Aligned


class Translator:
    """`sources`: by cluster id. `targets`: by listener. Without them, nothing is read. `copies`: by listener; they say
    what of their topics was aborted.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        *,
        sources: Mapping[str, ClusterReader],
        targets: Mapping[str, ClusterReader],
        to_source: bool,
        copies: Mapping[str, ClusterReader],
        why_not: str | None = None,
    ) -> None:
        self._pairs = pairs
        self._sources = sources
        self._targets = targets
        self._to_source = to_source
        self._copies = copies
        self._why_not = why_not
        self._gaps: dict[tuple[str, SourcePartition, TopicPartition, UnknownStretch], _Read | Cannot] = {}

    def partitions(self) -> list[TopicPartition]:
        """Those that can be translated."""
        return list(dict.fromkeys(self._side(pair)[0] for pair in self._pairs))

    def _side(self, pair: Pair) -> tuple[TopicPartition, TopicPartition]:
        """-> the partition that is asked about, and the one of the answer."""
        ours = pair.source_partition, pair.target
        return (ours[1], ours[0]) if self._to_source else ours

    def _clusters(self, pair: Pair) -> tuple[str, str]:
        """Those of `_side`."""
        ours = pair.source.cluster, pair.target_cluster or pair.listener
        return (ours[1], ours[0]) if self._to_source else ours

    async def translate(
        self, partition: TopicPartition, offset: int, origins: Container[str] | None = None
    ) -> list[Translated]:
        """One answer for each pair that has this partition; none if it is unknown.

        `origins`: clusters of the side that is asked about: several may have a topic of this name. None: all.
        """
        pairs = [pair for pair in self._pairs if self._side(pair)[0] == partition]
        if origins is not None:
            pairs = [pair for pair in pairs if self._clusters(pair)[0] in origins]
        return [await self._of_pair(pair, offset) for pair in pairs]

    async def _of_pair(self, pair: Pair, offset: int) -> Translated:
        answer = pair.known.to_source(offset) if self._to_source else pair.known.to_target(offset)
        why_not = None
        if self._to_source and not answer.why.is_exact:
            answer = await self._before_aborted(pair, offset, answer)
        if answer.why in _MAY_BE_READ:
            try:
                read = await self._read(pair, offset, answer.low)
                answer = answer if read is None else Answer.exact(Why.READ, read)
            except Cannot as error:
                why_not = str(error)
        asked, other = self._side(pair)
        return Translated(
            listener=pair.listener,
            cluster=pair.source.cluster,
            partition=asked,
            asked=offset,
            other=other,
            other_cluster=self._clusters(pair)[1],
            answer=answer,
            why_not=why_not,
        )

    async def _before_aborted(self, pair: Pair, offset: int, answer: Answer) -> Answer:
        """Copies of what an aborted transaction had copied before a gap may be in the gap."""
        known, reader = pair.known, self._copies.get(pair.listener)
        while reader is not None and (first := known.source_gap(offset).target_first):
            offset = (await reader.given_below({pair.target: first})).get(pair.target, -1)
            if offset < 0:
                return answer.in_doubt()
            before = known.to_source(offset)
            answer = answer._replace(low=min(answer.low, before.low))
            if offset == first or before.why.is_exact:
                break
        return answer

    async def _read(self, pair: Pair, offset: int, low: int) -> int | None:
        """To the source from `low` on: what was aborted before the gap is copied again in it. Raises Cannot."""
        gap = pair.known.source_gap(offset) if self._to_source else pair.known.target_gap(offset)
        if self._to_source:
            gap = gap._replace(source_first=low)
        begins, _, aligned = await self._read_once(pair, gap)
        if self._to_source:
            return aligned.source_of(offset)
        return None if offset < begins else aligned.copy_of(offset)  # below it, the target may have more

    async def _read_once(self, pair: Pair, gap: UnknownStretch) -> _Read:
        """Raises Cannot."""
        key = pair.listener, pair.source, pair.target, gap
        if (found := self._gaps.get(key)) is None:
            try:
                found = await self._read_gap(pair, gap)
            except Cannot as error:
                found = error
            self._gaps[key] = found
            while len(self._gaps) > 1 and sum(map(_records, self._gaps.values())) > MAX_RECORDS:
                del self._gaps[next(iter(self._gaps))]
        if isinstance(found, Cannot):
            raise found
        return found

    async def _read_gap(self, pair: Pair, gap: UnknownStretch) -> _Read:
        """The target first: see align.py. Raises Cannot."""
        source, target = self._sources.get(pair.source.cluster), self._targets.get(pair.listener)
        if source is None or target is None:
            raise Cannot(self._why_not or f"the brokers of cluster {pair.source.cluster} are not known")
        read = partial(target.read, pair.target, gap.target_first, gap.target_end, with_aborts=True)
        theirs = await read()
        with_times = not theirs.has_append_times
        if not with_times:  # no copy has the timestamp of its record
            theirs = await read(with_times=False)
        ours = await source.read(pair.source_partition, gap.source_first, gap.source_end, with_times=with_times)
        records = len(ours.records) + len(theirs.records)
        return _Read(ours.first, records, Aligned(gap, ours.records, theirs.records, theirs.end))


def _records(read: _Read | Cannot) -> int:
    return read.records if isinstance(read, _Read) else 0
