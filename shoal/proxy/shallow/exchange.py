"""One produce request with envelopes, from its plans to its answer.

    post a request ──┐ several, in order (protocol/shallow/unwrap/progress.py says how many of a partition)
    take an answer ──┘ until every partition has its outcome; then one answer for the mirror

What is in flight when the connection is lost stays in doubt with the partition, for the mirror's retry to resolve.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.produce import encode_produce_request
from shoal.protocol.shallow.unwrap.mirror_producers import Passing, Prepared
from shoal.protocol.shallow.unwrap.parcel import halves
from shoal.protocol.shallow.unwrap.plan import Plan, Refused
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.replay import MAX_REPLAYED_IN_FLIGHT
from shoal.protocol.shallow.unwrap.rounds import Schedule
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.capture.annotations import OWN, unwrapped
from shoal.proxy.errors import UpstreamFault, UpstreamLost
from shoal.proxy.shallow.answer import ProduceAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.messages.produce import ProduceRequest
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.batch_row import OutgoingBatch
    from shoal.protocol.shallow.unwrap.delivery import Target
    from shoal.protocol.shallow.unwrap.parcel import OutgoingRecordSet
    from shoal.protocol.shallow.unwrap.sequence import Sequences
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import OwnRequest
    from shoal.proxy.connection.topic_names import Naming
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.produce_path import UnwrapPath

    _Plain = tuple[Target, Sequence[Buffer]]  # a partition without an envelope, and its record set

__all__ = ["Exchange", "encode_sets"]

log = logging.getLogger("shoal.unwrap")

_NOBODY_ASKED = 0  # acks
_LEADER = 1
_UNSTAMPED = (
    "listener %r: ended before the broker has answered: what was in flight of %s%s has no producer id of Shoal's own, and may be "
    "appended twice"
)
_NOTHING_SAID = (0, -1)  # error code and base offset
# Cutting a batch takes about 3 us per record. Above this, nothing else in the process would wait for it.
_RECORDS_CUT_HERE = 300


def encode_sets(
    frame: bytearray,
    request: ProduceRequest,
    header: RequestHeader,
    naming: Naming,
    sets: Sequence[tuple[Target, Sequence[Buffer]]],
) -> list[Buffer]:
    """A request like `request`, which lies in `frame`, with these record sets."""
    topics: dict[Topic, list[tuple[int, Sequence[Buffer]]]] = {}
    for target, pieces in sets:
        topics.setdefault(naming.said(target), []).append((target.partition, pieces))
    return encode_produce_request(frame, request, header.correlation_id, list(topics.items()))


class Exchange:
    """Raises UpstreamLost and UpstreamFault: then it is not known what of that in flight was appended."""

    def __init__(
        self,
        path: UnwrapPath,
        connection: Connection,
        frame: bytearray,
        request: ProduceRequest,
        header: RequestHeader,
        naming: Naming,
        plans: Mapping[Target, Plan | Prepared | Refused],
        passing: Mapping[Target, Passing],
    ) -> None:
        self._path = path
        self._connection = connection
        self._frame = frame
        self._header = header
        self._naming = naming
        self._passing = passing
        self._silent = request.acks == _NOBODY_ASKED
        # An answer to each batch is what keeps the order, whether the mirror wants one or not.
        self._request = replace(request, acks=_LEADER) if self._silent else request
        self._plans = {target: plan for target, plan in plans.items() if isinstance(plan, Plan)}
        self._stamped = {target: plan for target, plan in plans.items() if isinstance(plan, Prepared)}
        self._refused = {target: plan for target, plan in plans.items() if isinstance(plan, Refused)}
        works = {**self._plans, **{target: prepared.plan for target, prepared in self._stamped.items()}}
        self._items = {target: plan.items for target, plan in works.items()}
        self._plain: list[_Plain] = [
            (target, path.record_set(frame, one))
            for one in request.partitions
            if (target := naming.target(one.topic, one.partition)) not in plans
        ]
        self._answer = ProduceAnswer(header.api_version, naming, connection.lookup)
        self._posted: deque[tuple[OwnRequest, dict[Target, OutgoingRecordSet], list[_Plain]]] = deque()

    async def run(self) -> None:
        path, connection = self._path, self._connection
        plans = *self._plans.values(), *(prepared.plan for prepared in self._stamped.values())
        proofs = path.proofs(connection)
        sets = any(plan.several for plan in plans) and await proofs.ensure(connection)
        stamped_sets = sets and proofs.stamps_are_known(connection)
        path.require_same_cluster(connection)
        sequences = await self._sequences() if stamped_sets or not sets else None
        path.require_same_cluster(connection)
        ours = (self._begin(target, plan, sequences, sets=sets) for target, plan in self._plans.items())
        theirs = (self._go_on(target, prepared, sets=stamped_sets) for target, prepared in self._stamped.items())
        self._rounds = Schedule((*ours, *theirs), own_bytes=len(self._frame))
        try:
            await self._converse()
        except UpstreamLost:
            self._lost()
            raise
        except trio.Cancelled:
            self._say_unstamped(self._rounds.unstamped())
            raise
        finally:
            self._rounds.abandon()
            self._keep_refused()
            path.books.close_books(connection.cluster)
        self._conclude()
        if not self._silent:
            await connection.reply(self._answer.encode(self._header.correlation_id))

    async def _sequences(self) -> Sequences | None:
        if self._request.transactional_id is not None or not self._plans:
            return None
        wanted = [(target, plan.sender) for target, plan in self._plans.items()]
        return await self._path.ids.sequences_for(self._connection, self._header, wanted)

    def _begin(self, target: Target, plan: Plan, sequences: Sequences | None, *, sets: bool) -> PartitionProgress:
        deliveries = self._path.deliveries
        avoided = deliveries.statistics().repeats_avoided
        sequence = sequences.of(target, plan.sender) if sequences is not None else None
        ledger = self._path.books.reconciler.open(target, plan, deliveries)
        progress = PartitionProgress(target, plan, ledger, sequence=sequence, sets=sets)
        self._path.tally.retries_suppressed += deliveries.statistics().repeats_avoided - avoided
        return progress

    def _go_on(self, target: Target, prepared: Prepared, *, sets: bool) -> PartitionProgress:
        """Of a mirror with stamps of its own."""
        self._path.tally.retries_suppressed += prepared.deliveries.placed.appended > 0
        ledger = self._path.books.reconciler.open(target, prepared.plan, prepared.deliveries)
        return PartitionProgress(target, prepared.plan, ledger, sets=sets, again=prepared.deliveries.placed.again)

    async def _converse(self) -> None:
        while True:
            for progress in list(self._rounds.cuts_due()):
                await self._cut(progress)
            while len(self._posted) < MAX_REPLAYED_IN_FLIGHT and await self._post():
                pass
            if not self._posted:
                return
            asked, parcels, plain = self._posted[0]
            answer = await asked.frame()
            self._posted.popleft()
            self._take(answer, parcels, plain)

    async def _cut(self, progress: PartitionProgress) -> None:
        while (batch := progress.cut_due) is not None:
            here = batch.records <= _RECORDS_CUT_HERE
            progress.cut(_halves(batch) if here else await trio.to_thread.run_sync(partial(_halves, batch)))

    async def _post(self) -> bool:
        """Send what may be sent; -> whether that was anything."""
        path, connection = self._path, self._connection
        self._rounds.allow_sets(path.proofs(connection).may_send_sets(connection))
        parcels = self._rounds.next_request()
        sends: list[_Plain] = list(self._plain)
        sends += [(target, parcel.buffers()) for target, parcel in parcels.items()]
        if not sends:
            return False
        plain, self._plain = self._plain, []
        path.tally.produce_requests += 1
        request = encode_sets(self._frame, self._request, self._header, self._naming, sends)
        note = unwrapped(parcels, self._items, self._naming) if connection.tap is not None else OWN
        asked = await connection.post(request, note=note)
        self._posted.append((asked, parcels, plain))
        return True

    def _take(self, answer: bytearray, parcels: dict[Target, OutgoingRecordSet], plain: Sequence[_Plain]) -> None:
        answered = self._answer.take(answer)
        if any(parcel.stamp for parcel in parcels.values()):  # brokers before 3.0 refuse the whole request for that
            self._plain += [
                one for one in plain if answered.get(one[0], _NOTHING_SAID)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            ]
        for target in self._passing.keys() & answered.keys():
            if not answered[target][0]:
                self._passing[target].appended(answered[target][1])
        for target in parcels.keys() & answered.keys():
            self._count(parcels[target], answered[target][0])
            self._rounds.answered(target, *answered[target])
            self._act_on(target)
        for target in (*parcels, *(target for target, _ in plain)):
            if target not in answered:
                raise UpstreamFault(f"the broker's answer to Produce says nothing about {target}")

    def _count(self, parcel: OutgoingRecordSet, error_code: int) -> None:
        tally = self._path.tally
        if error_code:
            tally.partition_errors += 1
            return
        tally.unwrapped_batches += parcel.batches
        tally.unwrapped_records += parcel.records
        tally.unwrapped_bytes += parcel.size
        if parcel.batches > 1:
            self._path.sets_lost.pop(self._connection.door.node_id, None)

    def _act_on(self, target: Target) -> None:
        """What the partition has found out about the broker."""
        progress, path, connection = self._rounds.partitions[target], self._path, self._connection
        if progress.refused_set is not None:
            path.proofs(connection).withdraw(connection, f"{progress.refused_set}, for {self._name(target)}")
            progress.refused_set = None
        if progress.ids_refused:
            path.ids.refuse(connection)
        if progress.id_is_stale:
            path.ids.forget(target, self._plans[target].sender)
            progress.id_is_stale = False
        if progress.gap_ignored:
            path.ids.give_up()

    def _lost(self) -> None:
        """A connection may be lost for any reason. If it happens with sets time and again, they may be the reason."""
        connection, lost = self._connection, self._path.sets_lost
        if not any(parcel.batches > 1 for _, parcels, _ in self._posted for parcel in parcels.values()):
            return
        lost[connection.door.node_id] += 1
        if lost.pop(connection.door.node_id) > 1:
            self._path.proofs(connection).withdraw(connection, "the connection ended on a set, twice in a row")
        else:
            lost[connection.door.node_id] = 1

    def _say_unstamped(self, targets: Sequence[Target]) -> None:
        """Whatever else is in flight at the end of Shoal's time to drain, the next Shoal knows of (files/doubt.py)."""
        if targets:
            more = f" and of {len(targets) - 1} partitions more" if len(targets) > 1 else ""
            log.warning(_UNSTAMPED, self._connection.listener.name, self._name(targets[0]), more)

    def _keep_refused(self) -> None:
        """So that the mirror is given it as plain records when it comes for it again."""
        for progress in self._rounds.partitions.values():
            for one in progress.refused:
                self._path.refused.add(one)

    def _conclude(self) -> None:
        for target, refused in self._refused.items():
            self._complain(target, refused.error_code, refused.message)
            self._answer.refuse(target, refused.error_code, refused.message)
        for target, outcome in self._rounds.outcomes().items():
            if outcome.error_code:
                self._complain(target, outcome.error_code, outcome.message or "")
                tell = self._answer.refuse if outcome.is_own else self._answer.fail
                tell(target, outcome.error_code, outcome.message)
            else:
                self._answer.succeed(target, outcome.base_offset)

    def _name(self, target: Target) -> str:
        return self._connection.cluster.partition_name(*target)

    def _complain(self, target: Target, error_code: int, message: str) -> None:
        connection = self._connection
        log.warning(
            "%s of cluster %r: %s for %s (client id %s): %s",
            self._name(target),
            connection.cluster.name,
            error_name(error_code),
            connection.peer,
            connection.client_id,
            message,
        )


def _halves(batch: OutgoingBatch) -> list[OutgoingBatch] | RemoteProtocolError:
    try:
        return halves(batch)
    except RemoteProtocolError as error:
        return error
