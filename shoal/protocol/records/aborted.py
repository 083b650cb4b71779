"""Which batches of a Fetch response belong to aborted transactions, by the Java consumer's rule (CompletedFetch.java).

A response lists the transactions aborted in its range: producer id and first offset. From that offset on, the
producer's transactional batches are aborted, up to its abort marker.
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
    """`transactions`: (producer id, first offset) of each, in any order; empty to read aborted records, too."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(transactions, key=lambda transaction: -transaction[1])
        self._producers: set[int] = set()

    def includes(self, header: BatchHeader, payload: memoryview) -> bool:
        """True if this batch, the next of the set, belongs to an aborted transaction. `payload` is read only for
        markers."""
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
    if marker is None:  # removed by compaction
        return False
    if marker.key is None or len(marker.key) < 4:
        raise RemoteProtocolError("a control record without a type")
    return int.from_bytes(marker.key[2:4], "big") == _ABORT
