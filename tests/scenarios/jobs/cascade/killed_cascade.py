"""A process with a cascade that kills itself in its third turn, after writing the turn's flows. CAPTURES OUT
CHECKPOINT"""

import os
import signal
import sys
from pathlib import Path

from shoal.scenarios.jobs.cascade import streaming
from shoal.scenarios.jobs.cascade.abnormal import abnormal
from shoal.scenarios.jobs.cascade.levels import CascadeSettings
from shoal.scenarios.jobs.cascade.source import stream_increments
from shoal.scenarios.jobs.session import session
from tests.scenarios.jobs.conftest import QUICK


def main(captures: str, out: str, checkpoint: str) -> None:
    spark = session("killed", master="local[2]", settings=QUICK)
    judge = abnormal

    def deadly(*arguments):  # type: ignore[no-untyped-def]
        if Path(out, "flows", "batch_id=2").exists():
            java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
            os.kill(java, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return judge(*arguments)

    streaming.abnormal = deadly  # type: ignore[attr-defined]
    place = streaming.CascadeOutput(out=out, checkpoint=checkpoint)
    settings = CascadeSettings(buckets=4)
    increments = stream_increments(spark, captures, {"maxBytesPerTrigger": "200000"}, settings)
    streaming.start(increments, place, settings).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
