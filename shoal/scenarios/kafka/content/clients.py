"""Settings shared by all librdkafka clients of the harness, and waiting for them in trio."""

from collections.abc import Callable
from typing import TypeVar

import trio
from confluent_kafka import KafkaException

from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity

T = TypeVar("T")
Setting = str | int | float | bool
_QUIET = 2  # syslog "critical": no log line for a deliberately killed broker


def client_config(bootstrap: str, login: ClientSecurity = ANYBODY, /, **settings: Setting) -> dict[str, Setting]:
    """librdkafka settings; `_` in keyword names stands for `.` (`compression_type="zstd"`)."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    common: dict[str, Setting] = {"log_level": _QUIET, "broker.address.family": "v4"}
    return {"bootstrap.servers": bootstrap, **common, **login.librdkafka(), **named}


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking client call on a thread. Raises TrafficFailed for KafkaException."""
    try:
        return await trio.to_thread.run_sync(call)
    except KafkaException as error:
        raise TrafficFailed(str(error)) from error
