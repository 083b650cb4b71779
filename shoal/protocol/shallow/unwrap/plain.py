"""Produce side: what a mirror sends raw and uncompressed (its producer should not compress envelopes again) may be compressed
here, the whole payload in one go: no record is decoded, and producer id, epoch and sequence stay as they are.
"""

from shoal.protocol.records.batch import HEADER_SIZE, read_batch_header, require_crc
from shoal.protocol.records.recordset import split
from shoal.protocol.wire.compression import Codec, compress
from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["compress_plain"]


def compress_plain(frame: Buffer, start: int, end: int, codec: Codec) -> list[Buffer] | None:
    """The record set `frame[start:end]` with its one uncompressed batch compressed; None = forward it as it is.

    So is what would not become smaller, and whatever a broker would refuse: a new checksum must not bless damage.
    """
    try:
        spans, tail = split(frame, start, end)
        if codec is Codec.NONE or len(spans) != 1 or tail != end:
            return None
        header = read_batch_header(frame, start, end)
        if header.codec or header.is_control:
            return None
        require_crc(header, frame, start, end)
    except RemoteProtocolError:
        return None
    payload = compress(codec, memoryview(frame)[start + HEADER_SIZE : end])
    if len(payload) >= end - start - HEADER_SIZE:
        return None
    head = bytearray(memoryview(frame)[start : start + HEADER_SIZE])
    head[8:12] = (HEADER_SIZE - 12 + len(payload)).to_bytes(4, "big")  # batchLength
    head[21:23] = (header.attributes | codec).to_bytes(2, "big", signed=True)
    head[17:21] = crc32c(payload, crc32c(head[21:])).to_bytes(4, "big")
    return [head, payload]
