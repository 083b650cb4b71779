"""The cascade as a stateful operator of Spark: a bucket of keys is one key of its state.

Rejected: one state key for each topic and client. Each access to the state is a round trip between Python and Java (0.1
ms and more), so thousands of counters need few values: a bucket's chunks, and `meta`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from shoal.scenarios.jobs.cascade.cells import COUNTERS, FORMAT, Counted, Keys
from shoal.scenarios.jobs.cascade.levels import Bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from shoal.scenarios.jobs.cascade.levels import CascadeSettings, Flows

__all__ = ["FLOW", "CascadeProcessor"]

FLOW: Final = ", ".join(
    [
        "level int, window long, topic string, client string",
        *(f"{name} long, {name}_diff long" for name in COUNTERS),
        "version int, final boolean, late boolean, orphan boolean, past double, past_windows int",
    ]
)


class _Meta(msgspec.Struct, array_like=True):
    clock: int | None
    chunks: list[tuple[int, int, bool]]


class _SparkStore:
    """`Store` in the state of Spark."""

    def __init__(self, meta: Any, chunks: Any) -> None:
        self._meta, self._values = meta, chunks
        stored = meta.get()
        known = _Meta(None, []) if stored is None else msgspec.msgpack.decode(stored[0], type=_Meta)
        self.clock = known.clock
        self.chunks = {(level, number): waits for level, number, waits in known.chunks}

    def get(self, level: int, number: int) -> bytes | None:
        found = self._values.getValue((level, number))
        return None if found is None else bytes(found[0])

    def put(self, level: int, number: int, data: bytes) -> None:
        self._values.updateValue((level, number), (data,))

    def remove(self, level: int, number: int) -> None:
        self._values.removeKey((level, number))

    def save(self) -> None:
        chunks = [(level, number, waits) for (level, number), waits in self.chunks.items()]
        self._meta.update((msgspec.msgpack.encode(_Meta(self.clock, chunks)),))


class CascadeProcessor(StatefulProcessor):
    def __init__(self, settings: CascadeSettings) -> None:
        self._settings = settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._meta = handle.getValueState(f"meta{FORMAT}", "data binary")
        self._chunks = handle.getMapState(f"chunks{FORMAT}", "level int, number long", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(rows), ignore_index=True)
        store = _SparkStore(self._meta, self._chunks)
        bucket = Bucket(self._settings, store, int(key[0]))
        flows = list(bucket.turn(_counted(frame[frame["beat"].isna()]), int(frame["captured"].max())))
        store.save()
        if flows:
            yield pd.concat(map(_rows, flows), ignore_index=True)

    def close(self) -> None:
        pass


def _counted(increments: pd.DataFrame) -> Counted:
    topic, client = (pa.array(increments[name], pa.string()) for name in ("topic", "client"))
    keys = Keys(increments["window"].to_numpy(np.int64), topic, client)
    return Counted.summed(keys, increments[list(COUNTERS)].to_numpy(np.int64))


def _rows(flows: Flows) -> pd.DataFrame:
    """Columns of FLOW."""
    sums = {name: (flows.total[:, at], flows.diff[:, at]) for at, name in enumerate(COUNTERS)}
    columns = {
        "level": flows.level,
        **{name: getattr(flows.keys, name) for name in flows.keys._fields},
        **{
            f"{name}{mark}": each for name, both in sums.items() for mark, each in zip(("", "_diff"), both, strict=True)
        },
        **{name: getattr(flows, name) for name in ("version", "final", "late", "orphan", "past", "past_windows")},
    }
    return pd.DataFrame(columns)
