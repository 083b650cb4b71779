"""The claim checks of one wrapping listener: given in its answers, redeemed at the unwrapping listener of its pair.

    wrap path    `prove`     Shoal can read this topic of the source by itself: only then is anything kept
                 `room`      waits a moment for room, as a broker waits for records
                 `keep`      keeps an envelope's batches -> what the mirror gets instead
    unwrap path  `kept.find` its batches, if they are here
                 `read`      its batches from the source, otherwise: after a restart, or for a mirror's late retry
                 `appended`  makes room
                 `done`      forgets them

So a claim check is worth its batches as long as the source has them, whatever happens to this process.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.kept_batches import KeptBatches
from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.plan import Refused
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.events.logs import LogThrottle, event
from shoal.proxy.shallow.claims.background_reads import BackgroundReads
from shoal.proxy.shallow.claims.source_reader import NotAtSource, SourceReader
from shoal.proxy.shallow.counters import ShallowTally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.crc import Buffer
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.shallow.claims.background_reads import Found

__all__ = ["ClaimChecks"]

log = logging.getLogger("shoal.mirror")

_PROVE_SECONDS = 5.0
_PROVE_AGAIN_SECONDS = 30.0
_MAX_TOPICS = 20_000  # of which something is kept; 100 bytes each, and their names are in Shoal's Metadata requests
_QUIET_SECONDS = 300.0  # between two lines about one topic
_ROOM_SECONDS = 0.5  # fetch.max.wait.ms
_REFUSE_SECONDS = 1.0  # so a client cannot try out all checksums


class ClaimChecks:
    """One for each wrapping listener with a pair."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._cluster = listener.cluster
        self.kept = KeptBatches(listener.settings.shallow.claim_check_bytes)
        self.tally = ShallowTally()  # the listener's
        self._readers: dict[str | None, SourceReader] = {}  # by the name of the credentials
        self._proven: set[tuple[str | None, str]] = set()  # credentials, topic
        self._next_try: dict[tuple[str | None, str], float] = {}
        self._has_ended = False
        self._proving: trio.CancelScope | None = None  # one topic at a time
        self._reads = BackgroundReads(listener, self._read, lambda: self.kept.restorable)
        self._throttle = LogThrottle()
        self._changed = trio.Event()
        self._stuck: set[int] = set()  # flows for which no room came in time: they do not wait until some does

    def use(self, settings: ListenerSettings) -> None:
        self.kept.limit = settings.shallow.claim_check_bytes

    @property
    def is_on(self) -> bool:
        return self.kept.limit > 0

    # -- wrap --------------------------------------------------------------------------------------------------------

    def prove(self, credentials: str | None, partition: TopicPartition, offset: int, batch: Buffer) -> None:
        """Read a batch that a mirror gets, unless that has been done. Until it has arrived, nothing of the topic stays
        here. What can be read once is taken to be readable later, too.
        """
        topic, now = (credentials, partition.topic), trio.current_time()
        if topic not in self._next_try and len(self._next_try) >= _MAX_TOPICS:
            return
        is_due = now >= self._next_try.get(topic, now) and self._proving is None
        if is_due and self.is_on and topic not in self._proven and self._listener.may_spawn:
            self._next_try[topic] = now + _PROVE_AGAIN_SECONDS
            scope = self._proving = trio.CancelScope(deadline=now + _PROVE_SECONDS)
            self._listener.spawn(partial(self._prove, scope, credentials, partition, offset, bytes(batch)))

    async def _prove(
        self, scope: trio.CancelScope, credentials: str | None, partition: TopicPartition, offset: int, batch: bytes
    ) -> None:
        why = f"no answer within {_PROVE_SECONDS:g} s"
        reader = self._reader(credentials)
        try:
            if reader.must_log_in:
                why = "clients log in at the brokers by themselves, and Shoal has no login there"
            else:
                with scope:
                    found = await reader.record_set(partition, offset, 1)
                    if found[: len(batch)] == batch:
                        self._proven.add((credentials, partition.topic))
                        return
                    why = "it answers Shoal with another batch than the mirror"
        except (NoAnswer, NotAtSource) as error:
            why = str(error)
        finally:
            self._proving = None
        if not self._has_ended:
            self._say_not_kept(partition.topic, why)

    def _reader(self, credentials: str | None) -> SourceReader:
        if credentials not in self._readers:
            reader = self._readers[credentials] = SourceReader(self._cluster)
            reader.use(credentials)
        return self._readers[credentials]

    def _say_not_kept(self, topic: str, why: str) -> None:
        if self._throttle.is_news(topic, _QUIET_SECONDS):
            name, shown = self._listener.name, self._cluster.shown_topic(topic)
            text = (
                f"listener {name!r}: batches of {shown} pass through the mirror, none stay here (claim-check-bytes): "
                f"Shoal cannot read them from the source again: {why}"
            )
            log.info("batches-not-kept", extra=event(text, listener=name, topic=shown, error=why))

    def may_keep(self, credentials: str | None, topic: str) -> bool:
        return self.is_on and (credentials, topic) in self._proven

    async def room(self, flow: int, answer: int) -> None:
        """Until there is room for this flow's answer of so many bytes, or it would take too long."""
        if flow in self._stuck or answer > self.kept.limit:
            return
        with trio.move_on_after(_ROOM_SECONDS) as scope:
            while not self.kept.has_room(flow, answer):
                await self._changed.wait()
        if scope.cancelled_caught:
            self._stuck.add(flow)

    def keep(self, key: EnvelopeKey, batches: memoryview) -> None:
        """For `WrapContext.keep`, where there is room."""
        self.kept.keep(key, batches, trio.current_time())

    # -- unwrap ------------------------------------------------------------------------------------------------------

    def may_have(self, key: EnvelopeKey) -> bool:
        """False: it is for another source."""
        return self._cluster.cluster_id is None or self.is_of(key)

    async def read(self, keys: Sequence[EnvelopeKey], deadline: float) -> dict[EnvelopeKey, Found]:
        """Their batches from the source. What cannot be had is refused: for now, or permanently if it is gone.

        What is read stays here until it is appended.
        """
        found = await self._reads.wait(keys, deadline)
        if any(
            isinstance(result, Refused) and result.error_code == ErrorCode.INVALID_RECORD for result in found.values()
        ):
            await trio.sleep(_REFUSE_SECONDS)
        return found

    async def _read(self, key: EnvelopeKey) -> Found:
        """Raises NoAnswer."""
        why = NoAnswer("the source demands a login, and Shoal has none")
        for credentials in (None, *self._cluster.credentials):
            reader = self._reader(credentials)
            if reader.must_log_in:
                continue
            try:
                batches = memoryview(await reader.batches(key.source, key))
            except NoAnswer as error:
                why = error
            except NotAtSource as error:
                if not self.is_of(key):  # its cluster was not known before; now another source may be asked
                    return Refused(error_code=TRY_AGAIN, message=f"{key}: {error} in {self._cluster.name}")
                what = f"{key}: its batches are not here any more, and {error}: restart the mirror's task"
                return Refused(error_code=ErrorCode.INVALID_RECORD, message=what)
            else:
                self.kept.restore(key, batches, trio.current_time())
                self._say_read(key)
                return batches
        raise why

    def _say_read(self, key: EnvelopeKey) -> None:
        self.tally.read_again += 1
        if self._throttle.is_news(None, _QUIET_SECONDS):
            name = self._listener.name
            text = (
                f"listener {name!r}: read the batches of a claim check, {key.payload} bytes, from the source again: "
                "another process gave it, or the mirror did not get the answer to it"
            )
            log.info("batches-read-again", extra=event(text, listener=name, bytes=key.payload))

    @property
    def names(self) -> set[str | None]:
        """What a key may have for this listener's cluster: the id, or the name while the id was unknown."""
        return {self._cluster.cluster_id, self._cluster.name}

    def is_of(self, key: EnvelopeKey) -> bool:
        """It is of this listener's cluster."""
        return key.cluster in self.names

    def appended(self, key: EnvelopeKey) -> None:
        """There is more room for its mirror's task."""
        if self.is_of(key) and self.kept.appended(key):
            self._say_room(key.flow)

    def done(self, key: EnvelopeKey) -> None:
        """Its request has succeeded, or its mirror never gets it."""
        if not self.is_of(key):
            return
        self._reads.release([key])
        if self.kept.forget(key):
            self._say_room(key.flow)

    def _say_room(self, flow: int) -> None:
        self._stuck = {stuck for stuck in self._stuck if stuck != flow and self.kept.has_any(stuck)}
        self._changed.set()
        self._changed = trio.Event()

    # -- both --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        self.kept.expire(now)
        if not self._listener.may_spawn:  # the drain does not wait for the source
            self._stop_reading()

    def _stop_reading(self) -> None:
        self._reads.end()
        if self._proving is not None:
            self._proving.cancel()

    def end(self) -> None:
        self._has_ended = True
        self.kept.clear()
        self._stop_reading()
        for reader in self._readers.values():
            reader.end()
