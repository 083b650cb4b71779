"""Kafka's own DumpLogSegments reads the batches that we encode, re-stamp, wrap and split: CRC, codec, every record."""

from pathlib import Path

import pytest

from shoal.protocol.records.batch import (
    HEADER_SIZE,
    TRANSACTIONAL,
    NewRecord,
    encode_batch,
    producible_header,
    read_batch_header,
    synthetic_header,
)
from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.records.record import encode_single_record_head
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import crc32c
from shoal.scenarios.kafka.java.tools import run_tool
from tests.support.batches import consumed

RECORDS = [
    NewRecord(
        1_700_000_000_000 + index % 13,
        b"key%d" % index if index % 3 else None,
        b"value%d." % index * (index * 40),  # about 300 kB in all: several blocks of every codec
        ((b"first", b"h"), (b"second", None))[: index % 3],
    )
    for index in range(40)
]


def stamped(codec: Codec) -> bytes:
    """A transactional producer's batch as stored in a source topic."""
    return encode_batch(
        RECORDS,
        base_offset=5000,
        codec=codec,
        attributes=TRANSACTIONAL,
        leader_epoch=7,
        producer_id=11,
        producer_epoch=1,
        base_sequence=80,
    )


def wrapped(inner: bytes) -> bytes:
    head, tail = encode_single_record_head(key=b"envelope", value_length=len(inner), headers=((b"shoal", b"1"),))
    crc = crc32c(inner, crc32c(head))
    length = len(head) + len(inner) + len(tail)
    header = synthetic_header(base_offset=0, max_timestamp=3, body_length=length, crc_of_body=crc32c(tail, crc))
    return header + head + inner + tail


def laid_in_log(batches: list[bytes]) -> bytes:
    """Concatenated, with the offsets that a broker would assign (the CRC does not cover them)."""
    log, offset = b"", 0
    for batch in batches:
        log += offset.to_bytes(8, "big") + batch[8:]
        offset += read_batch_header(batch, 0, len(batch)).last_offset_delta + 1
    return log


def dump_line(record: NewRecord, offset: int) -> str:
    key, value = record.key, record.value
    assert value is not None
    names = ",".join(bytes(name).decode() for name, _ in record.headers)
    return (
        f"| offset: {offset} CreateTime: {record.timestamp} keySize: {-1 if key is None else len(key)} valueSize: "
        f"{len(value)} sequence: -1 headerKeys: [{names}]{'' if key is None else ' key: ' + bytes(key).decode()} "
        f"payload: {bytes(value).decode()}"
    )


@pytest.mark.kafka
async def test_java_reads_what_we_write(tmp_path: Path) -> None:
    batches = []
    for codec in Codec:
        batch = stamped(codec)
        producible = producible_header(batch, 0, len(batch)) + batch[HEADER_SIZE:]
        pieces = split_batch(producible, 0, len(producible), limit=len(producible) // 3)
        batches += [encode_batch(RECORDS, codec=codec), producible, *pieces]
    log = laid_in_log(batches)
    (tmp_path / f"{0:020}.log").write_bytes(log)
    output = await run_tool(
        "DumpLogSegments", "--files", str(tmp_path / f"{0:020}.log"), "--print-data-log", "--deep-iteration"
    )
    lines = output.splitlines()
    headers = [line for line in lines if line.startswith("baseOffset")]
    assert len(headers) == len(batches) > 3 * len(Codec)
    assert [line for line in headers if not line.endswith("isvalid: true")] == []
    assert {line.split("compresscodec: ")[1].split()[0] for line in headers} == {codec.name.lower() for codec in Codec}
    assert {"producerId: -1 producerEpoch: -1" in line and "isTransactional: false" in line for line in headers} == {
        True
    }
    written = [dump_line(record, offset) for offset, record in enumerate(consumed(log))]
    assert len(written) == 3 * len(Codec) * len(RECORDS)
    assert [line for line in lines if line.startswith("|")] == written


@pytest.mark.kafka
async def test_java_reads_a_wrapped_batch(tmp_path: Path) -> None:
    inner = stamped(Codec.ZSTD)
    (tmp_path / f"{0:020}.log").write_bytes(wrapped(inner))
    output = await run_tool(
        "DumpLogSegments", "--files", str(tmp_path / f"{0:020}.log"), "--print-data-log", "--deep-iteration"
    )
    assert "count: 1" in output
    assert "isvalid: true" in output
    assert f"| offset: 0 CreateTime: 3 keySize: 8 valueSize: {len(inner)} sequence: -1 headerKeys: [shoal]" in output
