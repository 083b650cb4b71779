"""Where the partitions of the source begin and end: ListOffsets (latest, earliest) to each leader."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.messages.list_offsets import EARLIEST, LATEST, encode_list_offsets, read_list_offsets
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.leaders import CLIENT_ID, Leaders, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Ends", "SourceEnds"]

_AT_ONCE = 5000  # partitions of one request


class Ends(NamedTuple):
    """`start` -1: unknown."""

    start: int
    end: int


class SourceEnds(Leaders):
    async def ask(self, partitions: Iterable[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, Ends]:
        """The ends of those that have a leader and could be asked. Raises NoAnswer if none could."""
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            node_id = self.leader(partition)
            if node_id is not None:
                by_leader[node_id].append(partition)
            else:
                self.ask_again()
        found: dict[TopicPartition, Ends] = {}
        failures = []
        for node_id, led in by_leader.items():
            for at in range(0, len(led), _AT_ONCE):
                try:
                    found |= await self._ask(node_id, led[at : at + _AT_ONCE], int(read_committed))
                except NoAnswer as error:
                    failures.append(error)
                    break
        if failures and not found:
            raise failures[0]
        return found

    async def _ask(
        self, node_id: int, partitions: list[TopicPartition], isolation_level: int
    ) -> dict[TopicPartition, Ends]:
        ends: list[dict[TopicPartition, int]] = []
        for timestamp in (LATEST, EARLIEST):
            request = encode_list_offsets(CLIENT_ID, partitions, timestamp=timestamp, isolation_level=isolation_level)
            try:
                listed = read_list_offsets(await self.exchange(node_id, request))
            except RemoteProtocolError as error:
                raise NoAnswer(str(error)) from error
            if any(one.error_code for one in listed):
                self.ask_again()  # the leader has moved, most likely
            ends.append({TopicPartition(one.topic, one.partition): one.offset for one in listed if not one.error_code})
        latest, earliest = ends
        return {partition: Ends(earliest.get(partition, -1), end) for partition, end in latest.items() if end >= 0}
