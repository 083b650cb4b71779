"""A lane: all requests for one broker and key, joined by `CoalescingPolicy`, over the lane's own connections.

    add ── policy ──> a task takes a request ── its client sends it ── each owner gets its results ── repeat

A lane has tasks, each with its own connection when needed: usually one that works and one on standby, which overtakes
if the first is slow. A task with an answer takes the next request itself; only an idle task must be woken. Tasks end
after a while without requests, or when the last client has disconnected.

A broker that throttles the lane (a quota) answers at once, and then reads nothing from that connection for the throttle
time. Requests wait here meanwhile, as in any Kafka client: one that is sent would be lost in the broker's socket when
its clients give up, and appended after their retry.

If the outcome of a request is unknown (its connection broke), its owners' connections are closed, as their own broker
would do: they know what to retry. Requests that were not sent yet are not affected.
"""

from __future__ import annotations

import logging
import math
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import trio

from shoal.protocol.coalesce.answer import read_joined_answer
from shoal.protocol.coalesce.policy import Batch, CoalescingPolicy
from shoal.protocol.coalesce.request import encode_joined
from shoal.protocol.wire.error_codes import error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.coalesce.index_rows import JoinedCapture
from shoal.proxy.coalesce.sets import LaneClient
from shoal.proxy.events.logs import REPEAT_SECONDS, event, more_of_this_kind
from shoal.proxy.net.fast_lane import wake_by
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from shoal.protocol.coalesce.answer import JoinedAnswer
    from shoal.protocol.coalesce.joinable import LaneKey, PartitionBatch
    from shoal.protocol.coalesce.policy import Joined, JoinLimits
    from shoal.protocol.wire.types import Buffer, PartitionRef
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.coalesce.client import CoalescedClient, TakenRequest
    from shoal.proxy.coalesce.counters import CoalesceTally
    from shoal.proxy.coalesce.sets import ProvenSets
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.upstream import BrokerConnection, Upstream

__all__ = ["Lane", "LaneId"]

log = logging.getLogger("shoal.coalesce")

_IDLE_SECONDS = 60.0  # until a lane's connections are closed; connections.max.idle.ms of a broker is 10 minutes
_ANSWER_SECONDS = 30.0  # beyond the request's own timeout
_TIMER_S = 0.001  # timers have whole milliseconds and fire late: a linger may end this much early, never late
_CORRELATION_IDS = 1 << 31
_THROTTLED_AFTER = 6  # Produce: older brokers, which do not know it, have waited already (KIP-219)


class _Task:
    """A parked task of a lane: it waits until `wake` is set, or until its timer."""

    __slots__ = ("client", "due", "timer", "wake")

    def __init__(self, client: LaneClient) -> None:
        self.client = client
        self.wake = trio.Event()
        self.due = math.inf
        self.timer = trio.CancelScope()

    def park(self, due: float) -> None:
        self.wake, self.timer = trio.Event(), trio.CancelScope(deadline=trio.current_time() + _IDLE_SECONDS)
        self.arm(due)

    def arm(self, due: float) -> None:
        """`due`: earlier than before, or `inf`."""
        self.due = due
        self.timer.deadline = min(self.timer.deadline, due - _TIMER_S)
        wake_by(self.timer.deadline)


class _Split:
    """A refused set whose batches are sent one by one: those without an answer, and whether one proves nothing: it was
    refused, too, or withdrawn.
    """

    __slots__ = ("error_code", "left", "proves_nothing")

    def __init__(self, batches: Iterable[Batch], error_code: int) -> None:
        self.left = set(map(id, batches))
        self.error_code = error_code
        self.proves_nothing = False


class LaneOwner(Protocol):
    """What a lane needs of its listener's path: proofs of sets, counters, and somewhere to report results."""

    listener: Listener
    sets: ProvenSets
    tally: CoalesceTally

    def sent(self, joined: Joined) -> None: ...

    def released(self, batches: Iterable[Batch]) -> None: ...

    def refused(self, taken: TakenRequest, target: PartitionRef, error_code: int, frame: bytes | None) -> Buffer: ...

    def lane_ended(self, lane: Lane) -> None: ...

    def broken(self, lane: Lane, batches: Sequence[Batch], why: str) -> None: ...


class LaneId(NamedTuple):
    """`identity`: that of all its clients at the broker (`Connection.identity`). The broker sees one principal."""

    bound_port: BoundPort
    identity: Upstream
    key: LaneKey


