"""What Shoal makes of the target's answers before a mirror gets anything of a topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.request import ProduceRequest

from shoal.protocol.mirror_topics.probe import State
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.settings import ShallowSettings, WithoutAgent
from shoal.proxy.shallow.leaders import Leaders
from shoal.proxy.shallow.wrap.copy_kinds import CopyKinds
from tests.support.kio_messages import decode_request
from tests.support.probe_answers import probe_answers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

MIRROR = "A->B|MirrorSourceConnector-0|replication-consumer"
CODES = {
    State.MIRROR: ErrorCode.none,
    State.PROMOTED: ErrorCode.policy_violation,
    State.ORDINARY: ErrorCode.invalid_record,
    State.PASSING: ErrorCode.not_leader_or_follower,
    State.REFUSED: ErrorCode.topic_authorization_failed,
}


@dataclass
class Target:
    """`topics`: what the leader of each partition says. None: it has no leader. `silent`: no broker answers.
    `hidden`: Shoal may not describe these. `stuck`: broker 2, which leads the topic `A.payments`, does not answer.
    """

    topics: dict[str, list[State | None]] = field(default_factory=dict)
    silent: bool = False
    hidden: frozenset[str] = frozenset()
    stuck: bool = False
    demands_login: bool = False
    has_principal: bool = False


class ScriptedLeaders(Leaders):
    def __init__(self, target: Target) -> None:
        super().__init__(cast("Any", target))
        self._target = target
        self.closed = 0

    def ask_again(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1

    async def learn(self, topics: Iterable[str]) -> frozenset[str] | None:
        await trio.lowlevel.checkpoint()
        if self._target.silent:
            raise NoAnswer("no broker is there")
        self.hidden = self._target.hidden
        return frozenset(topics) - self._target.topics.keys()

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(len(self._target.topics.get(topic, ())))]

    def leader(self, partition: TopicPartition) -> int | None:
        if self._target.topics[partition.topic][partition.partition] is None:
            return None
        return 2 if self._target.stuck and partition.topic == "A.payments" else 1

    async def exchange(self, node_id: int | None, request: bytes) -> bytes:
        if node_id == 2:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        _, asked = decode_request(request, ProduceRequest)
        return probe_answers(
            *(
                self._row(TopicPartition(topic.name, row.index))
                for topic in asked.topic_data
                for row in topic.partition_data
            )
        )

    def _row(self, partition: TopicPartition) -> tuple[TopicPartition, ErrorCode, int, int, str | None]:
        state = self._target.topics[partition.topic][partition.partition]
        assert state is not None
        end = 0 if state is State.MIRROR else -1
        text = f"{partition.topic} was promoted: it is ordinary" if state is State.PROMOTED else None
        return partition, CODES[state], end, end, text


@dataclass
class Rig:
    kinds: CopyKinds
    target: Target
    leaders: ScriptedLeaders
    tasks: list[Callable[[], Awaitable[None]]]
    changes: list[int]

    async def ask(self, topic: str = "orders", client_id: str = MIRROR, *, after: float = 2.0) -> bool:
        """A mirror wants the topic, and the target is asked -> whether it may get a locator."""
        self.kinds.may_locate(topic, client_id)
        await trio.sleep(after)
        self.kinds.tick(trio.current_time())
        for task in self.tasks:
            await task()
        self.tasks.clear()
        return self.kinds.may_locate(topic, client_id)


def rig(folder: Path, target: Target, **settings: Any) -> Rig:
    tasks, changes, leaders = list[Any](), list[int](), ScriptedLeaders(target)
    listener: Any = SimpleNamespace(
        name="source",
        settings=SimpleNamespace(mirrored_file=folder / "source.mirrored"),
        state_failed=lambda: None,
        may_spawn=True,
        spawn=tasks.append,
    )
    clusters: Any = SimpleNamespace(differ=True, target=target)
    kinds = CopyKinds(listener, clusters, lambda: changes.append(1), lambda _: leaders)
    kinds.use(ShallowSettings(**{"same_offsets": ".*", "without_agent": WithoutAgent.ORDINARY, **settings}))
    return Rig(kinds, target, leaders, tasks, changes)


MIRRORED, PROMOTED, ORDINARY = State.MIRROR, State.PROMOTED, State.ORDINARY


@pytest.mark.parametrize(
    ("said", "is_ordinary"),
    [
        ([ORDINARY], True),
        ([ORDINARY, ORDINARY, ORDINARY], True),
        ([MIRRORED], False),
        ([PROMOTED, ORDINARY], False),
        ([MIRRORED, ORDINARY, None], False),
    ],
)
async def test_only_if_all_brokers_say_so_it_is_ordinary(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, said: list[State | None], is_ordinary: bool
) -> None:
    r = rig(tmp_path, Target({"A.orders": said, "orders": [ORDINARY]}))
    assert await r.ask() is not is_ordinary
    assert r.kinds.is_ordinary("orders") is is_ordinary
    assert r.changes == [1]
    assert r.leaders.closed == 1


@pytest.mark.parametrize("said", [[ORDINARY, None], [State.PASSING, ORDINARY], [State.REFUSED], [None]])
async def test_what_is_not_known_waits_until_it_is(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, said: list[State | None]
) -> None:
    r = rig(tmp_path, Target({"A.orders": said}))
    assert not await r.ask()
    assert not await r.ask()
    assert not r.kinds.is_ordinary("orders")
    assert r.kinds.undecided == {}
    assert not await r.ask(after=15.0)
    assert list(r.kinds.undecided) == ["orders"]
    r.target.topics["A.orders"] = [MIRRORED]
    assert await r.ask()
    assert r.kinds.undecided == {}


async def test_a_topic_that_has_the_name_of_the_source_is_no_copy_at_first(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The target may have topics of its own, and the copy is not created yet. IdentityReplicationPolicy: no prefix."""
    r = rig(tmp_path, Target({"orders": [ORDINARY]}))
    assert not await r.ask()
    assert not r.kinds.is_ordinary("orders")
    r.target.topics["A.orders"] = [MIRRORED]
    assert await r.ask()
    identity = rig(tmp_path / "identity", Target({"orders": [ORDINARY]}))
    await identity.ask()
    await identity.ask(after=15.0)
    assert identity.kinds.is_ordinary("orders")


