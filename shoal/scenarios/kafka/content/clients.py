"""Settings shared by all librdkafka clients of the harness, and waiting for them in trio."""

from collections.abc import Callable
from typing import TypeVar

import trio
from confluent_kafka import KafkaException

from shoal.scenarios.kafka.errors import TrafficFailed

T = TypeVar("T")
Setting = str | int | float | bool
_QUIET = 2  # syslog "critical": no log line for a deliberately killed broker


def client_config(bootstrap: str, **settings: Setting) -> dict[str, Setting]:
    """librdkafka settings; `_` in keyword names stands for `.` (`compression_type="zstd"`)."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return {"bootstrap.servers": bootstrap, "log_level": _QUIET, "broker.address.family": "v4", **named}


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking client call on a thread. Raises TrafficFailed for KafkaException."""
    try:
        return await trio.to_thread.run_sync(call)
    except KafkaException as error:
        raise TrafficFailed(str(error)) from error
