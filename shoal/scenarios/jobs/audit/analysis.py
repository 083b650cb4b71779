"""Is the copy complete? Batches fetched from a source cluster against batches produced to a target cluster.

There are two methods, because a mirror can work in two ways. Both compare what brokers stored: a fetched batch is
identified by its offsets, a produced one by the offset in the broker's answer, so a batch that was fetched twice, or
resent and stored once, counts once.

    exact       Shoal unwrapped the batch at the target and recorded the source offsets that it carries. Each source
                batch must be covered once. A batch that is never covered is missing, unless it is among the last of its
                partition: then it may be in transit (`tolerance` batches, 1 by default; 0 once traffic has ended).
                A batch that is covered twice is doubled.
    cumulative  The mirror decompressed and made new batches. Records are counted by the minute of their batch's
                newest timestamp, cumulatively. As a batch straddles minutes, the sums of source and target may differ
                by at most the records of the largest batch.

Control batches are skipped: a mirror does not copy them. An attempt whose answer was not captured, or was an error,
counts as not stored; when the same sequence of the same producer and epoch is sent again, the attempt was a retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from shoal.protocol.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["COLUMNS", "attempts", "in_scope", "judged", "matched", "minutes", "partitions", "source_batches"]

COLUMNS: Final = [
    "time_ns",
    "client",
    "cluster",
    "kind",
    "direction",
    "handling",
    "topic",
    "partition",
    "base_offset",
    "last_offset",
    "records",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "control",
    "acks",
    "error",
    "source_topic",
    "source_partition",
    "source_first",
]
"""All columns that this job reads."""
_DUPLICATE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER.value  # the broker has it already
_PLACE: Final = ("topic", "partition")
_INTERNAL: Final = r"^(__|[.])|[-.]internal$"
"""Names of topics that MirrorMaker 2 does not copy (ReplicationPolicy.isInternalTopic)."""
_MINUTE_MS: Final = 60_000
_LAST_MINUTE: Final = 4_000_000_000
"""Milliseconds of Unix time, in the year 9575: clients may send any timestamp, and Spark's years end with 294247."""


def source_batches(rows: DataFrame, cluster: str) -> DataFrame:
    """Batches fetched from this cluster, each once, without control batches. `fetches`: how often it was seen."""
    fetched = _batches(rows, cluster, "fetched").where(F.col("base_offset").isNotNull())
    return fetched.groupBy(*_PLACE, "base_offset").agg(
        F.max("last_offset").alias("last_offset"),
        F.max("records").cast("long").alias("records"),
        F.max("max_timestamp").alias("max_timestamp"),
        F.max("control").alias("control"),
        F.max(F.col("handling") == "wrapped").alias("wrapped"),
        F.max(F.col("handling") == "raw").alias("raw"),
        F.count("*").alias("fetches"),
    )


def attempts(rows: DataFrame, cluster: str, prefix: str = "") -> DataFrame:
    """Batches sent to this cluster, without control batches. `topic` and `partition` are the source's.

    `prefix`: what the mirror puts before a topic's name at the target. `stored`: the broker has it, by its answer or
    because there is none (acks 0). `exact`: it names the source offsets that it carries.
    """
    error = F.col("error")
    produced = _batches(rows, cluster, "produced").where(~F.col("control"))
    return produced.select(
        F.coalesce("source_topic", _without(prefix)).alias("topic"),
        F.coalesce("source_partition", "partition").alias("partition"),
        F.col("topic").alias("target_topic"),
        F.col("partition").alias("target_partition"),
        F.col("source_first").isNotNull().alias("exact"),
        "source_first",
        F.col("base_offset").alias("target_offset"),
        F.col("records").cast("long"),
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        (F.coalesce(error == 0, F.lit(False)) | F.coalesce(F.col("acks") == 0, F.lit(False))).alias("stored"),
        F.coalesce(error == _DUPLICATE, F.lit(False)).alias("known_already"),
    )


def _batches(rows: DataFrame, cluster: str, direction: str) -> DataFrame:
    """Batches without Shoal's own, and without internal topics of mirrors and brokers."""
    wanted = (F.col("kind") == "batch") & (F.col("cluster") == cluster) & (F.col("direction") == direction)
    copied = (F.col("handling") != "own") & ~F.col("topic").rlike(_INTERNAL)
    return rows.where(wanted & copied & (F.col("records") > 0))