@pytest.mark.parametrize(
    ("target", "word"),
    [
        (Target(), "the target has no topic 'A.orders' or 'orders'"),
        (Target({"A.orders": [ORDINARY]}, silent=True), "no broker is there"),
        (Target({"A.orders": [ORDINARY]}, demands_login=True), "Shoal has none"),
        (Target({"A.orders": [ORDINARY, State.REFUSED]}), "TOPIC_AUTHORIZATION_FAILED"),
        (Target({"orders": [ORDINARY]}, hidden=frozenset({"A.orders"})), "A.orders of the target: a partition has no"),
        (Target({"A.orders": [State.REFUSED]}), "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
async def test_an_operator_gets_to_know_why_a_topic_waits(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, target: Target, word: str
) -> None:
    r = rig(tmp_path, target)
    await r.ask()
    assert not await r.ask(after=15.0)
    assert word in r.kinds.undecided["orders"]
    await trio.sleep(60.0)
    r.kinds.tick(trio.current_time())
    assert r.kinds.undecided == {}  # no mirror wants it any more
    assert r.tasks == []


async def test_what_a_mirror_has_had_a_locator_of_is_never_ordinary(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    target = Target({"A.orders": [ORDINARY]})
    waiting = rig(tmp_path, target, without_agent=WithoutAgent.WAIT)
    assert waiting.kinds.may_locate("orders", MIRROR)
    assert waiting.kinds.locates("orders")
    later = rig(tmp_path, target)
    assert await later.ask()
    assert not later.kinds.is_ordinary("orders")


async def test_a_reload_forgets_what_was_asked(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    r = rig(tmp_path, Target({"A.orders": [ORDINARY]}))
    r.kinds.may_locate("orders", MIRROR)
    r.kinds.tick(trio.current_time())
    r.kinds.use(ShallowSettings(same_offsets=".*"))
    (task,) = r.tasks
    await task()
    assert not r.kinds.is_ordinary("orders")
    assert r.kinds.may_locate("orders", MIRROR)


async def test_what_another_has_given_meanwhile_counts(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A process that is taken over from, or the listener before a reload, gives a locator while this one runs."""
    target = Target({"A.orders": [ORDINARY]})
    before = rig(tmp_path, target, without_agent=WithoutAgent.WAIT)
    later = rig(tmp_path, target)
    assert before.kinds.locates("orders")
    assert await later.ask()
    assert not later.kinds.is_ordinary("orders")


async def test_while_it_can_not_be_kept_the_topic_waits(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """The mirror's answers are held then, or it would ask as fast as it can."""
    r = rig(tmp_path / "state", Target({"A.orders": [MIRRORED]}))
    (tmp_path / "state").write_text("no folder")
    r.kinds.may_locate("orders", MIRROR)
    r.kinds.tick(trio.current_time())
    (tmp_path / "state").unlink()
    await r.tasks.pop()()
    (tmp_path / "state").write_text("no folder")
    assert not r.kinds.may_locate("orders", MIRROR)
    (tmp_path / "state").unlink()
    assert r.kinds.may_locate("orders", MIRROR)


async def test_a_broker_that_does_not_answer_holds_up_its_own_topics_only(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    r = rig(tmp_path, Target({"A.payments": [ORDINARY], "A.orders": [ORDINARY]}, stuck=True))
    r.kinds.may_locate("payments", MIRROR)
    await r.ask()
    assert r.kinds.ordinary == {"orders"}
    assert not await r.ask("payments", after=15.0)
    assert "broker 2: no answer within 4 s" in r.kinds.undecided["payments"]


async def test_two_topics_may_have_one_copy_by_name(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """As a copy of orders, and as what a mirror without prefixes makes of A.orders: asked once."""
    r = rig(tmp_path, Target({"A.orders": [ORDINARY]}))
    r.kinds.may_locate("A.orders", MIRROR)
    await r.ask(after=15.0)
    assert r.kinds.ordinary == {"orders", "A.orders"}
