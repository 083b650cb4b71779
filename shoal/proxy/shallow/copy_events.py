"""Copies that keep the offsets of their source: why one stops, and what the log says of it, for both listeners."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.same_offsets.places import STOPPED_SECONDS
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from shoal.protocol.shallow.same_offsets.places import Places
    from shoal.protocol.wire.types import TopicPartition

__all__ = ["copy_resumed", "source_expired", "stop_copy"]

log = logging.getLogger("shoal.unwrap")


def stop_copy(listener: str, places: Places, source: TopicPartition, why: str, *, leaves_out: bool = False) -> None:
    """The partition waits; logged once for each reason. `leaves_out`: see `Places`."""
    if not places.stop(source, why, trio.current_time(), leaves_out=leaves_out):
        return
    topic, partition = source
    values = event(
        f"listener {listener!r}: {topic}-{partition} of the source is not mirrored with its offsets: {why}. It is "
        f"tried again every {STOPPED_SECONDS:g} s",
        listener=listener,
        topic=topic,
        partition=partition,
        detail=why,
    )
    log.error("same-offsets-stopped", extra=values)


def copy_resumed(listener: str, places: Places, source: TopicPartition) -> None:
    """The copy has grown; logged if it was stopped until now."""
    topic, partition = source
    if places.appended(source) is not None:
        text = f"listener {listener!r}: {topic}-{partition} is mirrored with its offsets again"
        values = event(text, listener=listener, topic=topic, partition=partition)
        log.info("same-offsets-resumed", extra=values)


def source_expired(listener: str, source: TopicPartition, copy_end: int, source_start: int) -> None:
    """The copy ends before the source begins."""
    topic, partition = source
    values = event(
        f"listener {listener!r}: {topic}-{partition}: the source begins at {source_start}, and the copy ends at "
        f"{copy_end}: the records between were deleted before they were mirrored",
        listener=listener,
        topic=topic,
        partition=partition,
        from_offset=copy_end,
        to_offset=source_start - 1,
    )
    log.warning("same-offsets-expired", extra=values)