def _without(prefix: str) -> Column:
    name = F.col("topic")
    return F.when(name.startswith(prefix), F.expr(f"substring(topic, {len(prefix) + 1})")).otherwise(name)


def in_scope(source: DataFrame, attempted: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both without traffic that no mirror copied: source topics with other readers, target topics with other writers.

    And without batches that the mirror had fetched before the capture began.
    """
    mirrored = source.where("wrapped or raw").select("topic").union(attempted.select("topic")).distinct()
    source = source.join(F.broadcast(mirrored), "topic", "left_semi")
    first = source.groupBy(*_PLACE).agg(F.min("base_offset").alias("first_seen"))
    seen = attempted.join(F.broadcast(first), list(_PLACE))
    return source, seen.where("not exact or source_first >= first_seen").drop("first_seen")


def matched(source: DataFrame, attempted: DataFrame) -> DataFrame:
    """Exact: each source batch that must be covered, or is, with the number of its `copies` at the target.

    A batch that was fetched both wrapped and raw may have been copied either way: if it is not here, only the sums can
    show it. `offsets` is null if nothing was sent. `target_offset`: of the first copy.
    """
    copies = (
        attempted.where("exact")
        .groupBy(*_PLACE, F.col("source_first").alias("base_offset"))
        .agg(
            F.size(F.collect_set(F.when(F.col("stored"), F.col("target_offset")))).alias("offsets"),
            F.sum((F.col("stored") & F.col("target_offset").isNull()).cast("int")).alias("without_offset"),
            F.max("known_already").alias("known_already"),
            F.min(F.when(F.col("stored"), F.col("target_offset"))).alias("target_offset"),
            F.min("records").alias("target_records"),
            F.first("target_topic").alias("target_topic"),
            F.first("target_partition").alias("target_partition"),
        )
    )
    joined = source.where(~F.col("control")).join(copies, [*_PLACE, "base_offset"], "left")
    copied = F.coalesce(F.col("offsets") + F.col("without_offset"), F.lit(0))
    copies_at_all = F.when((copied == 0) & F.coalesce("known_already", F.lit(False)), 1).otherwise(copied)
    return joined.where("(wrapped and not raw) or offsets is not null").withColumn("copies", copies_at_all)


def judged(counted: DataFrame, tolerance: int = 1) -> DataFrame:
    """The same rows with a `state`. `counted`: of `matched`.

    copied, doubled, different (another number of records), pending (one of the last `tolerance` of its partition, not
    sent yet), unconfirmed (sent, but it is not known whether it was stored), missing.
    """
    covered = counted.where("copies > 0").groupBy(*_PLACE).agg(F.max("base_offset").alias("last_covered"))
    state = (
        F.when(F.col("copies") > 1, "doubled")
        .when((F.col("copies") == 1) & (F.col("records") != F.col("target_records")), "different")
        .when(F.col("copies") == 1, "copied")
        .when(F.col("offsets").isNotNull(), "unconfirmed")
        .otherwise("missing")
    )
    stated = counted.withColumn("state", state)
    open_ones = stated.where("state = 'missing'").join(F.broadcast(covered), list(_PLACE), "left")
    behind = F.col("base_offset") > F.coalesce("last_covered", F.lit(-1))
    from_end = F.row_number().over(Window.partitionBy(*_PLACE).orderBy(F.desc("base_offset")))
    pending = open_ones.withColumn("state", F.when(behind & (from_end <= tolerance), "pending").otherwise("missing"))
    return stated.where("state != 'missing'").unionByName(pending.drop("last_covered"))


def minutes(source: DataFrame, attempted: DataFrame, tolerance: int = 1) -> DataFrame:
    """Cumulative: records by partition and minute of their batch's newest timestamp, summed over time.

    `short`, `over`: records that the target has too few or too many by then, beyond what batches that straddle a
    minute explain; at the last minute, beyond `tolerance` batches of the largest size. `minute` is null for timestamps
    outside the calendar.
    """
    left = _per_minute(source.where(~F.col("control")), "source")
    right = _per_minute(_stored_once(attempted), "target")
    joined = left.join(right, [*_PLACE, "minute"], "full").fillna(0)
    partition = Window.partitionBy(*_PLACE)
    ordered = partition.orderBy("minute")
    largest = F.greatest(F.max("source_largest").over(partition), F.max("target_largest").over(partition))
    is_last = F.col("minute") == F.max("minute").over(partition)
    allowed = largest * F.when(is_last, tolerance).otherwise(max(tolerance, 1))
    difference = F.sum("source_records").over(ordered) - F.sum("target_records").over(ordered)
    return joined.select(
        *_PLACE,
        F.when(F.col("minute").between(0, _LAST_MINUTE), F.timestamp_seconds(F.col("minute") * 60)).alias("minute"),
        "source_records",
        "target_records",
        difference.alias("difference"),
        F.when(difference > allowed, difference).otherwise(0).alias("short"),
        F.when(-difference > allowed, -difference).otherwise(0).alias("over"),
    )


def _per_minute(batches: DataFrame, side: str) -> DataFrame:
    minute = F.expr(f"coalesce(max_timestamp, 0) div {_MINUTE_MS}").alias("minute")
    sums = (F.sum("records").alias(f"{side}_records"), F.max("records").alias(f"{side}_largest"))
    return batches.groupBy(*_PLACE, minute).agg(*sums)


def _stored_once(attempted: DataFrame) -> DataFrame:
    """One row per offset in the broker's answer. Batches without one were sent with acks 0: each counts as stored."""
    stored = attempted.where("stored")
    with_offset = stored.where("target_offset is not null")
    once = with_offset.groupBy("target_topic", "target_partition", "target_offset").agg(
        *(F.first(name).alias(name) for name in (*_PLACE, "records", "max_timestamp"))
    )
    columns = (*_PLACE, "records", "max_timestamp")
    return once.select(*columns).unionByName(stored.where("target_offset is null").select(*columns))


def partitions(source: DataFrame, attempted: DataFrame, exact: DataFrame, timed: DataFrame) -> DataFrame:
    """One row per source partition: counts and problems. `exact`, `timed`: of `judged` and `minutes`."""
    tables = (_seen(source), _states(exact), _reordered(exact), _retried(attempted), _worst(timed))
    joined = tables[0]
    for table in tables[1:]:
        joined = joined.join(table, list(_PLACE), "full")
    return joined.fillna(0).orderBy(*_PLACE)


def _seen(source: DataFrame) -> DataFrame:
    """`offsets_not_seen`: gaps between the first and the last: compacted, deleted, or not captured."""
    offsets = F.max("last_offset") - F.min("base_offset") + 1 - F.sum(F.col("last_offset") - F.col("base_offset") + 1)
    return source.groupBy(*_PLACE).agg(
        F.sum((~F.col("control")).cast("long")).alias("batches"),
        F.sum(F.when(F.col("control"), 0).otherwise(F.col("records"))).alias("records"),
        offsets.alias("offsets_not_seen"),
        F.sum(F.col("fetches") - 1).alias("fetched_again"),
    )


def _states(exact: DataFrame) -> DataFrame:
    def of(state: str, value: Column) -> Column:
        return F.sum(F.when(F.col("state") == state, value).otherwise(0))

    each, records = F.lit(1), F.col("records")
    return exact.groupBy(*_PLACE).agg(
        *(
            of(state, each).alias(state)
            for state in ("copied", "doubled", "different", "pending", "unconfirmed", "missing")
        ),
        (of("missing", records) + of("unconfirmed", records)).alias("missing_records"),
        of("doubled", records * (F.col("copies") - 1)).alias("doubled_records"),
    )


def _reordered(exact: DataFrame) -> DataFrame:
    """First copies that were appended after a later batch of the same partition."""
    place = Window.partitionBy(*_PLACE, "target_topic", "target_partition").orderBy("target_offset")
    appended = exact.where("target_offset is not null").withColumn("before", F.lag("base_offset").over(place))
    return appended.where("base_offset < before").groupBy(*_PLACE).agg(F.count("*").alias("reordered"))


def _retried(attempted: DataFrame) -> DataFrame:
    sequence = ("target_topic", "target_partition", "producer_id", "producer_epoch", "base_sequence")
    same = attempted.where("producer_id is not null").groupBy(*_PLACE, *sequence).agg(F.count("*").alias("n"))
    return same.where("n > 1").groupBy(*_PLACE).agg(F.sum(F.col("n") - 1).alias("retries"))


def _worst(timed: DataFrame) -> DataFrame:
    """The shortfall at the end; if there is none, the largest before."""

    def of(column: str) -> Column:
        at_last = F.coalesce(F.max_by(column, "minute"), F.lit(0))
        return F.when(at_last > 0, at_last).otherwise(F.max(column)).alias(column)

    return timed.groupBy(*_PLACE).agg(F.sum("target_records").alias("target_records"), of("short"), of("over"))
