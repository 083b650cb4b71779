"""Targets: record sets, batches, records, codecs."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from shoal.protocol.records.batch import (
    HEADER_SIZE,
    TRANSACTIONAL,
    NewRecord,
    body_crc,
    encode_batch,
    open_batch,
    producible_header,
    read_batch_header,
)
from shoal.protocol.records.key_sample import has_keys
from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.records.record import Record, read_records, write_record
from shoal.protocol.records.recordset import split
from shoal.protocol.wire.compression import Codec, compress, decompress, stated_size
from tests.fuzz.target import Target, padded

__all__ = ["TARGETS", "batch_seeds", "sealed", "set_seeds"]

LIMIT = 1 << 20
TEXT = b'{"id": 17, "name": "shoal", "tags": ["a", "b"]}, ' * 40
RECORDS = (
    NewRecord(1_700_000_000_000, None, None),
    NewRecord(1_700_000_000_001, b"key", b"", ((b"h", None), (b"", b"x"))),
    NewRecord(1_600_000_000_000, b"", TEXT),
)


def batch_seeds() -> list[bytes]:
    """Batches of every codec; of one record, of several."""
    return [
        encode_batch(RECORDS[:count], base_offset=7, codec=codec, attributes=bits, producer_id=4)
        for codec, count, bits in product(Codec, (1, 3), (0, TRANSACTIONAL))
    ]


def set_seeds() -> list[bytes]:
    one, *others = batch_seeds()
    return [one, one + others[0], others[3] + others[5][:-9], b"".join(others[::4])]


def sealed(data: bytes) -> bytes:
    """With a correct CRC, so that damage passes the check."""
    return data[:17] + body_crc(data, 0, len(data)).to_bytes(4, "big") + data[21:] if len(data) > HEADER_SIZE else data


def _open(data: bytes) -> None:
    header, records = open_batch(*padded(data), limit=LIMIT)
    for record in records:
        header.timestamp(record)


def _read_header(data: bytes) -> None:
    header = read_batch_header(*padded(data))
    assert header.codec in Codec
    assert header.size <= len(data)


def _read_records(data: bytes) -> None:
    for payload in (data[2:], memoryview(bytearray(data[2:]))):
        list(read_records(payload, int.from_bytes(data[:2], "big", signed=True)))


def _cut(data: bytes) -> None:
    for limit in (100, 10_000):
        split_batch(*padded(sealed(data)), limit=limit, max_decompressed=LIMIT)


def _decompress(codec: Codec, data: bytes) -> None:
    assert len(decompress(codec, data, LIMIT)) <= LIMIT


def _stated_size(data: bytes) -> None:
    """Never raises."""
    for codec in Codec:
        size = stated_size(codec, data)
        assert size is None or size >= 0


def _has_keys(data: bytes) -> None:
    """Never raises."""
    for attributes in range(-1, 8):
        has_keys(attributes, data)


def _packed(codec: Codec) -> Callable[[], Sequence[bytes]]:
    return lambda: [compress(codec, plain) for plain in (b"", b"x", TEXT, TEXT * 60)]


def _record_seeds() -> list[bytes]:
    written = [
        write_record(
            Record(index, record.timestamp - RECORDS[0].timestamp, record.key, record.value, tuple(record.headers))
        )
        for index, record in enumerate(RECORDS)
    ]
    return [len(part).to_bytes(2, "big") + b"".join(part) for part in (written[:1], written[:2], written)]


TARGETS = [
    Target("recordset.split", lambda data: split(*padded(data)), set_seeds),
    Target("batch.read_batch_header", _read_header, batch_seeds),
    Target("batch.producible_header", lambda data: producible_header(*padded(data)), batch_seeds),
    Target("batch.open_batch", _open, batch_seeds),
    Target("batch.open_batch, CRC right", lambda data: _open(sealed(data)), batch_seeds),
    Target("rebatch.split_batch", _cut, batch_seeds),
    Target("record.read_records", _read_records, _record_seeds),
    *(
        Target(f"compression.decompress {codec.name.lower()}", partial(_decompress, codec), _packed(codec))
        for codec in Codec
    ),
    Target("compression.stated_size", _stated_size, lambda: [seed for codec in Codec for seed in _packed(codec)()]),
    Target("key_sample.has_keys", _has_keys, lambda: [batch[HEADER_SIZE:] for batch in batch_seeds()]),
]
