"""Reads a broker's log segments."""

from collections.abc import Iterable

from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.records.recordset import split
from shoal.scenarios.kafka.broker import Node


def log_bytes(node: Node, topic: str, partition: int = 0) -> bytes:
    """All segments of a partition; a broker writes them as it acknowledges."""
    directory = node.data / f"{topic}-{partition}"
    while True:
        try:
            return b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
        except FileNotFoundError:  # the cleaner has just replaced it
            continue


def log_batches(node: Node, topic: str, partition: int = 0) -> list[bytes]:
    log = log_bytes(node, topic, partition)
    return [log[span.start : span.end] for span in split(log, 0, len(log)).spans]


def as_logged(batches: Iterable[bytes], *, base: int = 0, epoch: int = 0) -> list[bytes]:
    """The batches as an unmodified log stores them: with offsets from `base` on and the leader epoch, which the CRC
    does not cover."""
    logged = []
    for batch in batches:
        header = read_batch_header(batch, 0, len(batch))
        logged.append(base.to_bytes(8, "big") + batch[8:12] + epoch.to_bytes(4, "big") + batch[16:])
        base += header.last_offset_delta + 1
    return logged
