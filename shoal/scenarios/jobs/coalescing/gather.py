"""Captured rows -> the batches that clients sent, packed by broker and time slice, where they are read. Needs no Spark.

A packed row has thousands of batches in one value, so Spark moves few rows, however many batches there are. Names are
hashed to numbers, since each task has its own dictionaries.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shoal.scenarios.jobs.coalescing.arrivals import ARRIVAL, COLUMNS, IS_ALONE, IS_ERROR, IS_LONE
from shoal.scenarios.jobs.columns.groups import grouped, is_word
from shoal.scenarios.jobs.columns.pieces import encoded, numbers, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["BROKER", "LOGIN", "LOGIN_READS", "PACKED", "READS", "logins", "pack", "unpacked"]

Columns = dict[str, pa.Array]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

READS: Final = (
    *("time_ns", "latency_ns", "proxy", "connection", "request", "client", "listener", "cluster", "node", "kind"),
    *("direction", "handling", "api_version", "topic", "partition", "records", "batch_bytes", "codec"),
    *("producer_id", "producer_epoch", "base_sequence", "transactional", "control", "acks", "error", "request_bytes"),
)
LOGIN_READS: Final = ("proxy", "connection", "handling", "api_key")
LOGIN: Final = pa.schema([("proxy", pa.string()), ("connection", pa.int64())])
BROKER: Final = ("cluster", "listener", "proxy", "node")
PACKED: Final = pa.schema(
    [
        *((name, pa.int32() if name == "node" else pa.string()) for name in BROKER),
        ("slice", pa.int64()),
        ("arrivals", pa.binary()),
    ]
)
"""`arrivals`: an array of ARRIVAL."""
_PIECE: Final = 250_000
"""Rows in memory at a time."""
_PACKED: Final = 4096
"""Batches in a packed row: 300 kB. A value above half a region is expensive for Java's collector."""
_LARGEST: Final = 64 * 1024  # proxy/coalesce/path.py: LARGEST_REQUEST
_OLDEST, _ZSTD_FROM = 3, 7  # joinable.py
_SASL: Final = (17, 36)
_PARTITIONS, _PRODUCERS = np.int64(0x1E3779B97F4A7C15), np.int64(0x2545F4914F6CDD1D)
"""Odd: products of different numbers differ."""


def logins(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Connections whose clients, not Shoal, log in at the broker, as LOGIN; perhaps several times."""
    for batch in batches:
        column = encoded(pa.Table.from_batches([batch]))
        theirs = np.isin(column["api_key"].to_numpy(), _SASL) & ~is_word(column["handling"], "own")
        if theirs.any():
            yield pa.RecordBatch.from_arrays(
                [column[name].filter(pa.array(theirs)).cast(LOGIN.field(name).type) for name in LOGIN.names],
                schema=LOGIN,
            )


def pack(
    logged_in: Mapping[str, Longs], slice_seconds: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`logged_in`: proxy -> connections of `logins`. `batches`: with READS. -> PACKED, in the order of their file."""
    for piece in pieces(batches, _PIECE):
        column = _sent(piece)
        if not len(column["time_ns"]):
            continue
        rows = _arrivals(column, logged_in)
        slices = rows["time_ns"] // (slice_seconds * 1_000_000_000)
        groups = grouped([*(column[name] for name in BROKER), slices])
        parts = [rows] if len(groups) == 1 else [rows[groups.codes == code] for code in range(len(groups))]
        packed = [(code, values) for code, part in enumerate(parts) for values in _divided(part)]
        first = groups.first[[code for code, _ in packed]]
        found = {name: column[name].take(pa.array(first)) for name in BROKER}
        found |= {"slice": pa.array(slices[first]), "arrivals": pa.array([values.tobytes() for _, values in packed])}
        yield pa.RecordBatch.from_arrays([found[field.name].cast(field.type) for field in PACKED], schema=PACKED)


def _divided(rows: npt.NDArray[np.void]) -> Iterator[npt.NDArray[np.void]]:
    return (rows[at : at + _PACKED] for at in range(0, len(rows), _PACKED))


def unpacked(packed: Iterable[pa.BinaryScalar]) -> dict[str, npt.NDArray[Any]]:
    """The fields of ARRIVAL."""
    rows = np.concatenate([np.frombuffer(each.as_buffer(), ARRIVAL) for each in packed])
    return {name: rows[name] for name in COLUMNS}


def _sent(piece: pa.Table) -> Columns:
    """Rows of batches from clients. Those of a coalescing listener are joined already."""
    column = encoded(piece)
    sent = is_word(column["kind"], "batch") & is_word(column["direction"], "produced")
    sent &= ~(is_word(column["handling"], "coalesced") | is_word(column["handling"], "own"))
    return column if sent.all() else {name: each.filter(pa.array(sent)) for name, each in column.items()}


def _arrivals(column: Columns, logged_in: Mapping[str, Longs]) -> npt.NDArray[np.void]:
    connection, producer = numbers(column["connection"]), numbers(column["producer_id"], -1)
    target = _hashes(column["topic"]) ^ (numbers(column["partition"], -1) * _PARTITIONS)
    epoch = numbers(column["producer_epoch"], -1) & 0xFFFF
    rows = np.empty(len(connection), ARRIVAL)
    rows["time_ns"] = numbers(column["time_ns"])
    rows["latency_ns"] = numbers(column["latency_ns"], -1)
    rows["source"] = connection
    rows["request"] = connection << 32 | numbers(column["request"])
    rows["client"] = _hashes(column["client"])
    rows["kind"] = numbers(column["api_version"]) * 8 + numbers(column["acks"], 2)
    rows["target"] = target
    rows["size"] = numbers(column["batch_bytes"])
    rows["producer"] = np.where(producer >= 0, target ^ ((producer << 16 | epoch) * _PRODUCERS), 0)
    rows["sequence"] = numbers(column["base_sequence"])
    rows["records"] = numbers(column["records"])
    rows["flags"] = _is_alone(column, logged_in) * IS_ALONE
    rows["flags"] |= (producer >= 0) * IS_LONE | (numbers(column["error"]) != 0) * IS_ERROR
    return rows


def _is_alone(column: Columns, logged_in: Mapping[str, Longs]) -> Flags:
    version = numbers(column["api_version"])
    sizes = pc.coalesce(column["request_bytes"], column["batch_bytes"])
    alone: Flags = (numbers(column["transactional"]) | numbers(column["control"])) != 0
    alone |= (version < _OLDEST) | (numbers(sizes) > _LARGEST)
    alone |= is_word(column["codec"], "zstd") & (version < _ZSTD_FROM)
    alone |= column["node"].is_null().to_numpy(zero_copy_only=False)
    for proxy, connections in logged_in.items():
        alone |= is_word(column["proxy"], proxy) & np.isin(numbers(column["connection"]), connections)
    return alone


def _hashes(column: pa.DictionaryArray) -> Longs:
    hashes = [_hash(name) for name in column.dictionary.to_pylist()]
    places = column.indices.fill_null(len(hashes)).to_numpy()
    found: Longs = np.array([*hashes, 0], np.int64)[places]
    return found


def _hash(name: Any) -> int:
    return int.from_bytes(blake2b(str(name).encode(), digest_size=8).digest(), "little", signed=True)
