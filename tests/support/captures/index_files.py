"""Rows and files of the index, written with the format's structs and without numpy, and the expected columns of a
row."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from shoal.protocol.capture.index.blocks import BlockType, encode_block, encode_names, encode_object
from shoal.protocol.capture.index.columns import FIELDS, ROW_SIZE, VERSION, Direction, Handling, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NAMES", "PROXY", "encode_row", "rows", "shown", "start_block", "whole_file"]

PROXY: Final = "0badcafe"
NAMES: Final = {1: "orders", 2: "payments", 3: "small-producer", 4: "librdkafka/2.16.1", 5: "", 9: "größer"}
_LIMITS: Final = {"b": 1 << 7, "B": 1 << 8, "h": 1 << 15, "i": 1 << 31, "I": 1 << 32, "q": 1 << 63}
_CHOICES: Final[Mapping[str, Iterable[int]]] = {
    "kind": range(2),
    "direction": range(3),
    "handling": range(6),
    "has_keys": (-1, 0, 1),
    "magic": (0, 1, 2),
}


def _numbers(code: str) -> st.SearchStrategy[int]:
    limit = _LIMITS[code]
    low = 0 if code.isupper() else -limit
    return st.sampled_from([low, limit - 1, -1 if low else 0, 0, 1]) | st.integers(low, limit - 1)


def _values(name: str, code: str, is_name: bool) -> st.SearchStrategy[int]:
    if is_name:
        return st.sampled_from([0, *NAMES])
    if name in _CHOICES:
        return st.sampled_from(list(_CHOICES[name]))
    unknown = st.sampled_from([-32768 if name == "error" else -2 if name == "acks" else -1])
    return _numbers(code) if code.isupper() else _numbers(code) | unknown


rows: Final = st.fixed_dictionaries(
    {field.name: _values(field.name, field.code, field.name_number) for field, _ in FIELDS}
).filter(lambda row: row["log_offset"] + row["last_offset_delta"] < 1 << 63 and row["batch_length"] < (1 << 31) - 12)


def encode_row(**fields: int) -> bytes:
    """Missing fields are 0."""
    return b"".join(Struct(order + field.code).pack(fields.get(field.name, 0)) for field, order in FIELDS)


def start_block(**changes: Any) -> bytes:
    fields = {"version": VERSION, "row_size": ROW_SIZE, "proxy": PROXY, "number": 1, "started_ns": 1, "tags": {}}
    return encode_object(BlockType.START, fields | changes)


def whole_file(payloads: Iterable[bytes], names: Mapping[int, str] = NAMES) -> bytes:
    """One block of rows for each payload."""
    blocks = [encode_block(BlockType.ROWS, payload) for payload in payloads]
    return b"".join([start_block(), encode_names(names), *blocks])


def shown(row: Mapping[str, int], names: Mapping[int, str] = NAMES) -> dict[str, Any]:
    """The columns of a row, directly from the format; `decode` does this for whole columns."""

    def name(field: str, nothing: str | None = None) -> str | None:
        return names.get(row[field], f"?{row[field]}") if row[field] else nothing

    def known(field: str, unknown: int = -1) -> int | None:
        return None if row[field] == unknown else row[field]

    header = row["magic"] == 2
    offset = known("log_offset") if row["log_offset"] >= 0 else None
    bits = row["attributes"]
    keys = known("has_keys")
    return {
        "time_ns": row["time_ns"],
        "latency_ns": known("latency_ns"),
        "proxy": PROXY,
        "connection": row["connection"],
        "request": row["request"],
        "client": name("client", ""),
        "software": name("software", ""),
        "listener": name("listener", ""),
        "cluster": name("cluster", ""),
        "node": known("node"),
        "kind": Kind(row["kind"]).name.lower(),
        "direction": Direction(row["direction"]).name.lower(),
        "handling": Handling(row["handling"]).name.lower(),
        "reason": name("reason"),
        "api_key": row["api_key"],
        "api_version": row["api_version"],
        "topic": name("topic"),
        "partition": known("partition"),
        "base_offset": known("log_offset"),
        "last_offset": offset + row["last_offset_delta"] if header and offset is not None else None,
        "records": row["record_count"],
        "batch_bytes": row["batch_length"] + 12 if header else 0,
        "raw_bytes": known("raw_bytes"),
        "codec": ["none", "gzip", "snappy", "lz4", "zstd", None, None, None][bits & 7] if header else None,
        "base_timestamp": known("base_timestamp") if header else None,
        "max_timestamp": known("max_timestamp") if header else None,
        "timestamp_type": ("append" if bits & 8 else "create") if header else None,
        "producer_id": known("producer_id") if header else None,
        "producer_epoch": known("producer_epoch") if header else None,
        "base_sequence": known("base_sequence") if header else None,
        "transactional": bool(bits & 16),
        "control": bool(bits & 32),
        "acks": known("acks", -2),
        "error": known("error", -32768),
        "throttle_ms": row["throttle_ms"],
        "request_bytes": known("request_bytes"),
        "response_bytes": known("response_bytes"),
        "has_keys": None if keys is None else bool(keys),
        "source_topic": name("source_topic"),
        "source_partition": known("source_partition"),
        "source_first": known("source_first"),
        "source_last": known("source_last"),
    }
