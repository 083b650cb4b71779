"""Targets: what `shoal promote` reads of brokers."""

from functools import partial

from shoal.protocol.messages.topics import read_topics
from shoal.protocol.mirror_topics.probe import State, read_probe_answers
from shoal.protocol.mirror_topics.promotion import read_promotion
from shoal.protocol.wire.types import TopicPartition
from tests.fuzz.decoders.frames import examples
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

_ASKED = {TopicPartition("", 0), TopicPartition("t", 0)}


def _answers(frame: bytes) -> None:
    for partition in _ASKED:
        for answer in read_probe_answers(frame, {partition}).values():
            assert str(answer)
            assert answer.state is not State.MIRROR or 0 <= answer.log_start <= answer.log_end


def _of_version(name: str, version: int) -> list[bytes]:
    return [data[1:] for data in examples(name) if data[0] == version]


TARGETS = [
    Target("mirror_topics.topics", read_topics, partial(_of_version, "MetadataResponse", 10)),
    Target("mirror_topics.probe", _answers, partial(_of_version, "ProduceResponse", 9)),
    Target("mirror_topics.promotion", read_promotion, partial(_of_version, "IncrementalAlterConfigsResponse", 1)),
]
