"""Sends batches to a mirror topic as a mirror must: pipelined, fenced, and on from the log's end after any error."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from shoal.protocol.records.batch import read_batch_header
from tests.brokers.agent.sets import VERSION, frame_of
from tests.brokers.agent.test_replication import leader_or_none
from tests.brokers.proxy.rig.frames import Closed, Wire, response

from .rig import answer_of, flagged, probe, send, starting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.scenarios.kafka.broker import Cluster, Node

IN_FLIGHT = 8
_SECONDS = 120.0


class NotLed(Exception):
    """The leader has gone, or is not the leader yet."""


class Sender:
    """`batches` in order of their offsets; gaps between them are those of the source."""

    def __init__(self, cluster: Cluster, topic: str, batches: Sequence[bytes]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._batches = batches
        headers = [read_batch_header(batch, 0, len(batch)) for batch in batches]
        self._lasts = [header.last_offset for header in headers]
        gaps = [header.base_offset - last - 1 for header, last in zip(headers[1:], self._lasts, strict=False)]
        self._flagged = [starting(batches[0]), *map(flagged, batches[1:], gaps)]
        self.refused = 0  # answers with an error
        self.broken = 0  # connections

    def run(self, progress: Callable[[int], None] = lambda _: None) -> None:
        """`progress` gets the number of acknowledged batches."""
        deadline = time.monotonic() + _SECONDS
        done = 0
        while done < len(self._batches):
            assert time.monotonic() < deadline
            try:
                leader = self._led()
                done = self._known(leader)
                done = self._send(leader, done, progress)
            except (OSError, NotLed):
                self.broken += 1
                time.sleep(0.1)

    def _led(self) -> Node:
        running = [node for node in self._cluster.nodes.values() if node.running]
        leader = leader_or_none(self._cluster, self._topic) if running else None
        if leader is None:
            raise NotLed
        return leader

    def _known(self, leader: Node) -> int:
        """How many batches the log has."""
        answer = send(leader, self._topic, probe())
        if answer.error:
            raise NotLed
        return sum(last < answer.base_offset for last in self._lasts)

    def _send(self, leader: Node, start: int, progress: Callable[[int], None]) -> int:
        """-> the number of acknowledged batches, at the first error."""
        host, _, port = leader.address.rpartition(":")
        waiting: deque[int] = deque()
        done = following = start
        with Wire(host, int(port)) as wire:
            while done < len(self._batches):
                while len(waiting) < IN_FLIGHT and following < len(self._batches):
                    wire.send(frame_of({(self._topic, 0): [self._flagged[following]]}))
                    waiting.append(following)
                    following += 1
                frame = wire.receive()
                if isinstance(frame, Closed):
                    raise NotLed
                if answer_of(response("produce", VERSION, frame)).error:
                    self.refused += 1
                    return done
                done = waiting.popleft() + 1
                progress(done)
        return done
