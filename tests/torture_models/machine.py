"""The same steps as a hypothesis state machine, which draws and shrinks schedules in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.torture_models.known import OPEN
from tests.torture_models.replicas import Sets
from tests.torture_models.schedules import FEATURES
from tests.torture_models.world import STEPS, Config, World

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

__all__ = ["MirrorMachine", "configs"]

_numbers = st.integers(0, 31)


@st.composite
def configs(draw: DrawFn) -> Config:
    """Without features that cause known faults."""
    mirrors = draw(st.integers(1, 2))
    config = Config(
        idempotent=draw(st.booleans()),
        in_flight=draw(st.sampled_from((1, 5))),
        mirrors=mirrors,
        shared=mirrors > 1 and draw(st.booleans()),
        partitions=draw(st.integers(1, 2)),
        versions=draw(st.sampled_from(((13, 13, 13), (12, 13, 12), (13, 12, 13)))),
        sets=draw(st.sampled_from(Sets)),
        batches=draw(st.sampled_from((4, 8))),
        max_message_bytes=draw(st.sampled_from((1 << 20, 150))),
        repeats_large=draw(st.booleans()),
        kept_bytes=draw(st.sampled_from((0, 400, 1 << 20))),
        forgets=draw(st.booleans()),
        all_raw=draw(st.integers(0, 7)) == 0,
    )
    for _, features in OPEN.values():
        for feature in features:
            config = FEATURES[feature](config)
    return config


class MirrorMachine(RuleBasedStateMachine):
    """The verdict is checked at the end of the schedule."""

    world: World

    @initialize(config=configs())
    def begin(self, config: Config) -> None:
        self.world = World(config)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.finish()
            found = self.world.verdict()
        finally:
            self.world.close()
        assert not found, "\n".join(found)


def _take(name: str, machine: MirrorMachine, a: int, b: int) -> None:
    machine.world.step((name, a, b))


def _rule(name: str):  # type: ignore[no-untyped-def]  # hypothesis wants a function of its own for each
    def step(self: MirrorMachine, a: int, b: int) -> None:
        _take(name, self, a, b)

    step.__name__ = step.__qualname__ = name
    return rule(a=_numbers, b=_numbers)(step)


for _name in STEPS:
    setattr(MirrorMachine, _name, _rule(_name))

MirrorMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
