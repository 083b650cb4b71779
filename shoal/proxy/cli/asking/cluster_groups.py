"""The consumer groups of one cluster: questions to their coordinators, for many groups at once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from shoal.protocol.messages.groups import (
    encode_find_coordinators,
    encode_list_groups,
    encode_offset_commit,
    encode_offset_fetches,
    read_coordinators,
    read_groups,
    read_offset_commit,
    read_offset_fetches,
)
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.settings import Address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from shoal.protocol.messages.groups import Committed, ListedGroup
    from shoal.proxy.cluster.brokers import Brokers

__all__ = ["HAS_MEMBERS", "ClusterGroups", "Failure", "slices"]

T = TypeVar("T")

HAS_MEMBERS = "has members"

_ACTIVE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)
_PASSING = (  # the coordinator moves, or cannot write now
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
_OF_GROUP = frozenset((*_ACTIVE, *_PASSING))  # answers to a commit that are about the whole group

_FIND_GROUPS = 200  # in one request
_FETCH_GROUPS = 50  # an answer of 32 MiB has room for some 10,000 partitions of each
_COMMIT_BYTES = 256 * 1024  # a coordinator writes a request as one batch, and max.message.bytes is 1 MiB
_ROW_BYTES = 100  # of one offset in the coordinator's log, without metadata and the names of topic and group


class Failure(NamedTuple):
    """`is_passing`: there may be another answer later."""

    why: str
    is_passing: bool


class ClusterGroups:
    """`side`: source or target. `seconds`: how long a question is repeated until it is answered for all groups."""

    def __init__(self, side: str, brokers: Brokers, *, seconds: float, pause_seconds: float) -> None:
        self.side = side
        self.brokers = brokers
        self._seconds = seconds
        self._pause_seconds = pause_seconds
        self._coordinators: dict[str, int] = {}

    async def listed(self) -> tuple[dict[str, ListedGroup], dict[str, str]]:
        """All groups by name; by broker, why it has not listed its groups. Raises NoAnswer without metadata."""
        groups: dict[str, ListedGroup] = {}
        done: set[int] = set()
        deadline = trio.current_time() + self._seconds
        while True:
            live = {broker.node_id for broker in (await self.brokers.topics([])).brokers}
            failed: dict[int, str] = {}
            async with trio.open_nursery() as nursery:
                for node_id in live - done:
                    nursery.start_soon(self._list, node_id, groups, failed)
            done |= live - failed.keys()
            if not failed or trio.current_time() >= deadline:
                return groups, {self.brokers.name(node_id): why for node_id, why in sorted(failed.items())}
            await trio.sleep(self._pause_seconds)

    async def _list(self, node_id: int, groups: dict[str, ListedGroup], failed: dict[int, str]) -> None:
        try:
            frame = await self.brokers.exchange(node_id, encode_list_groups(self.brokers.client_id))
            error_code, found = read_groups(frame)
        except (NoAnswer, RemoteProtocolError) as error:
            failed[node_id] = str(error)
            return
        if error_code:
            failed[node_id] = error_name(error_code)
        groups.update((group.name, group) for group in found)

    async def committed(
        self, names: Sequence[str]
    ) -> tuple[dict[str, Mapping[TopicPartition, Committed]], dict[str, Failure]]:
        """The offsets of each group; why those of a group are not known."""
        found: dict[str, Mapping[TopicPartition, Committed]] = {}

        async def fetch(node_id: int, batch: Sequence[str]) -> dict[str, int]:
            frame = await self.brokers.exchange(node_id, encode_offset_fetches(self.brokers.client_id, batch))
            answers = read_offset_fetches(frame, batch)
            found.update((name, answer.offsets) for name, answer in answers.items() if not answer.error_code)
            return {name: answer.error_code for name, answer in answers.items()}

        deadline = trio.current_time() + self._seconds
        failed, waiting = dict[str, Failure](), list(names)
        while True:
            failed |= (again := await self._ask(waiting, fetch, _FETCH_GROUPS))
            waiting = [name for name, failure in again.items() if failure.is_passing]
            if not waiting or trio.current_time() >= deadline:
                return found, {name: failure for name, failure in failed.items() if name not in found}
            await trio.sleep(self._pause_seconds)

    async def commit(
        self, wanted: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, Failure]]:
        """Once, from outside of the groups. The error codes of partitions; why a group has taken no offset, or is not
        known to.
        """
        done: dict[str, dict[TopicPartition, int]] = {name: {} for name in wanted}

        async def commit(node_id: int, batch: Sequence[str]) -> dict[str, int]:
            (name,) = batch
            for part in _parts(name, wanted[name]):
                request = encode_offset_commit(self.brokers.client_id, name, part)
                done[name] |= read_offset_commit(await self.brokers.exchange(node_id, request), part)
            return {name: next((code for code in done[name].values() if code in _OF_GROUP), 0)}

        return done, await self._ask(list(wanted), commit, 1)

    async def _ask(
        self,
        names: Sequence[str],
        question: Callable[[int, Sequence[str]], Awaitable[dict[str, int]]],
        size: int,
    ) -> dict[str, Failure]:
        """Ask the coordinators once, about `size` groups at a time; `question` gives the error code of each group."""
        failed = await self._find([name for name in names if name not in self._coordinators])
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        for name in names:
            if name not in failed:
                by_node[self._coordinators[name]].append(name)

        async def ask(node_id: int, groups: Sequence[str]) -> None:
            for start in range(0, len(groups), size):
                try:
                    codes = await question(node_id, groups[start : start + size])
                except (NoAnswer, RemoteProtocolError) as error:
                    failure = Failure(f"{self.brokers.name(node_id)}: {error}", is_passing=True)
                    failed.update(dict.fromkeys(groups[start:], failure))
                    return
                failed.update((name, _failure(code)) for name, code in codes.items() if code)

        async with trio.open_nursery() as nursery:
            for node_id, groups in by_node.items():
                nursery.start_soon(ask, node_id, groups)
        for name, failure in failed.items():
            if failure.is_passing:
                self._coordinators.pop(name, None)
        return failed

    async def _find(self, names: Sequence[str]) -> dict[str, Failure]:
        failed: dict[str, Failure] = {}
        for batch in slices(names, _FIND_GROUPS):
            request = encode_find_coordinators(self.brokers.client_id, batch)
            try:
                found = read_coordinators(await self.brokers.exchange(None, request), batch)
            except (NoAnswer, RemoteProtocolError) as error:
                failed.update(dict.fromkeys(batch, Failure(f"no coordinator: {error}", is_passing=True)))
                continue
            for row in found:
                if row.error_code:
                    failed[row.group] = _failure(row.error_code)
                else:
                    self._coordinators[row.group] = row.node_id
                    self.brokers.addresses[row.node_id] = Address(row.host, row.port)
        return failed


def _failure(error_code: int) -> Failure:
    why = HAS_MEMBERS if error_code in _ACTIVE else error_name(error_code)
    return Failure(why, is_passing=error_code in _PASSING)


def _parts(group: str, offsets: Mapping[TopicPartition, Committed]) -> Iterator[dict[TopicPartition, Committed]]:
    part, size = dict[TopicPartition, "Committed"](), 0
    for partition, committed in offsets.items():
        row = _ROW_BYTES + len((group + partition.topic + (committed.metadata or "")).encode())
        if part and size + row > _COMMIT_BYTES:
            yield part
            part, size = {}, 0
        part[partition] = committed
        size += row
    if part:
        yield part


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
