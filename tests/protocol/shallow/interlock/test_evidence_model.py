"""Any interleaving of mirrors, of which some produce through Shoal: no envelope may be stored in a topic.

Mirrors may have the same name and address, change records, be restarted with another configuration while the old
producer still flushes, and lose connections.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.shallow.interlock.evidence import Evidence
from tests.protocol.shallow.interlock.mirrors import HOST, Mirror, interlock, mark

NAMES = ("A->B|0", "A->C|0", "A->D|0")
RELAY = "10.0.0.2"
FLUSH_SECONDS = 50.0  # producer.close(): shorter than what the interlock assumes


@dataclass
class Closing:
    mirror: Mirror
    until: float


@dataclass
class World:
    random: Random
    rules: Evidence = field(default_factory=interlock)
    now: float = 0.0
    mirrors: list[Mirror] = field(default_factory=list)
    closing: list[Closing] = field(default_factory=list)
    gone: list[Mirror] = field(default_factory=list)
    held: dict[int, float] = field(default_factory=dict)
    wrapped: int = 0
    copier: bool = False
    copied: dict[tuple[str, int], int] = field(default_factory=dict)
    relay: str | None = None  # the address of a mirror that copies on whatever is produced past Shoal

    def start(self, name: str, through: bool, changes: bool = False) -> None:
        relay = None if through else self.relay
        mirror = Mirror(self.rules, name, through, changes, relay, now=self.now)
        former = [old for old in [*self.gone, *(closing.mirror for closing in self.closing)] if old.name == name]
        for place, position in former[-1].positions.items() if former else ():
            mirror.positions[place] = self.random.randint(0, position)  # what was committed
        self.mirrors.append(mirror)

    def step(self) -> None:
        self.now += self.random.choice([0.0, 0.01, 0.1, 0.5, 3.0])
        self.rules.tick(self.now)
        for closing in [closing for closing in self.closing if self.now > closing.until]:
            self.closing.remove(closing)
            self.gone.append(closing.mirror)
        steps = [self.fetch, self.produce, self.flush, self.restart, self.reconnect, self.copy]
        self.random.choices(steps, [8, 8, 1, 0.3, 0.2, 8 * self.copier])[0]()

    def copy(self) -> None:
        """Another client copies as fast as the slowest mirror, or catches up with the fastest."""
        topic, partition = place = self.random.choice(["orders", "payments"]), self.random.choice([0, 0, 1])
        ends = [mirror.positions.get(place, 0) for mirror in self.mirrors]
        first, end = self.copied.get(place, 0), self.random.choice([min(ends), max(ends)])
        for offset in range(first, end):
            if self.rules.listens(f"A.{topic}", partition):
                self.rules.saw_produced(f"A.{topic}", partition, [mark(topic, partition, offset)], 99, self.now)
        self.copied[place] = max(first, end)

    def fetch(self) -> None:
        mirror = self.random.choice(self.mirrors)
        until = mirror.fetch(
            self.now,
            records=self.random.randint(1, 5),
            partition=self.random.choice([0, 0, 1]),
            topic=self.random.choice(["orders", "orders", "payments"]),
            eligible=self.random.random() < 0.8,
            patient=self.random.random() < 0.5,
        )
        assert until is None or until <= self.now + 90.0

    def produce(self) -> None:
        mirror = self.random.choice(self.mirrors)
        self.wrapped += sum(not isinstance(item, tuple) for item in mirror.buffer)
        mirror.produce(self.now, self.random.choice([1, 3, 100]))

    def flush(self) -> None:
        if self.closing:
            self.random.choice(self.closing).mirror.produce(self.now, 5)

    def restart(self) -> None:
        mirror = self.random.choice(self.mirrors)
        self.mirrors.remove(mirror)
        mirror.leave(self.now)
        if self.random.random() < 0.5:
            mirror.buffer.clear()
        self.closing.append(Closing(mirror, self.now + FLUSH_SECONDS))
        self.start(mirror.name, self.random.random() < 0.7, self.random.random() < 0.2)

    def reconnect(self) -> None:
        mirror = self.random.choice(self.mirrors)
        self.rules.producer_disconnected(mirror.producer, self.now)

    @property
    def stranded(self) -> int:
        everybody = [*self.mirrors, *self.gone, *(closing.mirror for closing in self.closing)]
        return sum(len(mirror.stranded) for mirror in everybody)


def run(
    seed: int,
    mirrors: list[tuple[str, bool, bool]],
    steps: int = 400,
    *,
    copier: bool = False,
    relay: str | None = None,
) -> World:
    world = World(Random(seed), copier=copier, relay=relay)
    for name, through, changes in mirrors:
        world.start(name, through, changes)
    for _ in range(steps):
        world.step()
        assert not world.stranded, f"an envelope has landed in a topic: seed {seed}, {mirrors}"
    return world


MIRRORS = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans(), st.booleans()), min_size=1, max_size=4)


@given(st.integers(0, 1 << 32), MIRRORS)
def test_no_envelope_lands_in_a_topic(seed: int, mirrors: list[tuple[str, bool, bool]]) -> None:
    run(seed, mirrors)


@given(st.integers(0, 1 << 32), MIRRORS)
def test_no_envelope_lands_in_a_topic_whatever_a_stranger_copies(
    seed: int, mirrors: list[tuple[str, bool, bool]]
) -> None:
    run(seed, mirrors, copier=True)


@given(st.integers(0, 1 << 32), MIRRORS, st.booleans())
def test_no_envelope_lands_in_a_topic_that_a_mirror_on_another_host_copies_on(
    seed: int, mirrors: list[tuple[str, bool, bool]], copier: bool
) -> None:
    run(seed, mirrors, copier=copier, relay=RELAY)


def test_one_on_the_same_host_with_the_same_names_is_what_nothing_tells() -> None:
    """Documented in docs/mirroring.md."""
    with pytest.raises(AssertionError, match="an envelope has landed in a topic"):
        run(0, [(NAMES[0], False, False)], relay=HOST)


def test_the_stranger_does_deceive_the_samples() -> None:
    worlds = [run(seed, [(NAMES[1], False, False)], copier=True) for seed in range(20)]
    strayed = [mirror.strayed for world in worlds for mirror in [*world.mirrors, *world.gone]]
    assert sum(strayed) > 5


@given(st.integers(0, 1 << 32))
def test_two_flows_of_which_one_goes_through_shoal(seed: int) -> None:
    world = run(seed, [(NAMES[0], True, False), (NAMES[1], False, False)])
    assert world.rules.statistics().flows == 2


def test_the_model_does_wrap() -> None:
    assert sum(run(seed, [(NAMES[0], True, False), (NAMES[1], False, False)]).wrapped > 0 for seed in range(20)) > 10


@given(st.lists(st.tuples(st.sampled_from([0.05, 0.3, 1.0]), st.integers(1, 6)), min_size=5, max_size=40))
def test_a_lone_mirror_is_proven_whatever_its_pace(paces: list[tuple[float, int]]) -> None:
    mirror, now = Mirror(interlock()), 0.0
    for pause, records in paces * 4:
        mirror.fetch(now, records)
        now += pause
        mirror.produce(now)
    assert mirror.wraps(now)
