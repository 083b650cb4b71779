from __future__ import annotations

from shoal.protocol.shallow.same_offsets.log_ends import LogEnd, LogEnds
from shoal.protocol.wire.types import TopicPartition

COPY = TopicPartition("orders", 0)


def test_each_connection_asks_for_itself() -> None:
    """Another broker may lead the partition there, one without the agent."""
    ends = LogEnds()
    assert ends.must_ask(COPY, 1)
    ends.asked(COPY, LogEnd(0, 10, 10), 1)
    ends.learn(COPY, LogEnd(0, 20, 20))
    assert not ends.must_ask(COPY, 1)
    assert ends.must_ask(COPY, 2)
    ends.forget(COPY)
    assert ends.must_ask(COPY, 1)
