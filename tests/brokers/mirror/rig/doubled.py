"""Duplicates of an at-least-once mirror, each with its place and its reason.

A copy goes back in the source where records were written again. A restarted task goes back to the offset that MM2 has
committed last, with or without Shoal.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import read_all
from tests.brokers.mirror.rig.steady import RUN

if TYPE_CHECKING:
    from confluent_kafka import Message

    from shoal.scenarios.kafka.content.copies import PartitionCopy
    from tests.brokers.mirror.rig.flow import Flow


class Again(NamedTuple):
    """Records of the source that were copied again."""

    partition: int
    offset: int
    """The first record's."""
    records: int


async def doubled(flow: Flow, topic: str) -> list[Again]:
    """In the order of each partition's copy, once it is complete; nothing may be lost, altered or out of order."""
    await flow.check_faithful(topic, duplicates=math.inf)
    ours = await read_copy(flow.pair.source.bootstrap, topic)
    theirs = await read_copy(flow.pair.target.bootstrap, flow.remote(topic))
    return [
        again
        for number, source in ours.partitions.items()
        for again in copied_again(number, source, theirs.partitions[number])
    ]


def copied_again(number: int, source: PartitionCopy, target: PartitionCopy) -> list[Again]:
    places: dict[int, list[int]] = defaultdict(list)
    for place, fingerprint in enumerate(source.fingerprints):
        places[fingerprint].append(place)
    found, at = [], 0
    for fingerprint in target.fingerprints:
        if at == len(source.fingerprints) or source.fingerprints[at] != fingerprint:
            back = places[fingerprint][bisect_left(places[fingerprint], at) - 1]
            found.append(Again(number, source.offsets[back], at - back))
            at = back
        at += 1
    return found


async def check_resumed(found: list[Again], flow: Flow, topic: str) -> None:
    """After a restart of MM2's tasks or of the target's brokers, MM2 alone copies again from an offset that it has
    committed, or its one plain batch in flight; nothing else may be found."""
    places = await _committed(flow, topic)
    assert [one for one in found if (one.partition, one.offset) not in places and one.records > RUN] == []


async def _committed(flow: Flow, topic: str) -> set[tuple[int, int]]:
    """(partition, offset) of all places where a task may have started again."""
    places: set[tuple[int, int]] = set()

    def take(messages: list[Message]) -> None:
        for message in messages:
            _, partition = json.loads(message.key() or b"")
            if partition["topic"] == topic and (value := message.value()) is not None:
                places.add((partition["partition"], json.loads(value)["offset"] + 1))

    await read_all(flow.pair.target.bootstrap, f"mm2-offsets.{flow.spec.source_alias}.internal", take)
    return places
