"""A lane: everything that goes to one broker under one key, joined as `CoalescingPolicy` says, over connections of the lane's own.

    add ── Joiner ──> a task takes a request ── its Carrier asks the broker ── each owner hears what concerns it ── again

A lane has tasks, each with a connection of its own when it needs one: usually one that works and one that stands by, to overtake
when the first is slow. A task that has its answer takes the next request itself; only an idle one has to be woken.
The tasks end when nothing has come for a while, or when the last client has gone.

Where the outcome of a request is not known (its connection broke), its owners' connections are closed, as their own broker's would
have been: they know best what to send again. Requests that were not sent yet are not concerned.
"""

from __future__ import annotations

import logging
import math
from itertools import count
from typing import TYPE_CHECKING, cast

import trio

from shoal.protocol.coalesce.answer import take_apart
from shoal.protocol.coalesce.joiner import Batch, CoalescingPolicy
from shoal.protocol.coalesce.request import encode_joined
from shoal.protocol.wire.error_codes import error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.coalesce.carrier import Carrier
from shoal.proxy.coalesce.index_rows import JoinedCapture
from shoal.proxy.net.connect import UpstreamUnreachable
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from shoal.protocol.coalesce.answer import Answer
    from shoal.protocol.coalesce.joinable import LaneKey, Part, Target
    from shoal.protocol.coalesce.joiner import Joined, JoinLimits
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.coalesce.member import CoalescedClient, TakenRequest
    from shoal.proxy.coalesce.path import CoalescePath

__all__ = ["Lane"]

log = logging.getLogger("shoal.coalesce")

_CLIENT_ID = "shoal"  # of lanes that clients of any id share
_IDLE_SECONDS = 60.0  # then a lane's connections are closed; a broker's connections.max.idle.ms is 10 minutes
_ANSWER_SECONDS = 30.0  # beyond the request's own timeout
_TIMER_S = 0.001  # timers have whole milliseconds and are late: a linger ends up to so much early, never late
_CORRELATION_IDS = 1 << 31


class _Task:
    """A parked task of a lane: whoever has work for it sets `wake`."""

    __slots__ = ("armed", "carrier", "wake")

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.wake = trio.Event()
        self.armed = math.inf  # when it wakes by itself


class _Split:
    """A set that was refused and whose batches are sent one by one: how many have no answer yet, and was one refused?"""

    __slots__ = ("error_code", "left", "refused")

    def __init__(self, left: int, error_code: int) -> None:
        self.left = left
        self.error_code = error_code
        self.refused = False


