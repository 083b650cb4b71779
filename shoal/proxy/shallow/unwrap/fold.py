"""The fourth stage of unwrapping: findings update the listener's knowledge, outcomes become the mirror's one answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from shoal.protocol.shallow.unwrap.findings import (
    BatchRefused,
    CopyGrown,
    CopyMisplaced,
    CopyStopped,
    EnvelopeAppended,
    GapIgnored,
    OffsetsAppended,
    PartitionFailed,
    ProducerIdStale,
    RecordSetAppended,
    SetRefused,
    StampsRefused,
)
from shoal.protocol.wire.error_codes import error_name
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.shallow.unwrap.answer import ProduceAnswer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.refused import RefusedRanges
    from shoal.protocol.shallow.unwrap.findings import Finding, Outcome
    from shoal.protocol.shallow.unwrap.plan import Plan, Refused
    from shoal.protocol.shallow.unwrap.reconcile import Discrepancy
    from shoal.protocol.shallow.unwrap.schedule import Schedule
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.counters import ShallowTally
    from shoal.proxy.shallow.interlock import Interlocks
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitors
    from shoal.proxy.shallow.unwrap.answer import MirrorRequest
    from shoal.proxy.shallow.unwrap.copies import Copies
    from shoal.proxy.shallow.unwrap.producer_ids import ProducerIds
    from shoal.proxy.shallow.unwrap.reconciliation import Reconciliation
    from shoal.proxy.shallow.unwrap.translation import Translation

__all__ = ["Fold", "TargetKnowledge"]

log = logging.getLogger("shoal.unwrap")

_MAX_LOGGED = 100  # mismatches of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKnowledge:
    """Knowledge of an unwrapping listener about its target, from all its connections.

    `sets_lost`: by node id, consecutive connections that were lost with a set of batches in flight.
    """

    tally: ShallowTally
    ids: ProducerIds
    refused: RefusedRanges
    reconciliation: Reconciliation
    monitors: MirrorMonitors
    translation: Translation
    copies: Copies
    interlocks: Interlocks
    sets_lost: Counter[int | None]


class Fold:
    """For one mirror request."""

    def __init__(
        self,
        target: TargetKnowledge,
        connection: Connection,
        request: MirrorRequest,
    ) -> None:
        self._target = target
        self._connection = connection
        self._proofs = connection.cluster.proofs
        self._answer = ProduceAnswer(request.header.api_version, request.naming, connection.lookup)
        self._at_once: dict[TopicPartition, Outcome] = {}
        self._discrepancies: list[tuple[TopicPartition, Discrepancy]] = []

    # -- during the exchange ---------------------------------------------------------------------------------------

    def answered_at_once(self, partition: TopicPartition, outcome: Outcome) -> None:
        """Nothing of the partition is sent to the broker."""
        self._at_once[partition] = outcome

    def planned(self, partition: TopicPartition, plan: Plan, *, repeats: int) -> None:
        """`repeats`: number of batches that are already appended and not sent again."""
        self._target.tally.retries_suppressed += repeats
        for discrepancy in self._target.reconciliation.planned(plan):
            self._note(partition, discrepancy)

    @property
    def may_send_sets(self) -> bool:
        return self._proofs.may_send_sets(self._connection)

    def sent(self) -> None:
        self._target.tally.produce_requests += 1

    def read(self, frame: bytearray) -> dict[TopicPartition, tuple[int, int]]:
        """A broker's answer -> per partition (error code, base offset). Raises UpstreamFault."""
        return self._answer.take(frame)

    def shortest_answer(self, partitions: Sequence[TopicPartition]) -> int:
        """Bytes of the answer to a request for these partitions, at least; 0: not known."""
        return self._answer.shortest(partitions)

    def text(self, partition: TopicPartition) -> str | None:
        """What the broker said about its latest error for this partition."""
        return self._answer.text(partition)

    def take(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._take(finding)

    def _take(self, finding: Finding) -> None:
        target, connection = self._target, self._connection
        match finding:
            case RecordSetAppended():
                self._count(finding)
            case PartitionFailed():
                target.tally.partition_errors += 1
            case EnvelopeAppended():
                target.monitors.appended(finding.key, finding.partition.topic)
                for checks in target.interlocks.checks:
                    checks.appended(finding.key)
                self._note(finding.partition, target.reconciliation.appended(finding))
            case OffsetsAppended():
                target.translation.appended(finding)
            case BatchRefused(_, source):  # the mirror gets plain records when it reads this batch again
                target.refused.add(source)
            case SetRefused(partition, reason):
                self._proofs.withdraw(connection, f"{reason}, for {self._name(partition)}")
            case StampsRefused():
                target.ids.refuse(connection)
            case ProducerIdStale(partition, sender):
                target.ids.forget(partition, sender)
            case CopyGrown(_, key):
                target.copies.grown(key)
            case CopyMisplaced(_, key):
                target.copies.misplaced(key)
            case CopyStopped(partition, key, error_code):
                text = self.text(partition) or error_name(error_code)
                why = f"the target broker refuses {self._name(partition)}: {text}"
                target.copies.stop(key, why)
            case GapIgnored():
                target.ids.give_up()
            case _:
                assert_never(finding)

    def arrived(self, schedule: Schedule) -> None:
        """Forget the claim checks of each partition that has succeeded, and report the plain records after its last
        envelope; those before it are known by the envelope.
        """
        outcomes = schedule.outcomes()
        for partition, items in schedule.items.items():
            if not outcomes[partition].error_code:
                self._forget([item.key for item in items if item.key is not None and item.key.is_claim_check])
            plain = items[-1] if items else None
            if plain is not None and plain.key is None and len(items) > 1 and not outcomes[partition].error_code:
                self._target.monitors.arrived(partition, sum(plain.batches.records), hash(plain.identity))

    def _forget(self, keys: Sequence[EnvelopeKey]) -> None:
        for checks in self._target.interlocks.checks if keys else ():
            for key in keys:
                checks.done(key)

    def _count(self, appended: RecordSetAppended) -> None:
        tally = self._target.tally
        tally.unwrapped_batches += appended.batches
        tally.unwrapped_records += appended.records
        tally.unwrapped_bytes += appended.size
        if appended.batches > appended.record_sets:
            self._target.sets_lost.pop(self._connection.bound_port.node_id, None)

    def _note(self, partition: TopicPartition, discrepancy: Discrepancy | None) -> None:
        if discrepancy is not None and len(self._discrepancies) < _MAX_LOGGED:
            self._discrepancies.append((partition, discrepancy))

    # -- ends without all answers ----------------------------------------------------------------------------------

    def connection_lost(self, *, sets_in_flight: bool) -> None:
        """A connection may be lost for any reason. If it is lost repeatedly with sets, they may be the reason."""
        if not sets_in_flight:
            return
        lost, node_id = self._target.sets_lost, self._connection.bound_port.node_id
        lost[node_id] += 1
        if lost[node_id] > 1:
            del lost[node_id]
            self._proofs.withdraw(self._connection, "the connection ended on a set, twice in a row")

    def cancelled(self, unstamped: Sequence[TopicPartition]) -> None:
        """The drain timeout has passed. All other batches in flight go to the next Shoal (files/doubt.py)."""
        if unstamped:
            more = f" and of {len(unstamped) - 1} partitions more" if len(unstamped) > 1 else ""
            name = self._connection.listener.name
            text = (
                f"listener {name!r}: ended before the broker has answered: what was in flight of "
                f"{self._name(unstamped[0])}{more} has no producer id of Shoal's own, and may be appended twice"
            )
            log.warning("ended-in-doubt", extra=event(text, listener=name, partitions=len(unstamped)))

    def close(self) -> None:
        """Log mismatches and store offsets, however the exchange ended."""
        self._target.translation.flush()
        self._target.reconciliation.log(self._connection.cluster, self._discrepancies)

    # -- the answer ------------------------------------------------------------------------------------------------

    def answer(
        self, correlation_id: int, refused: Mapping[TopicPartition, Refused], outcomes: Mapping[TopicPartition, Outcome]
    ) -> list[Buffer]:
        """The mirror's answer, when every partition has its outcome."""
        for partition, error in refused.items():
            self._log_error(partition, error.error_code, error.message)
            self._answer.refuse(partition, error.error_code, error.message)
        for partition, outcome in (*self._at_once.items(), *outcomes.items()):
            if outcome.error_code:
                self._log_error(partition, outcome.error_code, outcome.message or "")
                respond = self._answer.refuse if outcome.is_own else self._answer.fail
                respond(partition, outcome.error_code, outcome.message)
            else:
                self._answer.succeed(partition, outcome.base_offset)
        return self._answer.encode(correlation_id)

    def why_closed(self) -> str | None:
        """After `answer`, which the mirror does not want: a broker closes the connection then if there was an error, so
        that the client asks for the leaders again. None: there was none.
        """
        for partition, error_code in self._answer.errors():
            return f"{error_name(error_code)} for {self._name(partition)}, and acks=0"
        return None

    def _name(self, partition: TopicPartition) -> str:
        return self._connection.cluster.partition_name(*partition)

    def _log_error(self, partition: TopicPartition, error_code: int, message: str) -> None:
        connection = self._connection
        left_out = connection.throttle.admit("partition-refused", partition, error_code)
        if left_out is None:  # the mirror retries, several times a second
            return
        topic, number = partition
        text = (
            f"{self._name(partition)} of cluster {connection.cluster.name!r}: {error_name(error_code)} for "
            f"{connection.peer} ({connection.shown_client_id}): {message}{more_of_this_kind(left_out)}"
        )
        values = event(
            text,
            cluster=connection.cluster.name,
            topic=connection.cluster.shown_topic(topic),
            partition=number,
            error_code=error_code,
            peer=str(connection.peer),
            client_id=connection.client_id,
            detail=message or None,
            left_out=left_out or None,
        )
        log.warning("partition-refused", extra=values)
