"""Is the copy complete? Batches fetched from a source cluster against batches produced to a target cluster.

There are three methods, because a mirror can work in three ways. All compare what brokers stored: a fetched batch is
identified by its offsets, a produced one by the offset in the broker's answer, so a batch that was fetched twice, or
resent and stored once, counts once.

    exact       Shoal unwrapped the batch at the target and recorded the source offsets that it carries. Each source
                batch must be covered once, whole or in the parts into which it was cut for the target. A batch that is
                never covered is missing, unless it is among the last of its partition: then it may be in transit
                (`tolerance` batches, 1 by default; 0 once traffic has ended). A batch that is covered twice is doubled.
    by offset   Exact, and the copy is a mirror topic (`fenced` batches, probes): each batch must be at its source's
                offset, by the broker's answer. Aborted batches must not be there. Where answers were lost, Shoal asks
                the target where its log ends: what was sent last is `below_end`, and the batch before the end is sent
                again.
    cumulative  The mirror decompressed and made new batches. Records are counted by the minute of their batch's
                newest timestamp, cumulatively. As a batch straddles minutes, the sums of source and target may differ
                by at most the records of the largest batch. The target may also lack the records of a minute that
                closely follow later ones in the source's log: the mirror may have put them into one batch.

    rows ── packing.py, where they are read ──> packed rows ── Spark, by source partition ──> place.py ──> a row each

A source that was created again (or truncated, or another cluster of the same name) has several batches at an offset.
What was copied of which is unknown, so these are `source_changed`, and such a partition is not judged by sums.

Control batches are skipped: a mirror does not copy them. An attempt whose answer was not captured, or was an error,
counts as not stored; when the same sequence of the same producer and epoch is sent again, the attempt was a retry.

A worker holds all batches of a partition, at 48 bytes each. Rejected: the same by Spark's joins and windows (six
shuffles of rows with names, 170 s of CPU for a session's first million, and now 29).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from shoal.scenarios.jobs.audit.packing import COLUMNS, PACKED, SEEN, SEEN_COLUMNS, pack, seen
from shoal.scenarios.jobs.audit.place import AUDITED, audit_place
from shoal.scenarios.jobs.folding import Folding

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["CLUSTERS", "Audited", "audited", "packing"]

CLUSTERS: Final = Folding(columns=SEEN_COLUMNS, fold=seen, schema=from_arrow_schema(SEEN))
"""Clusters and directions, perhaps several times."""
_PLACE: Final = ("topic", "partition")
_LAST_MINUTE: Final = 4_000_000_000
"""Milliseconds of Unix time, in the year 9575: clients may send any timestamp, and Spark's years end with 294247."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """`batches`: those with a state that is not `copied`: doubled, different (another number of records), pending (one
    of the last `tolerance` of its partition, not sent yet), unconfirmed (sent, but it is not known whether it was
    stored), missing, source_changed; of mirror topics also different_offset, aborted (but it is there), below_end.

    `minutes`: records by minute, and `short`, `over`: what the target has too few or too many by then, beyond what
    batches that straddle a minute explain; at the last minute, beyond `tolerance` batches of the largest size. `minute`
    is null for timestamps outside the calendar.

    `only_read`: each `topic` that was fetched and not copied at all; it is in no other table.
    """

    partitions: DataFrame
    batches: DataFrame
    minutes: DataFrame
    only_read: DataFrame


def packing(names: tuple[str, str], prefix: str = "", topics: frozenset[str] | None = None) -> Folding:
    """`names`: of the clusters, source and target. `prefix`: what the mirror puts before a topic's name at the
    target. `topics`: names at the source; None: all."""
    return Folding(columns=COLUMNS, fold=partial(pack, *names, prefix, topics), schema=from_arrow_schema(PACKED))


def audited(packed: DataFrame, tolerance: int = 1) -> Audited:
    """`packed`: folded by `packing`. What is read from it is computed once."""
    places = packed.groupBy(*_PLACE).applyInArrow(_judging(tolerance), from_arrow_schema(AUDITED)).persist()
    fetched = places.where("counts is not null")
    copied = places.where("is_copied").select("topic").distinct()
    mirrored = fetched.join(F.broadcast(copied), "topic", "left_semi")
    minute = F.when(F.col("number").between(0, _LAST_MINUTE), F.timestamp_seconds(F.col("number") * 60))
    timed = mirrored.select(*_PLACE, F.inline("minutes")).withColumn("minute", minute)
    return Audited(
        partitions=mirrored.select(*_PLACE, "counts.*"),
        batches=mirrored.select(*_PLACE, F.inline("batches")),
        minutes=timed.select(*_PLACE, "minute", "source_records", "target_records", "difference", "short", "over"),
        only_read=fetched.select("topic").distinct().join(F.broadcast(copied), "topic", "left_anti"),
    )


def _judging(tolerance: int) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    def judging(key: tuple[pa.Scalar, ...], packed: pa.Table) -> pa.Table:
        return audit_place(key, packed, tolerance)

    return judging
