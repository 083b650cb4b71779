"""Which batches of an answer belong to aborted transactions, told as the Java consumer tells it (CompletedFetch.java).

A broker lists with an answer the transactions that were aborted in its range: producer id and first offset. From that offset on, the
producer's transactional batches are aborted ones, until its abort marker.
"""

from collections.abc import Sequence
from typing import Final

from shoal.protocol.records.batch import BatchHeader
from shoal.protocol.records.record import read_records
from shoal.protocol.wire.compression import decompress
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["AbortedTransactions"]

_ABORT: Final = 0  # ControlRecordType.java: key = int16 version, int16 type
_MARKERS_LIMIT: Final = 64 * 1024


class AbortedTransactions:
    """`transactions`: (producer id, first offset) of each, in any order; empty when aborted ones are to be read."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(transactions, key=lambda transaction: -transaction[1])
        self._producers: set[int] = set()

    def includes(self, header: BatchHeader, payload: memoryview) -> bool:
        """Is this batch, the next one of the set, of an aborted transaction? `payload` is looked into only where it is a marker."""
        while self._waiting and self._waiting[-1][1] <= header.last_offset:
            self._producers.add(self._waiting.pop()[0])
        if header.producer_id not in self._producers:
            return False
        if header.is_control and _is_abort(header, payload):
            self._producers.discard(header.producer_id)
        return header.is_transactional and not header.is_control


def _is_abort(header: BatchHeader, payload: memoryview) -> bool:
    plain = decompress(header.codec, payload, _MARKERS_LIMIT)
    marker = next(read_records(plain, header.record_count), None)
    if marker is None:  # cleaned away
        return False
    if marker.key is None or len(marker.key) < 4:
        raise RemoteProtocolError("a control record without a type")
    return int.from_bytes(marker.key[2:4], "big") == _ABORT
