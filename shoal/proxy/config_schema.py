"""The keys of `shoal.toml`: `docs/configuration.md` describes them, `config.py` turns them into `Settings`.

Keys are written with hyphens. `None` and `()` mean "not written": the default then is the one in `settings.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "CaptureTable",
    "ClusterTable",
    "CoalescingTable",
    "File",
    "LegacyTable",
    "LimitsTable",
    "ListenerTable",
    "LogTable",
    "RawCaptureTable",
    "ShallowTable",
    "keys_of",
    "unknown_keys",
]

Size = int | str  # bytes, or "512KiB"


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    pass


class ClusterTable(Table, frozen=True, kw_only=True):
    name: str
    bootstrap: str | list[str]
    multi_batch: str = "auto"
    probe_topic: str | None = None


class ShallowTable(Table, frozen=True, kw_only=True):
    mirror_clients: str | None = None
    deep_topics: list[str] | None = None
    partition_by_key: bool | None = None
    run_limit: Size | None = None
    min_batch_bytes: Size | None = None
    fetch_max_bytes: Size | None = None
    partition_max_bytes: Size | None = None
    tags: dict[str, str] | None = None
    same_cluster: bool | None = None
    unpaired: bool | None = None
    evidence_seconds: float | None = None
    evidence_bytes: Size | None = None
    producer_slots: int | None = None
    plain_compression: str | None = None


class CoalescingTable(Table, frozen=True, kw_only=True):
    linger: float | None = None
    request_bytes: Size | None = None
    request_batches: int | None = None
    set_batches: int | None = None
    in_flight: int | None = None
    patience: float | None = None
    queue_bytes: Size | None = None
    ignore_client_ids: bool | None = None


class LegacyTable(Table, frozen=True, kw_only=True):
    chunk_bytes: Size | None = None
    budget_bytes: Size | None = None
    fetch_bytes: Size | None = None
    compression: str | None = None
    isolation: str | None = None


class ListenerTable(Table, frozen=True, kw_only=True):
    name: str
    cluster: str
    listen: str
    ports: str | dict[str, int]
    advertise: str | None = None
    mode: str = "plain"
    pair: str | None = None
    shallow: ShallowTable | None = None
    coalesce: bool = False
    coalescing: CoalescingTable | None = None
    legacy: bool = False
    legacy_options: LegacyTable | None = None
    max_connections: int | None = None


class LimitsTable(Table, frozen=True, kw_only=True):
    frame_bytes: Size | None = None
    held_response_bytes: Size | None = None
    held_request_bytes: Size | None = None
    in_flight: int | None = None
    connect_timeout: float | None = None
    frame_timeout: float | None = None
    stall_timeout: float | None = None
    idle_timeout: float | None = None
    drain_seconds: float | None = None
    linger_seconds: float | None = None
    close_seconds: float | None = None
    keepalive_idle: int | None = None
    keepalive_interval: int | None = None
    keepalive_count: int | None = None
    stall_report: float | None = None
    stall_exit: float | None = None


class RawCaptureTable(Table, frozen=True, kw_only=True):
    directory: str | None = None
    topics: list[str] | None = None
    clients: list[str] | None = None
    apis: list[str] | None = None
    max_file_bytes: Size | None = None
    max_bytes: Size | None = None
    queue_bytes: Size | None = None


class CaptureTable(Table, frozen=True, kw_only=True):
    directory: str
    max_file_bytes: Size | None = None
    roll_seconds: float | None = None
    max_bytes: Size | None = None
    flush_seconds: float | None = None
    has_keys_sample: int | None = None
    raw: RawCaptureTable | None = None


class LogTable(Table, frozen=True, kw_only=True):
    level: str = "info"
    format: str = "human"
    report_every: float = 5.0


class File(Table, frozen=True, kw_only=True):
    cluster: list[ClusterTable]
    listener: list[ListenerTable]
    limits: LimitsTable = LimitsTable()
    log: LogTable = LogTable()
    capture: CaptureTable | None = None
    tags: dict[str, str] | None = None
    state_dir: str | None = None


# Where a table stands inside another: (table, key) -> the table, and whether it is an array of tables ([[key]]).
_INSIDE: dict[tuple[type[Table], str], tuple[type[Table], bool]] = {
    (File, "cluster"): (ClusterTable, True),
    (File, "listener"): (ListenerTable, True),
    (File, "limits"): (LimitsTable, False),
    (File, "log"): (LogTable, False),
    (File, "capture"): (CaptureTable, False),
    (CaptureTable, "raw"): (RawCaptureTable, False),
    (ListenerTable, "shallow"): (ShallowTable, False),
    (ListenerTable, "coalescing"): (CoalescingTable, False),
    (ListenerTable, "legacy-options"): (LegacyTable, False),
}


def keys_of(table: type[Table]) -> tuple[str, ...]:
    """The keys that may be written in a table, in the order of the documentation."""
    return tuple(field.encode_name for field in msgspec.structs.fields(table))


def unknown_keys(raw: dict[str, Any], table: type[Table] = File, path: str = "") -> list[tuple[str, str, type[Table]]]:
    """Every unknown key of the file: (path of its table, key, the table that it stands in)."""
    found = [(path, key, table) for key in raw if key not in keys_of(table)]
    for key, value in raw.items():
        inner, is_array = _INSIDE.get((table, key), (None, False))
        if inner is None:
            continue
        for place, child in _children(f"{path}{key}", value, is_array=is_array):
            found += unknown_keys(child, inner, f"{place}.")
    return found


def _children(path: str, value: object, *, is_array: bool) -> list[tuple[str, dict[str, Any]]]:
    if is_array and isinstance(value, list):
        return [(f"{path}[{index}]", child) for index, child in enumerate(value) if isinstance(child, dict)]
    return [(path, value)] if not is_array and isinstance(value, dict) else []
