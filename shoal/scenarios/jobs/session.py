"""The only place that creates a Spark session.

Java is found on PATH. Workers must run this Python, which has our modules; times are in UTC, so tests do not depend on
the time zone; progress bars are off, since they would overwrite printed lines. The master is set by spark-submit or on
the command line.
"""

from __future__ import annotations

import os
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOCAL_MASTER", "STREAMS", "session"]

LOCAL_MASTER: Final = "local[*]"

STREAMS: Final = MappingProxyType(
    {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
)
"""transformWithState works with RocksDB only, which is not the default of Spark 4.3."""

_ALWAYS: Final = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **STREAMS,
    }
)
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Without the second compiler, which costs more than it saves: the work on rows is Python's. Java would then keep 48 MB
for compiled code: the code of some minutes of queries, after which it does not compile any more."""
_LOCAL: Final = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "16",  # 200 by default: some seconds per stage on a few cores
        "spark.driver.extraJavaOptions": _JAVA,
    }
)


def session(app: str, *, master: str | None = None, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """`master` None: spark-submit has set it. An existing session is reused, with `settings` that can still change."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {**_ALWAYS}
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # on a cluster executors must reach the driver
        chosen |= _LOCAL
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**chosen, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
