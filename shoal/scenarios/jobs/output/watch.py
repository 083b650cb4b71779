"""Shows on a terminal how far Spark is: the tasks of the stages that run now."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from shoal.scenarios.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["watching"]

_SECONDS: Final = 0.3


@contextmanager
def watching(spark: SparkSession, job: str) -> Iterator[None]:
    progress, ended = Progress(sys.stderr), threading.Event()
    if not progress.is_live:
        yield
        return
    thread = threading.Thread(target=_watch, args=(spark, job, progress, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        progress.clear()


def _watch(spark: SparkSession, job: str, progress: Progress, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_SECONDS):
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
        if total:
            progress.update(f"{job}: {done:,} of {total:,} tasks")
        else:  # the summary, which others print, starts on an empty line
            progress.clear()
