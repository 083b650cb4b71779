"""Answers to the probe of mirror topics, by kio."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.produce.v9 import response as produce_response

from tests.support.kio_messages import response_frame

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

    from shoal.protocol.wire.types import TopicPartition

__all__ = ["probe_answers"]

NO_TIME: Any = timedelta(0)


def probe_answers(*rows: tuple[TopicPartition, ErrorCode, int, int, str | None]) -> bytes:
    """`rows`: partition, error, base offset, log start, text."""
    topics = [
        produce_response.TopicProduceResponse(
            name=partition.topic,  # type: ignore[arg-type]
            partition_responses=(
                produce_response.PartitionProduceResponse(
                    index=partition.partition,  # type: ignore[arg-type]
                    error_code=error,
                    base_offset=end,  # type: ignore[arg-type]
                    log_append_time=None,
                    log_start_offset=start,  # type: ignore[arg-type]
                    record_errors=(),
                    error_message=message,
                ),
            ),
        )
        for partition, error, end, start, message in rows
    ]
    return response_frame(produce_response.ProduceResponse(responses=tuple(topics), throttle_time=NO_TIME))
