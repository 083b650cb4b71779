"""The options of the JVM that runs MirrorMaker 2: those of Kafka's scripts, and those for a mirror behind Shoal.

Through Shoal a mirror handles few large records, so it runs little code of its own, and the JVM's second compiler (C2)
costs more than the faster code ever saves. Garbage is a few large buffers per fetch, which die young: a small young
generation, collected by one thread, keeps them in few pages.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BEHIND_SHOAL", "KAFKAS", "JavaOptions"]


class JavaOptions(NamedTuple):
    """Values of the variables that `kafka-run-class.sh` reads. The JVM gets both, in this order."""

    heap: str
    """KAFKA_HEAP_OPTS"""
    performance: str
    """KAFKA_JVM_PERFORMANCE_OPTS"""

    def argv(self) -> tuple[str, ...]:
        return *self.heap.split(), *self.performance.split()


# connect-mirror-maker.sh, kafka-run-class.sh
KAFKAS = JavaOptions(
    heap="-Xms256M -Xmx2G",
    performance=(
        "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
        "-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true"
    ),
)
BEHIND_SHOAL = JavaOptions(
    heap="-Xms64M -Xmx2G",
    performance="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MaxNewSize=64M -Djava.awt.headless=true",
)
