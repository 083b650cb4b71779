from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.messages.fetch import FetchPartition, FetchRequest
from shoal.protocol.messages.sessions import MAX_PARTITIONS, MAX_SESSIONS, FetchOffsets, FetchSessions
from shoal.protocol.wire.types import PartitionRef, Topic


def asking(
    session_id: int,
    epoch: int,
    offsets: list[tuple[Topic, int, int]],
    forgotten: tuple[tuple[Topic, int], ...] = (),
) -> FetchRequest:
    return FetchRequest(
        max_bytes=1,
        max_bytes_at=0,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        partitions=tuple(FetchPartition(topic, index, offset, 1, 0) for topic, index, offset in offsets),
        forgotten=tuple(PartitionRef(*partition) for partition in forgotten),
    )


def exchange(sessions: FetchSessions, request: FetchRequest, session_id: int) -> FetchOffsets:
    asked = sessions.request(request)
    sessions.answered(request, asked, session_id)
    return asked


def test_a_session_grows_moves_and_forgets() -> None:
    sessions = FetchSessions()
    assert exchange(sessions, asking(0, 0, [("a", 0, 10), ("a", 1, 20)]), 5) == {("a", 0): 10, ("a", 1): 20}
    assert exchange(sessions, asking(5, 1, []), 5) == {("a", 0): 10, ("a", 1): 20}
    assert exchange(sessions, asking(5, 2, [("a", 0, 11), ("b", 7, 3)]), 5) == {("a", 0): 11, ("a", 1): 20, ("b", 7): 3}
    assert exchange(sessions, asking(5, 3, [], (("a", 0), ("x", 9))), 5) == {("a", 1): 20, ("b", 7): 3}


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_request_replaces_the_session_it_names(epoch: int) -> None:
    sessions = FetchSessions()
    exchange(sessions, asking(0, 0, [("a", 0, 10)]), 5)
    assert exchange(sessions, asking(5, epoch, [("b", 0, 1)]), 0) == {("b", 0): 1}
    assert sessions.request(asking(5, 1, [("c", 0, 2)])) == {("c", 0): 2}


def test_a_broker_that_opens_no_session() -> None:
    sessions = FetchSessions()
    exchange(sessions, asking(0, 0, [("a", 0, 10)]), 0)
    assert sessions.request(asking(0, 1, [])) == {}


def test_two_sessions_of_one_connection_do_not_mix() -> None:
    sessions = FetchSessions()
    exchange(sessions, asking(0, 0, [("a", 0, 10)]), 5)
    exchange(sessions, asking(0, 0, [("a", 0, 99)]), 6)
    assert sessions.request(asking(5, 1, [])) == {("a", 0): 10}
    assert sessions.request(asking(6, 1, [])) == {("a", 0): 99}


def test_a_session_opened_elsewhere_is_known_only_as_far_as_it_is_asked() -> None:
    sessions = FetchSessions()
    assert exchange(sessions, asking(77, 4, [("a", 0, 10)]), 77) == {("a", 0): 10}
    assert sessions.request(asking(77, 5, [])) == {}


def test_an_earlier_answer_still_sees_its_own_offsets() -> None:
    sessions = FetchSessions()
    exchange(sessions, asking(0, 0, [("a", 0, 10)]), 5)
    first = sessions.request(asking(5, 1, [("a", 0, 20)]))
    second = sessions.request(asking(5, 2, [("a", 0, 30)], (("a", 1),)))
    assert (first, second) == ({("a", 0): 20}, {("a", 0): 30})


def test_a_partition_asked_twice_is_unknown() -> None:
    sessions = FetchSessions()
    assert exchange(sessions, asking(0, 0, [("a", 0, 10), ("b", 0, 5), ("a", 0, 11)]), 5) == {("b", 0): 5}
    assert sessions.request(asking(5, 1, [("b", 0, 1), ("b", 0, 2), ("b", 0, 3), ("c", 0, 4)])) == {("c", 0): 4}


def test_partitions_above_the_limit_are_unknown() -> None:
    sessions = FetchSessions()
    many: list[tuple[Topic, int, int]] = [("a", index, 1) for index in range(MAX_PARTITIONS + 10)]
    asked = exchange(sessions, asking(0, 0, many), 5)
    assert len(asked) == MAX_PARTITIONS
    moved = sessions.request(asking(5, 1, [("a", 0, 2), ("z", 0, 3)]))
    assert len(moved) == MAX_PARTITIONS
    assert moved.get(PartitionRef("a", 0), 2) == 2


def test_sessions_above_the_limit_are_unknown() -> None:
    sessions = FetchSessions()
    for session_id in range(1, MAX_SESSIONS + 2):
        exchange(sessions, asking(0, 0, [("a", 0, session_id)]), session_id)
    assert sessions.request(asking(1, 1, [])) == {}
    for session_id in range(2, MAX_SESSIONS + 2):
        assert sessions.request(asking(session_id, 1, [])) == {("a", 0): session_id}


def test_an_id_used_again_takes_no_other_place() -> None:
    sessions = FetchSessions()
    for session_id in [*range(1, MAX_SESSIONS + 1), MAX_SESSIONS]:
        exchange(sessions, asking(0, 0, [("a", 0, session_id)]), session_id)
    assert sessions.request(asking(1, 1, [])) == {("a", 0): 1}


@dataclass
class Broker:
    """The broker's side of KIP-227: the offset at which it would read each partition."""

    sessions: dict[int, dict[tuple[Topic, int], int]] = field(default_factory=dict)

    def fetch(self, request: FetchRequest, new_id: int) -> tuple[int, dict[tuple[Topic, int], int]]:
        offsets = {(wanted.topic, wanted.partition): wanted.fetch_offset for wanted in request.partitions}
        if request.session_epoch <= 0:
            self.sessions.pop(request.session_id, None)
            if request.session_epoch == 0 and new_id:
                self.sessions[new_id] = offsets
            return (new_id if request.session_epoch == 0 else 0), dict(offsets)
        if request.session_id not in self.sessions:
            return 0, {}
        session = self.sessions[request.session_id]
        session.update(offsets)
        for key in request.forgotten:
            session.pop(key, None)
        return request.session_id, dict(session)


KEYS = st.tuples(st.sampled_from("ab"), st.integers(0, 3))
STEP = st.tuples(
    st.integers(0, 3),
    st.sampled_from([-1, 0, 1, 1, 1]),
    st.dictionaries(KEYS, st.integers(0, 9)),
    st.sets(KEYS),
    st.integers(0, 3),
)  # fmt: skip


@given(st.lists(STEP, max_size=12))
def test_what_is_known_is_what_the_broker_reads(
    steps: list[tuple[int, int, dict[tuple[str, int], int], set[tuple[str, int]], int]],
) -> None:
    sessions, broker = FetchSessions(), Broker()
    for session_id, epoch, offsets, forgotten, new_id in steps:
        partitions: list[tuple[Topic, int, int]] = [(*key, offset) for key, offset in offsets.items()]
        request = asking(session_id, epoch, partitions, tuple(sorted(forgotten)) if epoch > 0 else ())
        asked = sessions.request(request)
        answered_id, read = broker.fetch(request, new_id)
        sessions.answered(request, asked, answered_id)
        if read:
            assert asked == read
