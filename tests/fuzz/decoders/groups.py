"""Targets: what `shoal groups sync` reads of brokers."""

from functools import partial

from shoal.protocol.messages.groups import read_coordinators, read_groups, read_offset_commit, read_offset_fetches
from shoal.protocol.wire.types import TopicPartition
from tests.fuzz.decoders.frames import examples
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

_ASKED = TopicPartition("", 0)


def _of_version(name: str, version: int) -> list[bytes]:
    return [data[1:] for data in examples(name) if data[0] == version]


def _offsets(frame: bytes) -> None:
    for group in read_offset_fetches(frame, [""]).values():
        assert all(committed.offset >= 0 for committed in group.offsets.values())


def _coordinators(frame: bytes) -> None:
    assert [row.group for row in read_coordinators(frame, [""])] == [""]


def _commit(frame: bytes) -> None:
    assert list(read_offset_commit(frame, [_ASKED])) == [_ASKED]


TARGETS = [
    Target("groups.list", read_groups, partial(_of_version, "ListGroupsResponse", 4)),
    Target("groups.coordinators", _coordinators, partial(_of_version, "FindCoordinatorResponse", 4)),
    Target("groups.offsets", _offsets, partial(_of_version, "OffsetFetchResponse", 8)),
    Target("groups.commit", _commit, partial(_of_version, "OffsetCommitResponse", 9)),
]
