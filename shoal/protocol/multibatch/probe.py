"""Does this broker take several batches per partition in one Produce request, and store them?

    ApiVersions, Metadata ── the broker's identity ── already proven: done
    CreateTopics (or the given topic) ── one partition that this broker leads
    Produce a single batch ── accepted: later refusals are due to sets
    for each set:   Produce ── ListOffsets ── Fetch ── every record as it was sent, at its offset
    a damaged set:  Produce ── an error, and no record of it is in the log
    with a producer id (InitProducerId):
      a set of seven, its last batch again, its first again ── both are recognised, or the first is out of order;
                                                               nothing is stored again
      the next batch, then a set of that one and another ── the other is stored, at once or when it is sent alone
    DeleteTopics

A success code proves nothing (Redpanda and librdkafka's mock answer success, keep the first batch and lose the rest),
so only records that are read back count. The damaged set is needed because the produce path splits a refused set and
sends its batches again: a broker that stores the batches before the bad one (Tansu) would make duplicates. A new leader
that has replicated only part of a set sees a partly known set: a broker that merely accepts sets calls it a duplicate,
and loses the rest.

A given topic may have other writers: then offsets need not be consecutive, and only our own records are compared. In a
scratch topic every offset is ours and must be exact.

Kafka before 2.4 (no Produce v8) refuses sets, up to 2.1 by closing the connection: these brokers are not probed.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final

from shoal.protocol.multibatch import messages
from shoal.protocol.multibatch.dialogue import Ask, ConnectionEnded, Dialogue, DialogueEnded, Talk, unproven
from shoal.protocol.multibatch.proof import Identity, Proof, Result
from shoal.protocol.multibatch.trial import NAME_A_TOPIC, SCRATCH_PREFIX, ProbePartition, Trial, refusal, remedy_for
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["Ask", "Probe", "ProbePlan", "clean_up"]

_PRODUCE_OF_2_4: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """`topic`: use this existing one. `token`: random, 8 bytes or more. `now`: ms since the epoch.

    `leftovers` are scratch topics of probes that did not finish: they are deleted along with this probe's.
    """

    node_id: int
    topic: str | None = None
    token: bytes
    now: int
    leftovers: tuple[str, ...] = ()

    @property
    def scratch(self) -> str:
        return SCRATCH_PREFIX + self.token.hex()


class Probe:
    """Call `start`, then `answered` or `lost` for each `Ask`, until there is a Proof. No method raises.

    `known` may return an earlier proof of this broker; the probe then ends with it after two requests.
    """

    def __init__(self, plan: ProbePlan, known: Callable[[Identity], Proof | None] = lambda _: None) -> None:
        self._plan = plan
        self._known = known
        self._dialogue = Dialogue()
        self._identity: Identity | None = None
        self._left = list(plan.leftovers)
        self._trial: Trial | None = None
        self._talk: Generator[Ask, Buffer, Proof] = self._run()

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Topics that are not deleted yet: a caller that gives up has them deleted later (`leftovers`, `clean_up`)."""
        return tuple(self._left)

    @property
    def doing(self) -> str:
        """The current step, for a timeout message."""
        current = self._trial.current if self._trial else None
        return f"{self._dialogue.asked} of {current}" if current else self._dialogue.asked

    def start(self) -> Ask | Proof:
        return self._step(lambda: next(self._talk))

    def answered(self, frame: Buffer) -> Ask | Proof:
        return self._step(lambda: self._talk.send(frame))

    def lost(self) -> Ask | Proof:
        """The connection was closed: always returns a Proof."""
        return self._step(lambda: self._talk.throw(ConnectionEnded()))

    def _step(self, go: Callable[[], Ask]) -> Ask | Proof:
        try:
            return go()
        except StopIteration as end:
            proof: Proof = end.value
            return proof

    def _run(self) -> Talk[Proof]:
        try:
            proof = yield from self._judge()
        except DialogueEnded as ended:
            proof = ended.proof
        except ConnectionEnded:
            proof = self._cut_off()
        except RemoteProtocolError as error:
            proof = unproven(f"the broker's answer to {self._dialogue.asked} cannot be read: {error}").proof
        if not proof.closed:
            yield from self._delete()
        return replace(proof, identity=self._identity, left_behind=self.left_behind)

    def _cut_off(self) -> Proof:
        """The connection was closed. After a set, this is how Kafka up to 2.1 and similar brokers refuse it."""
        test_set = self._trial.current if self._trial else None
        if test_set is not None and test_set.is_set and not test_set.damaged and self._dialogue.asked == "Produce":
            why = f"the broker closed the connection on {test_set}"
            return Proof(result=Result.REFUSED, why=why, closed=True)
        asked = self._dialogue.asked
        wants_login = "does this port want SASL? Then authenticate first (shoal probe --sasl-mechanism)"
        return unproven(
            f"the broker closed the connection when asked for {asked}",
            wants_login if asked == "Metadata" else "",
            closed=True,
        ).proof

    def _judge(self) -> Talk[Proof]:
        yield from self._identify()
        assert self._identity is not None
        if proof := self._known(self._identity):
            return proof
        newest = self._dialogue.ranges.get(ApiKey.PRODUCE)
        if newest is None or newest.high < _PRODUCE_OF_2_4:
            why = "brokers older than Kafka 2.4 (no Produce v8) refuse sets, some by closing the connection: not tried"
            return Proof(result=Result.REFUSED, why=why)
        partition = yield from self._choose_partition()
        self._trial = Trial(self._dialogue, partition, self._plan.token, self._plan.now)
        return (yield from self._trial.run())

    # -- the broker's identity, and the partition to write to

    def _identify(self) -> Talk[None]:
        apis = yield from self._dialogue.learn_versions()
        topics = [self._plan.topic] if self._plan.topic else []
        frame, version = yield from self._dialogue.ask(ApiKey.METADATA, messages.metadata_request(topics))
        self._metadata = messages.metadata(frame, version)
        node_id = self._plan.node_id
        for broker in self._metadata.brokers:
            if broker.node_id == node_id:
                self._identity = Identity(
                    cluster_id=self._metadata.cluster_id,
                    node_id=node_id,
                    host=broker.host,
                    port=broker.port,
                    apis=tuple((key, low, high) for key, low, high in apis),
                )
                return
        raise unproven(f"the cluster does not name a broker {node_id}")

    def _choose_partition(self) -> Talk[ProbePartition]:
        if self._plan.topic is not None:
            return self._named(self._plan.topic)
        topic, node_id = self._plan.scratch, self._plan.node_id
        self._left.append(topic)  # from here on it may exist, whatever the response
        values = messages.create_topic(topic, node_id)
        try:
            frame, version = yield from self._dialogue.ask(ApiKey.CREATE_TOPICS, values)
        except DialogueEnded:
            self._left.remove(topic)
            raise unproven("the broker has no CreateTopics to make a scratch topic with", NAME_A_TOPIC) from None
        error_code, message = messages.created(frame, version)
        if error_code:
            if error_code != ErrorCode.REQUEST_TIMED_OUT:  # the topic may still be created
                self._left.remove(topic)
            raise unproven(
                refusal(f"cannot create the scratch topic {topic}", error_code, message), remedy_for(error_code)
            )
        return ProbePartition(topic, 0, shared=False)

    def _named(self, topic: str) -> ProbePartition:
        """The first partition of the topic that this broker leads."""
        for name, error_code in self._metadata.topics:
            if name == topic and error_code:
                raise unproven(f"topic {topic}: {error_name(error_code)}", remedy_for(error_code))
        for row in self._metadata.partitions:
            if row.topic == topic and row.leader == self._plan.node_id:
                return ProbePartition(topic, row.partition, shared=True)
        node_id = self._plan.node_id
        raise unproven(
            f"topic {topic} has no partition that broker {node_id} leads",
            "give the topic as many partitions as there are brokers, and spread their leaders",
        )

    def _delete(self) -> Talk[None]:
        """A failure here does not change the result: the topic is reported as not deleted."""
        if not self._left:
            return
        try:
            self._left = yield from clean_up(self._left, self._dialogue)
        except (DialogueEnded, ConnectionEnded, RemoteProtocolError):
            return


def clean_up(topics: list[str], dialogue: Dialogue | None = None) -> Talk[list[str]]:
    """Delete scratch topics; returns those that still exist. Without a dialogue it opens its own."""
    if dialogue is None:
        dialogue = Dialogue()
        yield from dialogue.learn_versions()
    frame, version = yield from dialogue.ask(ApiKey.DELETE_TOPICS, messages.delete_topics(topics))
    codes = messages.deleted(frame, version)
    return [topic for topic in topics if codes.get(topic) not in (0, 3)]
