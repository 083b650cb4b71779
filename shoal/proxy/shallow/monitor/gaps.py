"""Gaps of the mirrors of one wrapping listener: one log line each, counters, and partitions that wait for an operator.

With `on-gap = "stop"` a mirror gets no records of a partition with a gap, as if there were none: it asks again, logs
nothing, and keeps its offset. Error codes were rejected: consumers log most of them at every request, and reset their
offset, or fail, at the others.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from shoal.protocol.shallow.monitor.gap import GapKind
from shoal.proxy.cluster.state_files import NotOurs, put_away
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.quantities import utc
from shoal.proxy.config.settings import OnGap
from shoal.proxy.events.logs import event
from shoal.proxy.shallow.files.gaps import ALL, MOST_GAPS, SeenGap, read_gaps, take_acknowledged, write_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.shallow.monitor.mirrors import MirrorGap
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.listener.listener import Listener

__all__ = ["Gaps"]

log = logging.getLogger("shoal.mirror")

_WORDS = {
    GapKind.DELETED: "they expired or were deleted before they were mirrored",
    GapKind.SKIPPED: "the source still has them: was the mirror reset, or did it run without Shoal?",
    GapKind.TRUNCATED: "the source has lost them (an unclean leader election), and the target may have them",
    GapKind.RECREATED: "the topic was deleted and created again before they were mirrored",
}


class Gaps:
    """`stopped`: mirrors and partitions that wait, if `on-gap` is `stop`.

    Raises OperatorError if the file is not Shoal's.
    """

    def __init__(self, listener: Listener) -> None:
        self.counts = Counter[GapKind](dict.fromkeys(GapKind, 0))
        self.stopped = frozenset[tuple[str, "TopicPartition"]]()
        self._changes = 0
        self._listener = listener
        file = listener.settings.mirrored_file
        self._path = None if file is None else file.with_suffix(".gaps")
        self._seen = self._load()
        self._note_stopped()

    def _load(self) -> list[SeenGap]:
        if self._path is None:
            return []
        try:
            return read_gaps(self._path)
        except NotOurs as error:
            raise OperatorError.of(f"listener {self._listener.name!r}", str(error)) from None
        except (OSError, ValueError) as error:
            self._discard(str(error))
            return []

    def _discard(self, why: str) -> None:
        assert self._path is not None
        name, (what, kept_as) = self._listener.name, put_away(self._path, why)
        text = f"listener {name!r}: {what}: partitions that were stopped at a gap go on"
        values = event(text, listener=name, file=str(self._path), kept_as=kept_as, error=why)
        log.warning("gaps-file-discarded", extra=values)

    @property
    def limits(self) -> tuple[int, bool]:
        """Changes when a partition is stopped, or goes on."""
        return self._changes, self._stops

    @property
    def _stops(self) -> bool:
        return self._listener.settings.shallow.on_gap is OnGap.STOP

    def is_stopped(self, mirror: str, partition: TopicPartition) -> bool:
        return bool(self.stopped) and self._stops and (mirror, partition) in self.stopped

    def report(self, found: Iterable[MirrorGap]) -> None:
        """Written before anything that follows: a restart of Shoal must not let a stopped partition go on."""
        for each in found:
            mirror, partition, gap = each
            self.counts[gap.kind] += 1
            seen = SeenGap(
                at=utc(time.time()),
                mirror=mirror,
                topic=partition.topic,
                partition=partition.partition,
                kind=gap.kind.name.lower(),
                from_offset=gap.first,
                to_offset=gap.end,
                stops=self._stops and gap.records > 0,
            )
            self._seen.append(seen)
            log.warning("mirror-gap", extra=self._event(self._sentence(each, seen), each))
        self._keep()

    def _keep(self) -> None:
        waiting = [gap for gap in self._seen[:-MOST_GAPS] if gap.stops]
        self._seen = [*waiting, *self._seen[-MOST_GAPS:]]
        self._note_stopped()
        if self._path is None:
            return
        try:
            write_gaps(self._path, self._seen)
        except OSError as error:
            self._listener.state_failed()
            text = f"listener {self._listener.name!r}: cannot write {self._path}: {error.strerror or error}"
            values = event(text, listener=self._listener.name, file=str(self._path), error=str(error))
            log.error("gaps-file-not-written", extra=values)

    def _note_stopped(self) -> None:
        stopped = frozenset(gap.place for gap in self._seen if gap.stops)
        self._changes += stopped != self.stopped
        self.stopped = stopped

    def tick(self) -> None:
        """Take what an operator has acknowledged."""
        try:
            names = take_acknowledged(self._path) if self._path is not None else frozenset[str]()
        except OSError:  # the next tick tries again
            return
        waiting = [gap for gap in self._seen if gap.stops and (gap.name in names or ALL in names)]
        if not waiting:
            return
        self._seen = [gap.acknowledged() if gap in waiting else gap for gap in self._seen]
        for name in sorted({gap.name for gap in waiting}):
            text = f"listener {self._listener.name!r}: {name} goes on: its gap is acknowledged"
            log.info("mirror-gap-acknowledged", extra=event(text, listener=self._listener.name, name=name))
        self._keep()

    def warn_of_loss(self, found: MirrorGap) -> None:
        """A mirror that does not run will find records gone."""
        mirror, _, gap = found
        text = (
            f"{self._where(found)}: offsets {gap.first}..{gap.end - 1} are gone from the log, and {mirror} has not "
            "mirrored them: it does not run, and the log is deleted meanwhile"
        )
        log.warning("mirror-gap-ahead", extra=self._event(text, found))

    def _where(self, found: MirrorGap) -> str:
        return f"{found.partition.topic}-{found.partition.partition} of cluster {self._listener.cluster.name!r}"

    def _sentence(self, found: MirrorGap, seen: SeenGap) -> str:
        mirror, _, gap = found
        if not gap.records:
            known = f"all that is known of it, up to offset {gap.end}"
            return f"{self._where(found)}: the topic was deleted and created again; {mirror} had mirrored {known}"
        offsets = f"offsets {gap.first}..{gap.end - 1} ({gap.records} records at most)"
        stopped = (
            f". The mirror gets nothing more of it until: shoal gaps --acknowledge {seen.name}" if seen.stops else ""
        )
        return f"{self._where(found)}: {mirror} passes over {offsets}: {_WORDS[gap.kind]}{stopped}"

    def _event(self, text: str, found: MirrorGap) -> dict[str, object]:
        mirror, partition, gap = found
        return event(
            text,
            listener=self._listener.name,
            cluster=self._listener.cluster.name,
            mirror=mirror,
            topic=partition.topic,
            partition=partition.partition,
            kind=gap.kind.name.lower(),
            from_offset=gap.first,
            to_offset=gap.end,
        )
