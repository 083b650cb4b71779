"""Rows of the index: the table's structs agree with the readers' data types."""

from __future__ import annotations

from struct import Struct

from shoal.protocol.capture.index.columns import BATCH, CONTEXT, FIELDS, HEADER_SIZE, NO_RECORDS, ROW_SIZE
from shoal.protocol.records.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from shoal.protocol.records.batch import NewRecord, encode_batch, read_batch_header


def test_a_row_is_its_fields_without_padding() -> None:
    assert sum(Struct(order + field.code).size for field, order in FIELDS) == ROW_SIZE
    assert CONTEXT.size + len(NO_RECORDS) == ROW_SIZE
    assert len({field.name for field, _ in FIELDS}) == len(FIELDS)


def test_the_last_fields_are_the_header_of_a_batch_as_it_is_on_the_wire() -> None:
    data = encode_batch([NewRecord(1_700_000_000_000 + number, b"k", b"v") for number in range(3)], base_offset=7)
    header = read_batch_header(data, 0, len(data))
    fields = [(field, order) for field, order in FIELDS if order == ">"]
    values = Struct(">" + "".join(field.code for field, _ in fields)).unpack_from(data)

    assert HEADER_SIZE == BATCH_HEADER_SIZE
    assert list(values) == [getattr(header, field.name) for field, _ in fields]


def test_a_row_without_records_has_no_magic_and_knows_nothing() -> None:
    assert BATCH.unpack_from(NO_RECORDS) == (-1, -1, -1, -1, -1)
    assert not any(NO_RECORDS[BATCH.size :])
