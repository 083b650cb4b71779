"""The offsets that an unwrapping listener gave to source records, for `shoal translate`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.translate.offset_map import AppendedRange, SourcePartition
from shoal.proxy.shallow.files.offsets import OffsetsFile, OffsetsState

if TYPE_CHECKING:
    from collections.abc import Callable, Set
    from pathlib import Path

    from shoal.protocol.shallow.unwrap.findings import OffsetsAppended
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitors

__all__ = ["Translation"]

_AGAIN_SECONDS = 30.0  # between two attempts to write the file anew


class Translation:
    """Call `flush` after each request of a mirror."""

    def __init__(
        self,
        listener: str,
        monitors: MirrorMonitors,
        path: Path | None = None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._monitors = monitors
        self._file = OffsetsFile(listener, path, failed)
        self._is_kept = path is not None
        self._state = OffsetsState()
        self._new: dict[TopicPartition, AppendedRange] = {}
        self._lines: list[str] = []
        self._due_at = float("-inf")

    def begin(self) -> None:
        """Raises OperatorError."""
        if self._is_kept:
            self._state = self._file.load()
            self._file.anew(self._file.write_anew(self._file.begin_anew(self._state)))

    def identified(self, cluster: str) -> None:
        """The target is this cluster. What is known of another one does not apply."""
        known = self._state.cluster
        if cluster == known:
            return
        if known is not None:
            self._file.discard(f"of cluster {known}, and this is {cluster}")
            self._state, self._new, self._lines = OffsetsState(), {}, []
            self._due_at = float("-inf")
        self._state.cluster = cluster
        self._file.add(self._file.line({"cluster": cluster}))

    def appended(self, found: OffsetsAppended) -> None:
        if not self._is_kept:
            return
        target, key = found.partition, found.key
        cluster, topic_id = self._monitors.source_of(key.cluster, key.topic)
        if topic_id is not None:
            self._identify(cluster, key.topic, topic_id)
        source = SourcePartition(cluster, key.topic, key.partition)
        self._state.known.add(target, source, found.source_first, found.target_first, found.records)
        new = AppendedRange(found.target_first, found.source_first, found.records, source)
        last = self._new.get(target)
        if last is not None and last.target_end == new.target_first and last.same_as(new):
            self._new[target] = last.joined(new)
            return
        if last is not None:
            self._lines.append(self._file.appended(target, last))
        self._new[target] = new

    def _identify(self, cluster: str, topic: str, topic_id: bytes) -> None:
        """Source offsets of a topic that was made anew start again."""
        known = self._state.topic_ids.get((cluster, topic))
        if known == topic_id:
            return
        self._state.topic_ids[cluster, topic] = topic_id
        self.flush()
        if known is not None and self._state.known.forget_source(cluster, topic):
            self._lines.append(self._file.line({"forget_source": [cluster, topic]}))
        self._lines.append(self._file.line({"topic": [cluster, topic], "id": topic_id.hex()}))

    def forget_target(self, topic: str) -> None:
        """The target's topic was deleted, and perhaps made anew."""
        self.flush()
        if self._state.known.forget_target(topic):
            self._file.add(self._file.line({"forget_target": topic}))

    def source_truncated(self, cluster: str, partitions: Set[TopicPartition]) -> None:
        """The source partitions have lost records, and give their offsets to others. From which offset on is not known:
        the new leader may have appended some before it was asked.
        """
        self.flush()
        sources = {SourcePartition(cluster, *partition) for partition in partitions}
        if self._state.known.forget_partitions(sources):
            self._file.add(self._file.line({"forget_partitions": sorted(sources)}))

    def flush(self) -> None:
        """To the file."""
        if not self._new and not self._lines:
            return
        lines = [*self._lines, *(self._file.appended(target, new) for target, new in self._new.items())]
        self._lines, self._new = [], {}
        self._file.add("".join(lines))

    def tick(self, listener: Listener, now: float) -> None:
        if now >= self._due_at and self._file.is_due and listener.may_spawn:
            self._due_at = now + _AGAIN_SECONDS
            self.flush()
            listener.spawn(partial(self._write_anew))

    async def _write_anew(self) -> None:
        lines = self._file.begin_anew(self._state)
        fd: int | None = None
        try:
            fd = await trio.to_thread.run_sync(self._file.write_anew, lines)
        finally:
            self._file.anew(fd)

    def statistics(self) -> dict[str, int]:
        return {"ranges": len(self._state.known), "partitions": sum(1 for _ in self._state.known.targets())}

    def end(self) -> None:
        self.flush()
        self._file.close()