class Lane:
    def __init__(self, path: CoalescePath, door: BoundPort, key: LaneKey, limits: JoinLimits) -> None:
        self.key = key
        self.joiner = CoalescingPolicy(limits)
        self._tasks = 0
        self.door = door
        self._path = path
        self._client_id = _CLIENT_ID if path.settings.ignore_client_ids else key.client_id
        self._parked: list[_Task] = []
        self._splits: dict[Target, _Split] = {}
        self._correlation_ids = count(1)
        self._ending = False

    def __repr__(self) -> str:
        return f"<Lane to {self.door} {self.key}>"

    # -- work ------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        self.joiner.add(batch)
        self.nudge()

    def nudge(self) -> None:
        """There may be something to send earlier than before."""
        due = self.joiner.due()
        if self._parked:
            if due < self._parked[-1].armed:
                self._unpark(self._parked[-1])
        elif due < math.inf and self._tasks < self.joiner.limits.in_flight:
            self._tasks += 1
            self._path.listener.spawn(self._run)

    def withdraw(self, member: CoalescedClient, *, silent: bool) -> None:
        """Take back what has not been sent for a client that has gone; what nobody waits for only with `silent`."""

        def unwanted(batch: Batch) -> bool:
            taken = cast("TakenRequest", batch.owner)
            return taken.member is member and (silent or not taken.silent)

        self._path.released(sum(batch.size for batch in self.joiner.withdraw(unwanted)))

    def end_soon(self) -> None:
        """Nobody is left who could add anything: end when all is sent."""
        for task in list(self._parked):
            self._unpark(task)
        self._ending = True

    @property
    def ended(self) -> bool:
        return not self._tasks and not self.joiner.waiting_batches

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        task = _Task(Carrier(self.door))
        try:
            while (joined := await self._next(task.carrier)) is not None or await self._park(task):
                if joined is not None:
                    await self._exchange(task.carrier, joined)
        except Exception as error:  # an error of Shoal's in one lane must not end the others
            log.exception("%r: unexpected error", self)
            self._path.broken(self, repr(error))
        finally:
            self._tasks -= 1
            task.carrier.close()
            if self._ending:
                self.end_soon()
            if self.ended:
                self._path.lane_ended(self)

    async def _next(self, carrier: Carrier) -> Joined | None:
        """What is due, if anything is."""
        sets = self._path.sets
        if sets.allowed(self.door) and self.joiner.due() <= trio.current_time() + _TIMER_S:
            await sets.introduce(self.door, carrier)
        return self.joiner.take(trio.current_time() + _TIMER_S, sets=sets.may_carry(self.door, carrier))

    async def _park(self, task: _Task) -> bool:
        """Wait until there may be something to do; -> False: end."""
        if self._ending and not self.joiner.waiting_batches:
            return False
        due = self.joiner.due()
        idle = trio.current_time() + _IDLE_SECONDS
        task.wake, task.armed = trio.Event(), due
        self._parked.append(task)
        try:
            with trio.move_on_at(min(due - _TIMER_S, idle)):
                await task.wake.wait()
        finally:
            if task in self._parked:
                self._parked.remove(task)
        return task.wake.is_set() or due <= idle

    def _unpark(self, task: _Task) -> None:
        self._parked.remove(task)
        task.wake.set()

    async def _exchange(self, carrier: Carrier, joined: Joined) -> None:
        sets = {
            cast("Target", target): [cast("Part", b.content) for b in chosen] for target, chosen in joined.sets.items()
        }
        self._path.sent(joined)
        correlation_id = next(self._correlation_ids) % _CORRELATION_IDS
        request = encode_joined(self.key, self._client_id, correlation_id, sets)
        seen = JoinedCapture(self.key) if self.door.listener.cluster.capture is not None else None
        try:
            with trio.fail_after(max(self.key.timeout_ms, 0) / 1000 + _ANSWER_SECONDS):
                frame = await carrier.ask(request, correlation_id, here=joined.has_sets)
            answer = take_apart(frame, self.key, sets)
        except UpstreamUnreachable as error:
            self._failed(joined, CloseCause.UPSTREAM_UNREACHABLE, str(error))
        except PeerLost as error:
            self._failed(joined, CloseCause.UPSTREAM_LOST, str(error))
        except trio.TooSlowError:
            self._failed(joined, CloseCause.UPSTREAM_LOST, "no answer to a joined request")
        except RemoteProtocolError as error:
            self._failed(joined, CloseCause.UPSTREAM_PROTOCOL, str(error))
        else:
            if seen is not None:
                seen.answered(joined, answer)
            self._answered(joined, answer, frame)
            return
        if seen is not None:
            seen.lost(joined)
        carrier.close()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, joined: Joined, answer: Answer, frame: bytes) -> None:
        members: dict[CoalescedClient, None] = {}
        for target, verdicts in answer.verdicts.items():
            for batch, (error_code, content) in zip(joined.sets[target], verdicts, strict=True):
                taken = cast("TakenRequest", batch.owner)
                endpoints: Buffer = b""
                if error_code:
                    endpoints = self._path.refused(taken, target, error_code, frame if answer.names_brokers else None)
                self._of_a_split(target, error_code)
                taken.said(target, content, answer.throttle_ms, endpoints)
                members[taken.member] = None
        for target, error_code in answer.split.items():
            self._splits[target] = _Split(len(joined.sets[target]), error_code)
            self._path.tally.split_sets += 1
        self.joiner.answered(joined, answer.split)
        again = sum(batch.size for target in answer.split for batch in joined.sets[target])
        for member in members:
            member.deliver()
        self._path.released(joined.size - again)

    def _of_a_split(self, target: Target, error_code: int) -> None:
        """A batch of a set that was refused has its own answer: if all are taken, it was refused for being a set."""
        split = self._splits.get(target)
        if split is None:
            return
        split.left -= 1
        split.refused |= error_code != 0
        if not split.left:
            del self._splits[target]
            if not split.refused:
                why = f"{error_name(split.error_code)} to a set for {target.topic!r}-{target.partition}, not to its batches"
                self._path.sets.withdraw(self.door, why)

    def _failed(self, joined: Joined, cause: CloseCause, why: str) -> None:
        self.joiner.answered(joined)
        if joined.has_sets:
            self._path.sets.withdraw(self.door, "the connection ended on a set")
        elif cause is CloseCause.UPSTREAM_LOST:
            self._path.sets.lost(self.door)
        owners = {cast("TakenRequest", batch.owner).member for chosen in joined.sets.values() for batch in chosen}
        log.warning(
            "listener %r: a joined request to %s failed, %d client connections end: %s: %s",
            self._path.listener.name,
            self.door,
            len(owners),
            cause,
            why,
        )
        for member in owners:
            self.withdraw(member, silent=True)
            member.connection.abort(cause, why)
        self._path.released(joined.size)
