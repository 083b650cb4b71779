"""Status of a mirror's tasks, from the worker's status topic: the only place where a dedicated MirrorMaker 2 reports
it.

A worker writes one JSON value per task and change (KafkaStatusBackingStore), under the key
`status-task-CONNECTOR-NUMBER`. Connect never restarts a FAILED task by itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from shoal.scenarios.kafka.content.reading import READ_TIMEOUT_S, read_all
from shoal.scenarios.kafka.mirror import MirrorSpec

FAILED = "FAILED"
_TASK = b"status-task-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    state: str
    """RUNNING, FAILED, UNASSIGNED, ... (org.apache.kafka.connect.runtime.AbstractStatus)."""
    trace: str
    """Exception of a FAILED task, as Java prints it."""
    place: tuple[int, int]
    """Partition and offset in the status topic: they identify a change, even to an equal status."""

    @property
    def causes(self) -> str:
        """The exception and its causes, without the stack frames."""
        lines = (line.strip() for line in self.trace.splitlines())
        return " / ".join(line for line in lines if line and not line.startswith(("at ", "...")))


def status_topic(spec: MirrorSpec) -> str:
    return f"mm2-status.{spec.source_alias}.internal"


async def task_statuses(
    bootstrap: str, spec: MirrorSpec, *, within: float = READ_TIMEOUT_S
) -> Mapping[str, TaskStatus]:
    """The last status of each task, by name such as "MirrorSourceConnector-0". Raises TrafficFailed."""
    statuses: dict[str, TaskStatus] = {}

    def take(messages: list[Message]) -> None:
        for message in messages:
            key, value = message.key() or b"", message.value()
            if not key.startswith(_TASK):
                continue
            name = key.removeprefix(_TASK).decode()
            statuses.pop(name, None)
            if value is not None:
                said, place = json.loads(value), (message.partition() or 0, message.offset() or 0)
                statuses[name] = TaskStatus(state=said["state"], trace=said.get("trace") or "", place=place)

    await read_all(bootstrap, status_topic(spec), take, within=within)
    return statuses
