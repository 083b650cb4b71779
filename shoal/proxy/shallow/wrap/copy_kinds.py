"""Which topics of `same-offsets` are mirrored as ordinary ones: no broker of the target has the agent for them.

Only with `without-agent = "ordinary"`. Then Shoal itself asks the leaders of a copy, before a mirror gets anything:

    all say that it is no mirror topic      it is mirrored as an ordinary topic, until Shoal ends
    one says that it is                     it keeps its offsets; partitions of brokers without the agent wait
    else                                    nothing is given, and they are asked again

A topic of which a mirror has got a locator, in whichever process, never becomes ordinary (`KeptTopics`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from shoal.protocol.mirror_topics.probe import State, encode_probe, read_probe_answers
from shoal.protocol.shallow.interlock.way_back import copy_names
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import WithoutAgent
from shoal.proxy.events.logs import event
from shoal.proxy.shallow.files.kept_topics import MOST_TOPICS, KeptTopics
from shoal.proxy.shallow.leaders import Leaders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shoal.protocol.mirror_topics.probe import ProbeAnswer
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.settings import ShallowSettings
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.shallow.cluster_pair import ClusterPair

__all__ = ["CopyKinds"]

log = logging.getLogger("shoal.fetch")

_PAUSE = 2.0  # seconds between two rounds of questions
_PATIENCE = 4.0  # for the answers of a broker in a round
_PARTITIONS = 1000  # of one request
_CREATED_WITHIN = 15.0  # seconds: then a copy is there, or has no prefix
_FORGOTTEN_AFTER = 60.0  # seconds in which no mirror has asked for the topic
_SILENT = f"no answer within {_PATIENCE:g} s"
_NO_LEADER = "a partition has no leader, or Shoal may not see the topic (DESCRIBE)"
_MIRROR = frozenset({State.MIRROR, State.PROMOTED})


@dataclass(slots=True)
class _Asked:
    """A topic whose kind is not known yet. `names`: of its copy, the first that exists counts."""

    names: tuple[str, ...]
    since: float
    wanted_at: float

    def is_new(self, now: float) -> bool:
        return now - self.since < _CREATED_WITHIN


class CopyKinds:
    """One per wrapping listener. `changed`: a topic's kind is known. `leaders`: of a cluster. Raises OperatorError."""

    def __init__(
        self,
        listener: Listener,
        clusters: ClusterPair | None,
        changed: Callable[[], None],
        leaders: Callable[[Cluster], Leaders] = Leaders,
    ) -> None:
        self._listener = listener
        self._clusters = clusters
        self._changed = changed
        file = listener.settings.mirrored_file
        path = None if file is None else file.with_suffix(".same-offsets")
        self._kept = KeptTopics(listener.name, path, listener.state_failed)
        self._asks = False
        self._mirrored = set[str]()
        self.ordinary = set[str]()
        self._asked: dict[str, _Asked] = {}
        self.undecided: dict[str, str] = {}  # and why
        self._leaders_of = leaders
        self._leaders: Leaders | None = None
        self._is_asking = False
        self._asked_at = float("-inf")

    def use(self, settings: ShallowSettings) -> None:
        self._asks = settings.without_agent is WithoutAgent.ORDINARY
        if not self._asks:
            self.ordinary.clear()
            self._asked.clear()
            self.undecided.clear()

    def is_ordinary(self, topic: str) -> bool:
        return topic in self.ordinary

    def may_locate(self, topic: str, client_id: str) -> bool:
        """Whether a mirror may get locators of this topic. Else it is asked what its copy is."""
        if not self._asks or topic in self._kept:
            return True
        if topic in self._mirrored:
            return self._kept.add(topic)
        now, asked = trio.current_time(), self._asked.get(topic)
        if asked is not None:
            asked.wanted_at = now
        elif len(self._asked) < MOST_TOPICS:
            self._asked[topic] = _Asked(copy_names(topic, client_id), now, now)
        return False

    def locates(self, topic: str) -> bool:
        """A mirror that may get a locator is about to get it. False: not now."""
        return self._kept.add(topic, sync=self._asks) or not self._asks

    # -- the questions -----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        for topic in [topic for topic, question in self._asked.items() if now - question.wanted_at >= _FORGOTTEN_AFTER]:
            del self._asked[topic]
            self.undecided.pop(topic, None)
        clusters = self._clusters
        if not self._asked or self._is_asking or now - self._asked_at < _PAUSE or not self._listener.may_spawn:
            return
        if clusters is not None and clusters.differ and clusters.target is not None:
            self._is_asking, self._asked_at = True, now
            self._listener.spawn(self._ask)

    async def _ask(self) -> None:
        """Never raises."""
        asked = dict(self._asked)
        try:
            await self._decide(asked)
        except (NoAnswer, OperatorError) as error:
            why = f"the target does not say what its copy is: {error}" if isinstance(error, NoAnswer) else str(error)
            for topic, question in asked.items():
                self._say_undecided(topic, question, why)
        finally:
            self._is_asking = False
            if not self._asked:
                self.end()

    def end(self) -> None:
        """Close the connections to the target."""
        if self._leaders is not None:
            self._leaders.close()

    async def _decide(self, asked: Mapping[str, _Asked]) -> None:
        """Raises NoAnswer, and OperatorError."""
        assert self._clusters is not None
        cluster = self._clusters.target
        assert cluster is not None
        leaders = self._leaders = self._leaders or self._leaders_of(cluster)
        if leaders.must_log_in:
            raise NoAnswer("it demands a login, and Shoal has none")
        leaders.ask_again()
        with trio.move_on_after(_PATIENCE) as scope:
            missing = (
                await leaders.learn({name for question in asked.values() for name in question.names}) or frozenset()
            )
        if scope.cancelled_caught:
            raise NoAnswer(_SILENT)
        now, copies = trio.current_time(), dict[str, str | None]()
        for topic, question in asked.items():
            names = question.names[:1] if question.is_new(now) else question.names
            copies[topic] = next((name for name in names if name not in missing or name in leaders.hidden), None)
        known = {copy for copy in copies.values() if copy is not None}  # two topics may have one
        wanted = [partition for copy in known for partition in leaders.partitions(copy)]
        answers = await self._probe(leaders, wanted)
        self._kept.read()
        for topic, copy in copies.items():
            if copy is None:
                missed = " or ".join(map(repr, asked[topic].names))
                self._say_undecided(topic, asked[topic], f"the target has no topic {missed}")
            else:
                partitions = leaders.partitions(copy)
                found = {partition: answers[partition] for partition in partitions if partition in answers}
                self._judge(topic, asked[topic], copy, found, is_whole=len(found) == len(partitions))

    async def _probe(
        self, leaders: Leaders, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ProbeAnswer | str]:
        """Those that have a leader -> its answer, or why there is none."""
        answers: dict[TopicPartition, ProbeAnswer | str] = {}
        async with trio.open_nursery() as nursery:  # one that is silent holds up no other
            for node_id, led in leaders.by_leader(partitions).items():
                nursery.start_soon(self._probe_leader, leaders, node_id, led, answers)
        return answers

    @staticmethod
    async def _probe_leader(
        leaders: Leaders,
        node_id: int,
        led: Sequence[TopicPartition],
        answers: dict[TopicPartition, ProbeAnswer | str],
    ) -> None:
        answers.update(dict.fromkeys(led, f"broker {node_id}: {_SILENT}"))
        with trio.move_on_after(_PATIENCE):
            for at in range(0, len(led), _PARTITIONS):
                part = led[at : at + _PARTITIONS]
                try:
                    frame = await leaders.exchange(node_id, encode_probe(leaders.client_id, part))
                    answers.update(read_probe_answers(frame, part))
                except (NoAnswer, RemoteProtocolError) as error:
                    answers.update(dict.fromkeys(part, str(error)))

    def _judge(
        self,
        topic: str,
        asked: _Asked,
        copy: str,
        answers: Mapping[TopicPartition, ProbeAnswer | str],
        *,
        is_whole: bool,
    ) -> None:
        if self._asked.get(topic) is not asked:
            return
        states = {answer if isinstance(answer, str) else answer.state for answer in answers.values()}
        if states & _MIRROR:
            self._mirrored.add(topic)
        elif is_whole and states == {State.ORDINARY} and topic not in self._kept:
            self.ordinary.add(topic)
            name = self._listener.name
            text = (
                f"listener {name!r}: {topic} is mirrored as an ordinary topic, with other offsets: {copy} is no mirror "
                'topic on any of its brokers (without-agent = "ordinary")'
            )
            log.warning("same-offsets-ordinary", extra=event(text, listener=name, topic=topic, copy=copy))
        elif topic not in self._kept:
            odd = [
                str(answer)
                for answer in answers.values()
                if isinstance(answer, str) or answer.state is not State.ORDINARY
            ]
            self._say_undecided(topic, asked, f"{copy} of the target: {odd[0] if odd else _NO_LEADER}")
            return
        del self._asked[topic]
        self.undecided.pop(topic, None)
        self._changed()

    def _say_undecided(self, topic: str, asked: _Asked, why: str) -> None:
        is_asked = self._asked.get(topic) is asked and not asked.is_new(trio.current_time())
        if not is_asked or self.undecided.get(topic) == why:
            return
        self.undecided[topic] = why
        name = self._listener.name
        text = f"listener {name!r}: {topic} waits, because it is not known whether it keeps its offsets: {why}"
        log.warning("same-offsets-undecided", extra=event(text, listener=name, topic=topic, detail=why))
