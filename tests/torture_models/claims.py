"""A mirror's source as Shoal reads it again for claim checks, and Shoal's own claim checks, without its requests."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import trio

from shoal.protocol.wire.crc import crc32c
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.shallow.claims.claim_checks import ClaimChecks
from shoal.proxy.shallow.interlock import Interlocks
from tests.torture_models.source import source_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.types import TopicPartition
    from tests.torture_models.loop import Loop

__all__ = ["Access", "Source", "SourceChecks", "Unproven"]


class Access(Enum):
    ANSWERS = "answers"
    AWAY = "away"  # its connections are refused
    HANGS = "hangs"


class Source:
    """`batches`: of each partition. In place of a SourceReader."""

    must_log_in = False

    def __init__(self, number: int, batches: int) -> None:
        self.name = f"source-{number}"
        self.access = Access.ANSWERS
        self._number, self._batches = number, batches
        self._changed = trio.Event()

    def become(self, access: Access) -> None:
        self.access = access
        self._changed.set()
        self._changed = trio.Event()

    async def batches(self, partition: TopicPartition, key: EnvelopeKey) -> bytearray:
        """Raises NoAnswer."""
        await trio.lowlevel.checkpoint()
        while self.access is Access.HANGS:
            await self._changed.wait()
        if self.access is Access.AWAY:
            raise NoAnswer("the source is away")
        log = source_log(self._number, partition.partition, self._batches)
        found = b"".join(one.stored for one in log if key.first_offset <= one.base <= key.last_offset)
        assert (len(found), crc32c(found)) == (key.payload, key.payload_crc)
        return bytearray(found)

    def end(self) -> None: ...


class SourceChecks(ClaimChecks):
    """Those of one source. `limit`: claim-check-bytes."""

    def __init__(self, source: Source, loop: Loop, limit: int) -> None:
        cluster = SimpleNamespace(name="source", cluster_id=source.name, credentials=())
        settings = SimpleNamespace(shallow=SimpleNamespace(claim_check_bytes=limit))
        listener: Any = SimpleNamespace(
            name="from", cluster=cluster, settings=settings, may_spawn=True, spawn=loop.spawn
        )
        super().__init__(listener)
        self._source = source

    def _reader(self, credentials: str | None) -> Any:
        return self._source


class Unproven(Interlocks):
    """Those of wrapping listeners whose mirrors need no evidence."""

    def __init__(self, checks: Sequence[ClaimChecks]) -> None:
        super().__init__([])
        self._checks = checks

    @property
    def checks(self) -> Iterator[ClaimChecks]:
        return iter(self._checks)
