"""Mirrors, a Shoal and the brokers of a target cluster, and all events between them, one step at a time.

    source_log -> Producer (a mirror's) -> Link -> UnwrapPath (Shoal's own) -> Link.upstream -> Partition (a leader and
        │                                              │                                         followers)
        └── batches that stay here, or are read again ─┘

A schedule is a list of steps `(name, number, number)`. An inapplicable step does nothing, so every list is a schedule,
and so is every part of it: that allows shrinking. `finish` delivers everything, and `verdict` compares the target's
logs with the source's.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import trio

from shoal.protocol.messages.metadata import MetadataResponse, read_metadata_response
from shoal.protocol.messages.produce import read_produce_request
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.envelope import MAGIC
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE
from shoal.proxy.cluster.cluster import Cluster
from shoal.proxy.config.settings import (
    Address,
    ClusterSettings,
    Limits,
    ListenerSettings,
    Mode,
    MultiBatch,
    PortRange,
    ShallowSettings,
)
from shoal.proxy.listener.admission import Strangers
from shoal.proxy.listener.listener import Listener, Shared
from shoal.proxy.shallow.files.producers import ProducersFile
from shoal.proxy.shallow.monitor.monitor import MirrorMonitors
from shoal.proxy.shallow.unwrap import target_state
from shoal.proxy.shallow.unwrap.path import UnwrapPath
from tests.support.batches import consumed
from tests.support.shallow.world import plain
from tests.torture_models.claims import Access, Source, SourceChecks, Unproven
from tests.torture_models.links import Link
from tests.torture_models.loop import Loop
from tests.torture_models.messages import (
    Answered,
    Head,
    api_versions_answer,
    head_of,
    id_answer,
    metadata_answer,
    produce_answer,
    produce_frame,
    read_produce_answer,
    versions_frame,
)
from tests.torture_models.producer import TOO_LARGE, Outer, Producer
from tests.torture_models.proofs import proof_of
from tests.torture_models.replicas import NOT_LEADER, Partition, Sets
from tests.torture_models.source import Batch, envelopes, record_id, source_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["STEPS", "Config", "Step", "World"]

UNKNOWN_TOPIC_ID = 100
TOPIC_IDS_FROM = 13
NODES = 3
_HARMLESS = (0, TOO_LARGE)
ASKED_IN_VAIN = 3  # connections lost in a row at the request for a producer id: then Shoal goes on without one
Step = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True)
class Config:
    idempotent: bool = False
    in_flight: int = 1
    mirrors: int = 1
    shared: bool = False  # all mirrors write the same topic (IdentityReplicationPolicy)
    partitions: int = 1
    versions: tuple[int, int, int] = (13, 13, 13)  # of Produce, by broker
    sets: Sets = Sets.REFUSED
    batches: int = 8  # of each source partition
    max_message_bytes: int = 1 << 20
    upgrades: bool = True  # of brokers, to another version of Produce
    raw: bool = True  # some batches are not wrapped
    all_raw: bool = False
    repeats_large: bool = False  # the producers repeat a batch that is too large, as those of Kafka 3.9 do
    kept_bytes: int = 0  # claim-check-bytes
    forgets: bool = False  # nothing stays here: another Shoal gives the claim checks

    @property
    def makes_large(self) -> bool:
        """Raw batches may be too large. Shoal recognises one that comes again only without others in flight."""
        return self.repeats_large and self.in_flight == 1 and not self.idempotent


@dataclass(eq=False)
class Pending:
    """A produce request at the broker: appended, its answer waits for the followers."""

    link: Link | None
    head: Head
    answers: dict[tuple[Any, int], Answered]
    waits: dict[tuple[Any, int], tuple[int, int]]  # leader epoch, batches

    def frame(self) -> bytes:
        topics: dict[Any, list[Answered]] = {}
        for (topic, _), answer in self.answers.items():
            topics.setdefault(topic, []).append(answer)
        return produce_answer(self.head, topics)


class Late(NamedTuple):
    """Requests that a broker received over a connection that has ended."""

    node: int
    frames: deque[bytes]


@dataclass(eq=False)
class Mirror:
    number: int
    topic: str
    producer: Producer
    positions: dict[int, int] = field(default_factory=dict)  # partition -> batches fetched
    committed: dict[int, int] = field(default_factory=dict)  # ... and acknowledged, at the last commit
    links: dict[int, Link] = field(default_factory=dict)  # by broker
    under_way: dict[Link, dict[int, tuple[int, dict[int, Outer]]]] = field(default_factory=dict)
    fetched: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)  # from there: batches, raw
    restarts: int = 0


class World:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.loop = Loop()
        self.trouble: list[str] = []
        self.may_double: set[tuple[int, int, int]] = set()  # source, partition, offset
        self.may_be_late: set[tuple[int, int, int]] = set()  # an older request may be appended after what followed
        self.steps: Counter[str] = Counter()
        self._serials, self._numbers, self._ids = count(1_000), count(1), count(5_000)
        names = ["orders"] if config.shared else [f"{'ABC'[number]}.orders" for number in range(config.mirrors)]
        self.topic_ids = {name: bytes([0xAA] * 15 + [number]) for number, name in enumerate(names)}
        # Idempotent mirrors would hit a gap in Kafka: a leader that does not know a producer accepts what follows a
        # lost batch.
        strict = config.idempotent
        self.logs: dict[tuple[str, int], Partition] = {
            (name, index): Partition(NODES, config.max_message_bytes, leader=index % NODES, begins_at_zero=strict)
            for name in names
            for index in range(config.partitions)
        }
        self.mirrors = [self._mirror(number, names[number % len(names)]) for number in range(config.mirrors)]
        self.versions = list(config.versions)
        self.pending: list[Pending] = []
        self.late: list[Late] = []
        self.links: list[Link] = []
        self.sources = [Source(number, config.batches) for number in range(config.mirrors)]
        self.checks: list[SourceChecks] = []
        self.asked_in_vain = 0
        self.memory = bytearray(64 * SLOT_SIZE)  # of the file that outlives a Shoal
        self.loop.do(self._start_shoal)

    def _producer(self) -> Producer:
        config = self.config
        return Producer(config.idempotent, config.in_flight, next(self._ids), config.makes_large)

    def _mirror(self, number: int, topic: str) -> Mirror:
        return Mirror(number, topic, self._producer())

    def _start_shoal(self) -> None:
        for checks in self.checks:
            checks.end()
        self.checks = [SourceChecks(source, self.loop, self.config.kept_bytes) for source in self.sources]
        settings = ClusterSettings(name="target", bootstrap=(Address("b", 9092),), multi_batch=MultiBatch.NEVER)
        self.cluster = Cluster(settings, Limits())
        self.cluster.learn(self._metadata())
        with patch.object(target_state, "ProducersFile", partial(_SmallFile, self.memory)):
            shared = Shared(strangers=Strangers(Limits()))
            self.listener = Listener(_SETTINGS, self.cluster, Limits(), self._path, shared)
            self.path.begin()

    def _path(self, listener: Listener) -> UnwrapPath:
        self.path = UnwrapPath(listener, Unproven(self.checks), MirrorMonitors())
        return self.path

    def _metadata(self) -> MetadataResponse:
        return read_metadata_response(self._metadata_frame(Head(ApiKey.METADATA, 12, 0)), 12)

    def _metadata_frame(self, head: Head) -> bytes:
        return metadata_answer(
            head, {name: (topic_id, self.config.partitions) for name, topic_id in self.topic_ids.items()}
        )

    def close(self) -> None:
        self.loop.close()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        name, a, b = step
        self.steps[name] += 1
        if name in _OF_NO_TASK:
            STEPS[name](self, a, b)
        else:
            self.loop.do(partial(STEPS[name], self, a, b))
        self._take_errors()

    def _take_errors(self) -> None:
        for link in self.links:
            self.trouble += [f"error: {error!r}" for error in link.errors]
            link.errors.clear()
        self.links = [link for link in self.links if not link.closed]

    def _pick(self, many: list[Any], number: int) -> Any:
        return many[number % len(many)] if many else None

    # mirrors

    def fetch(self, a: int, b: int) -> None:
        """a: the partition; whether they come whole, or as the last time from there. b: number of batches; whether they
        join the previous batch; whether they are raw.
        """
        mirror, partition = self._source_of(a)
        log, at = self._log_of(mirror, partition), mirror.positions.get(partition, 0)
        count, raw, whole = 1 + b % 4, self.config.raw and b // 8 % 4 == 3, a // 4 % 4 == 3
        if a >= 8:
            count, raw = mirror.fetched.get((partition, at), (count, raw))
        mirror.fetched[partition, at] = count, raw
        batches = log[at : at + count]
        if not batches:
            return
        mirror.positions[partition] = at + len(batches)
        raw |= self.config.all_raw
        self._give(mirror, partition, batches, raw=raw, whole=whole, join=bool(b // 4 % 2))

    def _give(
        self, mirror: Mirror, partition: int, batches: tuple[Batch, ...], *, raw: bool, whole: bool, join: bool
    ) -> None:
        """`whole`: if they are wrapped, the envelopes are no claim checks."""
        offsets = range(batches[0].base, batches[-1].end)
        if not raw:
            checks, size = self.checks[mirror.number], sum(len(batch.stored) for batch in batches)
            keep = checks.keep if not whole and checks.kept.has_room(mirror.number, size) else None
            records = envelopes(mirror.number, partition, batches, lambda: next(self._serials), keep)
            if self.config.forgets:
                checks.kept.clear()
            mirror.producer.add(partition, records, offsets, wrapped=True, join=join)
            return
        records = [record for batch in batches for record in batch.records]
        if self.config.max_message_bytes >= 1 << 20 or self.config.makes_large:
            mirror.producer.add(partition, records, offsets, wrapped=False, join=join)
            return
        for offset, record in zip(offsets, records, strict=True):  # its batches are small enough for the broker
            mirror.producer.add(partition, [record], range(offset, offset + 1), wrapped=False, join=False)

    def _source_of(self, a: int) -> tuple[Mirror, int]:
        return self.mirrors[a % len(self.mirrors)], a // len(self.mirrors) % self.config.partitions

    def _log_of(self, mirror: Mirror, partition: int) -> tuple[Batch, ...]:
        return source_log(mirror.number, partition, self.config.batches)

    def send(self, a: int, b: int) -> None:
        """The mirror's producer sends all that it may; b: or this many requests."""
        mirror = self.mirrors[a % len(self.mirrors)]
        for _ in range(b % 4 or 5):
            if not self._send_once(mirror):
                return

    def _send_once(self, mirror: Mirror) -> bool:
        producer, sent = mirror.producer, False
        for node in range(NODES):
            outers = {
                index: outer
                for index in range(self.config.partitions)
                if self.logs[mirror.topic, index].leader == node
                and not self._is_first_elsewhere(mirror, index, node)
                and (outer := producer.next_batch(index)) is not None
            }
            if not outers:
                continue
            link = self._link(mirror, node)
            under_way = mirror.under_way[link]
            if len(under_way) >= producer.in_flight:
                continue
            sets = {index: producer.send(index, outer) for index, outer in outers.items()}
            version, number = self.versions[node], next(self._numbers)
            topic = self.topic_ids[mirror.topic] if version >= TOPIC_IDS_FROM else mirror.topic
            under_way[number] = version, outers
            link.send(produce_frame(version, number, topic, sets))
            sent = True
        return sent

    def _is_first_elsewhere(self, mirror: Mirror, index: int, node: int) -> bool:
        """Nothing of an idempotent producer is appended yet, and its first batch is in flight to a former leader.

        The new leader does not know the producer id and would accept what follows that batch: Kafka's own gap.
        """
        if not self.config.idempotent or mirror.producer.lane(index).last_acked >= 0:
            return False
        others = [sent for link, sent in mirror.under_way.items() if link.node != node]
        return any(index in outers for sent in others for _, outers in sent.values())

    def _link(self, mirror: Mirror, node: int) -> Link:
        link = mirror.links.get(node)
        if link is None:
            link = Link(
                self.path, self.cluster, self.listener, node, lambda frame: self._told(mirror, node, link, frame)
            )
            mirror.links[node], mirror.under_way[link] = link, {}
            self.links.append(link)
            self._vouch(link)
            self.loop.spawn(
                link.run, versions_frame(0), api_versions_answer(Head(ApiKey.API_VERSIONS, 0, 0), self.versions[node])
            )
        return link

    def _vouch(self, link: Link) -> None:
        proof = proof_of(self.config.sets)
        if proof.proven:
            self.cluster.proofs.vouch(link, stamps=proof.stamps)

    def _told(self, mirror: Mirror, node: int, link: Link | None, frame: bytes | None) -> None:
        """The mirror gets an answer, or its connection ends."""
        assert link is not None
        if frame is None:
            return self._disconnected(mirror, node, link)
        number = int.from_bytes(frame[4:8], "big")
        if number == 0:
            return None  # ApiVersions
        version, outers = mirror.under_way[link].pop(number)
        answers = {one.partition: one for one in read_produce_answer(frame, version)}
        # The request is over, and one that is too large has appended nothing.
        refused = {at: outer for at, outer in outers.items() if at in answers and answers[at].error not in _HARMLESS}
        self._may_double(mirror, refused, late=self.config.in_flight > 1)
        for index, outer in outers.items():
            if index not in answers:
                self.trouble.append(f"no answer for partition {index}")
            mirror.producer.answered(index, outer, answers[index].error)
        if mirror.producer.failed:
            self._task_failed(mirror)
        return None

    def _disconnected(self, mirror: Mirror, node: int, link: Link) -> None:
        for _, outers in mirror.under_way.pop(link, {}).values():
            self._may_double(mirror, outers)
            mirror.producer.lost(iter(outers.items()))
        if mirror.links.get(node) is link:
            del mirror.links[node]

    def _may_double(self, mirror: Mirror, outers: dict[int, Outer], *, late: bool = True) -> None:
        """What any producer without idempotence may send twice after an error: its raw batches, and with several
        requests in flight anything.

        The same holds for sets to a broker that does not detect a repeated one (docs/multi-batch.md), and for
        everything if Shoal gets no producer id (docs/mirroring.md).
        """
        config = self.config
        if config.idempotent:
            return
        proof = proof_of(config.sets)
        is_unstamped = (proof.proven and not proof.stamps) or self.asked_in_vain >= ASKED_IN_VAIN
        for index, outer in outers.items():
            if config.in_flight > 1 or not outer.wrapped or is_unstamped:
                self._allow(mirror, index, outer.offsets, late=late)

    def _allow(self, mirror: Mirror, index: int, offsets: range, *, late: bool = True) -> None:
        found = {(mirror.number, index, offset) for offset in offsets}
        self.may_double |= found
        self.may_be_late |= found if late else set()

    def _allow_sent(self, mirror: Mirror) -> None:
        for index, lane in mirror.producer.lanes.items():
            for outer in lane.queue:
                if outer.sent:
                    self._allow(mirror, index, outer.offsets)

    def _task_failed(self, mirror: Mirror) -> None:
        self.trouble.append(f"a mirror's task failed with error {mirror.producer.failed}")
        mirror.producer.failed = 0

    def leave(self, a: int, b: int) -> None:
        """A mirror gives up waiting, and closes a connection."""
        mirror = self.mirrors[a % len(self.mirrors)]
        link = self._pick(list(mirror.links.values()), a // len(self.mirrors))
        if link is not None:
            link.leave(unread=bool(b % 2))
            self._disconnected(mirror, link.node, link)

    def commit(self, a: int, b: int) -> None:
        """A mirror commits acknowledged records."""
        mirror, partition = self._source_of(a)
        mirror.committed[partition] = self._acknowledged(mirror, partition)

    def _acknowledged(self, mirror: Mirror, partition: int) -> int:
        queue, position = mirror.producer.lane(partition).queue, mirror.positions.get(partition, 0)
        if not queue:
            return position
        log = self._log_of(mirror, partition)
        return next(at for at, batch in enumerate(log) if batch.end > queue[0].offsets.start)

    def restart_mirror(self, a: int, b: int) -> None:
        """It reads again from its committed offset. Brokers do not know an idempotent one's new producer id."""
        mirror = self.mirrors[a % len(self.mirrors)]
        if self.config.idempotent:
            self._allow_sent(mirror)
        for link in list(mirror.links.values()):
            link.leave(unread=bool(b % 2))
            self._disconnected(mirror, link.node, link)
        for partition, position in mirror.positions.items():
            start = mirror.committed.get(partition, 0)
            for batch in self._log_of(mirror, partition)[start:position]:
                self._allow(mirror, partition, range(batch.base, batch.end), late=False)
            mirror.positions[partition] = start
        mirror.restarts += 1
        mirror.producer = self._producer()

    # brokers

    def serve(self, a: int, b: int) -> None:
        """A broker takes a request and answers it once all replicas have it; b: or this many requests of that
        connection."""
        for _ in range(1 + b % 3):
            link = self._pick([one for one in self.links if one.upstream], a)
            if link is None:
                return
            self._take(link)
            self._copy_all()

    def append(self, a: int, b: int) -> None:
        """A broker takes a request; the followers do not have it yet."""
        link = self._pick([one for one in self.links if one.upstream and not one.busy], a)
        if link is not None:
            self._take(link)

    def _copy_all(self) -> None:
        for partition in self.logs.values():
            partition.copy_all()
        self._answer_pending()

    def copy(self, a: int, b: int) -> None:
        """A follower fetches some batches."""
        partition = self._pick(list(self.logs.values()), a)
        partition.copy(a // len(self.logs) % NODES, 1 + b % 3)
        self._answer_pending()

    def _take(self, link: Link) -> None:
        if link.busy or not link.upstream:
            return
        frame = link.upstream[0]
        head = head_of(frame)
        if head.key == ApiKey.METADATA:
            link.answered(self._metadata_frame(head))
        elif head.key == ApiKey.INIT_PRODUCER_ID:
            self._asked(in_vain=False)
            link.answered(id_answer(head, next(self._ids)))
        else:
            assert head.key == ApiKey.PRODUCE, head
            link.busy = True
            self.pending.append(self._produce(link, link.node, frame))
            self._answer_pending()

    def _produce(self, link: Link | None, node: int, frame: bytes) -> Pending:
        head = head_of(frame)
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        pending = Pending(link, head, {}, {})
        for topic, index, start, end in read_produce_request(frame, head.version).partitions:
            name = names[topic] if isinstance(topic, bytes) else topic
            partition = self.logs[name, index]
            if partition.leader != node:
                pending.answers[topic, index] = Answered(index, NOT_LEADER, -1)
                continue
            if MAGIC in frame[start:end]:
                self.trouble.append(f"an envelope is produced to {name}-{index}")
            error, base, needed = partition.produce(frame[start:end], self.config.sets)
            pending.answers[topic, index] = Answered(index, error, base)
            if not error:
                pending.waits[topic, index] = partition.epoch, needed
        return pending

    def _partition(self, topic: Any, index: int) -> Partition:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return self.logs[names[topic] if isinstance(topic, bytes) else topic, index]

    def _answer_pending(self) -> None:
        left = []
        for pending in self.pending:
            for (topic, index), (epoch, needed) in list(pending.waits.items()):
                partition = self._partition(topic, index)
                if partition.epoch != epoch:
                    pending.answers[topic, index] = Answered(index, NOT_LEADER, -1)
                elif partition.committed < needed:
                    continue
                del pending.waits[topic, index]
            if pending.waits:
                left.append(pending)
            elif pending.link is not None and pending.link.busy and not pending.link.upstream_ended:
                pending.link.answered(pending.frame())
        self.pending = left

    def cut(self, a: int, b: int) -> None:
        """Shoal's connection to a broker is lost; b: its unanswered requests are lost or late, or only the first is
        late."""
        link = self._pick([one for one in self.links if not one.upstream_ended], a)
        if link is not None:
            self._lose(link, late=(0, 99, 1, 99)[b % 4])

    def _lose(self, link: Link, late: int) -> None:
        is_busy = link.busy
        for pending in self.pending:
            pending.link = None if pending.link is link else pending.link
        frames = link.lose()[1 if is_busy else 0 :]
        if any(head_of(frame).key == ApiKey.INIT_PRODUCER_ID for frame in frames):
            self._asked(in_vain=True)
        frames = [frame for frame in frames if head_of(frame).key == ApiKey.PRODUCE][:late]
        if frames:
            self.late.append(Late(link.node, deque(frames)))

    def _asked(self, *, in_vain: bool) -> None:
        """For a producer id. Shoal asks again after a pause; what it sent before has none."""
        if self.asked_in_vain < ASKED_IN_VAIN:
            self.asked_in_vain = self.asked_in_vain + 1 if in_vain else 0

    def arrive(self, a: int, b: int) -> None:
        """A late request is appended."""
        late = self._pick([one for one in self.late if one.frames], a)
        if late is not None:
            self.pending.append(self._produce(None, late.node, late.frames.popleft()))
            self._answer_pending()

    def lose_late(self, a: int, b: int) -> None:
        late = self._pick([one for one in self.late if one.frames], a)
        if late is not None:
            late.frames.popleft()

    def elect(self, a: int, b: int) -> None:
        """Another replica becomes the leader. b: the old leader continues, or died with its connections."""
        partition = self._pick(list(self.logs.values()), a)
        self._elect(partition, a // len(self.logs) % NODES, dies=bool(b % 2))

    def _elect(self, partition: Partition, node: int, *, dies: bool) -> None:
        old = partition.leader
        if node == old:
            return
        partition.elect(node)
        if dies:
            for link in [one for one in self.links if one.node == old and not one.upstream_ended]:
                self._lose(link, late=0)
            for other in self.logs.values():
                if other.leader == old:
                    other.elect(node)
        self._answer_pending()

    def upgrade(self, a: int, b: int) -> None:
        """A broker stops, and restarts with the other version of Produce."""
        node = a % NODES
        for partition in self.logs.values():
            if partition.leader == node:
                partition.elect((node + 1 + b % 2) % NODES)
        for link in [one for one in self.links if one.node == node and not one.upstream_ended]:
            self._lose(link, late=0)
        self.late = [late for late in self.late if late.node != node]
        if self.config.upgrades:
            self.versions[node] = 25 - self.versions[node]
        self._answer_pending()

    def lead_again(self, a: int, b: int) -> None:
        """All replicas have all, and another one becomes leader, as in a leader election by an operator."""
        self._copy_all()
        partition = self._pick(list(self.logs.values()), a)
        self._elect(partition, a // len(self.logs) % NODES, dies=False)

    def forget(self, a: int, b: int) -> None:
        """A leader restarts cleanly, and remembers one batch of each producer."""
        partition: Partition = self._pick(list(self.logs.values()), a)
        for link in [one for one in self.links if one.node == partition.leader and not one.upstream_ended]:
            self._lose(link, late=0)
        partition.restart()

    # Shoal

    def restart_shoal(self, a: int, b: int) -> None:
        """It is killed: its knowledge of runs in flight is lost (README, last lines)."""
        for mirror in self.mirrors:
            self._allow_sent(mirror)
        for link in list(self.links):
            self._lose(link, late=(0, 99, 1, 99)[b % 4])
            link.kill()
        self._start_shoal()

    def wait(self, a: int, b: int) -> None:
        self._wait((1, 10, 40, 700)[a % 4])

    def _wait(self, seconds: float) -> None:
        self.loop.clock.jump(seconds)
        self.loop.do(self._tick)

    def _tick(self) -> None:
        for checks in self.checks:
            checks.tick(trio.current_time())

    # sources

    def reach(self, a: int, b: int) -> None:
        """Shoal reaches a source or not, for claim checks whose batches are not here."""
        self.sources[a % len(self.sources)].become(list(Access)[b % len(Access)])

    def lose_kept(self, a: int, b: int) -> None:
        """The batches of a source do not stay here any longer."""
        self.checks[a % len(self.checks)].kept.clear()

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, rounds: int = 120) -> None:
        """No more faults: everything is fetched, sent, answered. Late requests arrive first."""
        self.loop.do(self._arrive_all)
        self.loop.do(self._reach_all)
        for number in range(rounds):
            if not self._go_on(stuck=number % 20 == 19):
                break
        else:
            self.trouble.append("hang: a mirror's records are not acknowledged after all faults have ended")
        self.loop.do(self._copy_all)
        self._take_errors()

    def _arrive_all(self) -> None:
        self._copy_all()
        while any(late.frames for late in self.late):
            self.arrive(0, 0)
            self._copy_all()

    def _reach_all(self) -> None:
        for source in self.sources:
            source.become(Access.ANSWERS)

    def _go_on(self, *, stuck: bool) -> bool:
        for mirror in self.mirrors:
            for partition in range(self.config.partitions):
                self._fetch_rest(mirror, partition)
            self.loop.do(partial(self.send, mirror.number, 0))
        for link in list(self.links):
            for _ in range(40):
                if not link.upstream or link.closed:
                    break
                self.loop.do(partial(self._serve_one, link))
        if self.config.kept_bytes:
            self._wait(1)
        if stuck:
            self._wait(40)
            for mirror in self.mirrors:
                self.loop.do(partial(self._leave_all, mirror))
        self._take_errors()
        return any(mirror.producer.unacknowledged for mirror in self.mirrors)

    def _leave_all(self, mirror: Mirror) -> None:
        for link in list(mirror.links.values()):
            link.leave(unread=True)
            self._disconnected(mirror, link.node, link)

    def _serve_one(self, link: Link) -> None:
        self._take(link)
        self._copy_all()

    def _fetch_rest(self, mirror: Mirror, partition: int) -> None:
        log, at = self._log_of(mirror, partition), mirror.positions.get(partition, 0)
        if at < len(log):
            mirror.positions[partition] = len(log)
            self._give(mirror, partition, log[at:], raw=self.config.all_raw, whole=False, join=False)

    def verdict(self) -> list[str]:
        """What is wrong with the target's logs."""
        found = list(dict.fromkeys(self.trouble))
        for (name, index), partition in self.logs.items():
            copies: dict[int, list[int]] = {mirror.number: [] for mirror in self.mirrors if mirror.topic == name}
            for entry in partition.log:
                for record in plain(consumed(entry.batch)):
                    if record.key is not None and MAGIC in record.key:
                        found.append(f"an envelope in {name}-{index}")
                        continue
                    source, part, offset = record_id(record)
                    if part != index or record != self._expected(source, part, offset):
                        found.append(f"altered: {name}-{index} has {record}")
                    copies[source].append(offset)
            for source, offsets in copies.items():
                found += self._judge(f"{name}-{index} of source {source}", source, index, offsets)
        return found

    def _expected(self, source: int, partition: int, offset: int) -> Any:
        for batch in source_log(source, partition, self.config.batches):
            if offset < batch.end:
                return plain(batch.records)[offset - batch.base]
        return None

    def _judge(self, what: str, source: int, index: int, offsets: list[int]) -> Iterator[str]:
        end = source_log(source, index, self.config.batches)[-1].end
        times = Counter(offsets)
        firsts = list(dict.fromkeys(offsets))
        if missing := [offset for offset in range(end) if offset not in times]:
            yield f"lost: {what}: {missing}"
        doubled = [
            time for time, number in times.items() if number > 1 and (source, index, time) not in self.may_double
        ]
        if doubled:
            yield f"doubled: {what}: {sorted(doubled)} (target: {offsets})"
        if not self.config.idempotent and self.config.in_flight > 1:
            return
        if firsts != sorted(firsts):
            yield f"reordered: {what}: {offsets}"
        lasts = [one for one in dict.fromkeys(reversed(offsets)) if (source, index, one) not in self.may_be_late]
        if lasts != sorted(lasts, reverse=True):
            yield f"late: {what}: {offsets}"


class _SmallFile(ProducersFile):
    """A file that outlives a Shoal, without the file. Scanning 16,384 slots takes longer than a schedule."""

    def __init__(self, memory: bytearray, listener: str, *_: object, **__: object) -> None:
        super().__init__(listener, None)
        self.slots = memory


_SETTINGS = ListenerSettings(
    name="to",
    cluster="target",
    port=0,
    nodes=PortRange(first=1, last=9),
    mode=Mode.UNWRAP,
    shallow=ShallowSettings(),
)

_OF_NO_TASK = frozenset({"fetch", "commit", "lose_late", "wait"})  # no code of Shoal runs in them

STEPS: dict[str, Callable[[World, int, int], None]] = {
    "fetch": World.fetch,
    "send": World.send,
    "serve": World.serve,
    "append": World.append,
    "copy": World.copy,
    "cut": World.cut,
    "leave": World.leave,
    "elect": World.elect,
    "lead_again": World.lead_again,
    "upgrade": World.upgrade,
    "arrive": World.arrive,
    "lose_late": World.lose_late,
    "commit": World.commit,
    "restart_mirror": World.restart_mirror,
    "restart_shoal": World.restart_shoal,
    "forget": World.forget,
    "wait": World.wait,
    "reach": World.reach,
    "lose_kept": World.lose_kept,
}