class Lane:
    """`client_id`: of the lane's own requests."""

    def __init__(self, owner: LaneOwner, which: LaneId, limits: JoinLimits, client_id: str | None) -> None:
        self.which = which
        self.key = which.key
        self.policy = CoalescingPolicy(limits)
        self._tasks = 0
        self.bound_port = which.bound_port
        self._owner = owner
        self._client_id = client_id
        self._parked: list[_Task] = []
        self._splits: dict[PartitionRef, _Split] = {}
        self._correlation_ids = count(1)
        self.is_throttled = False  # by the broker, with its last answer
        self._ending = False
        self._is_broken = False
        self._scopes: set[trio.CancelScope] = set()  # of the tasks

    def __repr__(self) -> str:
        return f"<Lane to {self.bound_port} {self.key}>"

    # -- work ------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        if self.policy.add(batch):
            self.nudge()

    def nudge(self) -> None:
        """A request may be due earlier than before."""
        due = self.policy.due()
        if self._parked:
            task = self._parked[-1]
            if due >= task.due:
                return
            if due - _TIMER_S <= trio.current_time():
                self._unpark(task)
            else:
                task.arm(due)
        elif due < math.inf and self._tasks < self.policy.limits.in_flight:
            self._tasks += 1
            self._owner.listener.spawn(self._run)

    def withdraw(self, members: AbstractSet[CoalescedClient], *, silent: bool) -> None:
        """Withdraw the unsent batches of closed clients; those with acks=0 only with `silent`."""

        def unwanted(batch: Batch) -> bool:
            return batch.owner.member in members and (silent or not batch.owner.silent)

        withdrawn = self.policy.withdraw(unwanted)
        for batch in withdrawn if self._splits else ():
            self._count_split_batch(cast("PartitionRef", batch.target), batch, proves_nothing=True)
        self._owner.released(withdrawn)

    def end_soon(self) -> None:
        """No client is left: end when everything is sent."""
        for task in list(self._parked):
            self._unpark(task)
        self._ending = True

    @property
    def ended(self) -> bool:
        return not self._tasks and not self.policy.waiting_batches

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        task = _Task(LaneClient(self._connect, self.bound_port.cluster.limits))
        scope, joined = trio.CancelScope(), None
        self._scopes.add(scope)
        try:
            with scope:
                while (joined := await self._next(task.client)) is not None or await self._park(task):
                    if joined is not None:
                        await self._exchange(task.client, joined)
                        joined = None
        except Exception as error:  # an error of Shoal in one lane must not end the others
            if self._owner.listener.throttle.is_new_error(error, REPEAT_SECONDS):
                log.exception("lane-unexpected-error", extra=event(f"{self!r}: unexpected error"))
            self._break(joined, repr(error))
        finally:
            self._scopes.discard(scope)
            self._tasks -= 1
            task.client.close()
            if self._ending:
                self.end_soon()
            if self.ended:
                self._owner.lane_ended(self)

    def _break(self, joined: Joined | None, why: str) -> None:
        """End all tasks, with all batches: what is in flight has an unknown outcome, as has what was `joined` last,
        which the policy may not have any more.
        """
        known = {id(batch): batch for batch in self.policy.batches()}
        if joined is not None:
            known |= {id(batch): batch for chosen in joined.sets.values() for batch in chosen}
        batches, self.policy = list(known.values()), CoalescingPolicy(self.policy.limits)
        self._splits.clear()
        self._is_broken = True
        for scope in self._scopes:
            scope.cancel()
        self._owner.broken(self, batches, why)

    async def _connect(self) -> BrokerConnection:
        return (await self.bound_port.connect(self.which.identity))[0]

    async def _next(self, client: LaneClient) -> Joined | None:
        """The next request that is due, or None."""
        sets = self._owner.sets
        if sets.allowed(self.bound_port) and self.policy.due() <= trio.current_time() + _TIMER_S:
            await sets.introduce(self.bound_port, client)
        joined = self.policy.take(trio.current_time() + _TIMER_S, sets=sets.may_carry(self.bound_port, client))
        if joined is not None:
            self.nudge()  # for what has no room in it
        return joined

    async def _park(self, task: _Task) -> bool:
        """Wait until there may be work. Returns False to end the task."""
        if self._ending and not self.policy.waiting_batches:
            return False
        task.park(self.policy.due())
        self._parked.append(task)
        try:
            with task.timer:
                await task.wake.wait()
        finally:
            if task in self._parked:
                self._parked.remove(task)
        return task.wake.is_set() or task.due < math.inf

    def _unpark(self, task: _Task) -> None:
        self._parked.remove(task)
        task.wake.set()

    async def _exchange(self, client: LaneClient, joined: Joined) -> None:
        sets: dict[Any, list[PartitionBatch]] = {
            target: [batch.content for batch in chosen] for target, chosen in joined.sets.items()
        }
        self._owner.sent(joined)
        correlation_id = next(self._correlation_ids) % _CORRELATION_IDS
        request = encode_joined(self.key, self._client_id, correlation_id, sets)
        seen = JoinedCapture(self.key) if self.bound_port.cluster.capture is not None else None
        if not joined.has_sets:  # a set must not go to another broker than the proven one
            client.close_if_lost()
        try:
            with trio.fail_after(max(self.key.timeout_ms, 0) / 1000 + _ANSWER_SECONDS):
                sent_at = trio.current_time()
                frame = await client.exchange(request)
            if self._is_broken:  # by another task, just before this one is cancelled
                return
            answer = read_joined_answer(frame, self.key, sets)
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
            self._answered(joined, answer, frame, trio.current_time() - sent_at)
            return
        if seen is not None:
            seen.lost(joined)
        client.close()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, joined: Joined, answer: JoinedAnswer, frame: bytes, seconds: float) -> None:
        members: dict[CoalescedClient, None] = {}
        for target, results in answer.results.items():
            for batch, (error_code, content) in zip(joined.sets[target], results, strict=True):
                taken: TakenRequest = batch.owner
                endpoints: Buffer = b""
                if error_code:
                    endpoints = self._owner.refused(taken, target, error_code, frame if answer.names_brokers else None)
                if self._splits:
                    self._count_split_batch(target, batch, proves_nothing=error_code != 0)
                taken.add_result(target, content, answer.throttle_ms, endpoints, seconds)
                members[taken.member] = None
        for target, error_code in answer.split.items():
            self._splits[target] = _Split(joined.sets[target], error_code)
            self._owner.tally.split_sets += 1
        self.is_throttled = answer.throttle_ms > 0 and self.key.version >= _THROTTLED_AFTER
        if self.is_throttled:
            self.policy.pause(trio.current_time() + answer.throttle_ms / 1000)
        self.policy.answered(joined, answer.split)
        for member in members:
            member.deliver()
        self._owner.released(batch for target in answer.results for batch in joined.sets[target])

    def _count_split_batch(self, target: PartitionRef, batch: Batch, *, proves_nothing: bool) -> None:
        """A batch of a refused set has its own answer, or is withdrawn. If all are accepted, the set was refused for
        being a set.
        """
        split = self._splits.get(target)
        if split is None or id(batch) not in split.left:
            return
        split.left.discard(id(batch))
        split.proves_nothing |= proves_nothing
        if not split.left:
            del self._splits[target]
            if not split.proves_nothing:
                name = f"{target.topic!r}-{target.partition}"
                why = f"{error_name(split.error_code)} to a set for {name}, not to its batches"
                self._owner.sets.withdraw(self.bound_port, why)

    def _failed(self, joined: Joined, cause: CloseCause, why: str) -> None:
        if self._is_broken:  # by another task, which has ended the owners
            return
        self.policy.answered(joined)
        if joined.has_sets:
            self._owner.sets.withdraw(self.bound_port, "the connection ended on a set")
        elif cause is CloseCause.UPSTREAM_LOST:
            self._owner.sets.lost(self.bound_port)
        owners: set[CoalescedClient] = {batch.owner.member for chosen in joined.sets.values() for batch in chosen}
        self._log_failed(len(owners), cause, why)
        for batch in (batch for chosen in joined.sets.values() for batch in chosen) if self._splits else ():
            self._count_split_batch(cast("PartitionRef", batch.target), batch, proves_nothing=True)
        self.withdraw(owners, silent=True)
        for member in owners:
            member.connection.abort(cause, why)
        self._owner.released(batch for chosen in joined.sets.values() for batch in chosen)

    def _log_failed(self, connections: int, cause: CloseCause, why: str) -> None:
        listener = self._owner.listener
        left_out = listener.throttle.admit("joined-request-failed", self.bound_port, cause, why)
        if left_out is None:
            return
        values = event(
            f"listener {listener.name!r}: a joined request to {self.bound_port} failed, {connections} client "
            f"connections end: {cause}: {why}{more_of_this_kind(left_out)}",
            listener=listener.name,
            node_id=self.bound_port.node_id,
            connections=connections,
            cause=cause.name.lower(),
            detail=why,
            left_out=left_out or None,
        )
        log.warning("joined-request-failed", extra=values)
