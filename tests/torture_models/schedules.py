"""Schedules from a seed, their results, and the shortest part of one that still fails."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.torture_models.replicas import Sets
from tests.torture_models.world import Config, Step, World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["Schedule", "drawn", "run", "shrunk"]

# How often each step is drawn: mostly progress, or nothing would ever be in progress.
WEIGHTS = {
    "fetch": 14,
    "send": 14,
    "serve": 14,
    "append": 8,
    "copy": 6,
    "cut": 4,
    "leave": 2,
    "elect": 4,
    "lead_again": 2,
    "upgrade": 2,
    "arrive": 4,
    "lose_late": 1,
    "commit": 2,
    "restart_mirror": 1,
    "restart_shoal": 1,
    "forget": 1,
    "wait": 1,
    "reach": 2,
    "lose_kept": 1,
}
_BROKERS = ("append", "copy", "cut", "elect", "lead_again", "upgrade", "arrive", "lose_late", "forget")
_RESTARTS = ("restart_mirror", "restart_shoal", "forget")
_MIXES: tuple[Mapping[str, int], ...] = (  # how often, instead
    {},
    dict.fromkeys(_RESTARTS, 0),
    dict.fromkeys(("elect", "lead_again", "upgrade", *_RESTARTS), 0),
    {**dict.fromkeys((*_BROKERS, "restart_shoal"), 0), "reach": 8, "lose_kept": 8, "leave": 4, "restart_mirror": 6},
    dict.fromkeys(("cut", "leave", "arrive", *_RESTARTS), 0),
    {**dict.fromkeys(("cut", "restart_shoal"), 0), "elect": 6, "lead_again": 6, "restart_mirror": 4, "commit": 0},
    {**dict.fromkeys(_RESTARTS, 0), "append": 16, "copy": 16, "elect": 10},  # followers that have a part
)


@dataclass(frozen=True)
class Schedule:
    config: Config
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "".join(f"        {step},\n" for step in self.steps)
        return f"Schedule(\n    {self.config},\n    (\n{steps}    ),\n)"


def drawn(seed: int, without: Collection[str] = ()) -> Schedule:
    """`without`: those of `FEATURES` that the schedule must not have."""
    rng = random.Random(seed)
    config = _config(rng)
    for feature in without:
        config = FEATURES[feature](config)
    weights = {**WEIGHTS, **rng.choice(_MIXES)}
    steps = rng.choices(list(weights), list(weights.values()), k=rng.choice((10, 20, 30, 50)))
    return Schedule(config, tuple((name, rng.randrange(16), rng.randrange(32)) for name in steps))


FEATURES: Mapping[str, Callable[[Config], Config]] = {
    "versions": lambda config: replace(config, versions=(config.versions[0],) * 3, upgrades=False),
    "sets": lambda config: replace(config, sets=Sets.REFUSED),
    "sets of idempotent mirrors": lambda config: replace(config, sets=Sets.REFUSED) if config.idempotent else config,
    "single": lambda config: replace(config, sets=Sets.AGENT if config.sets is Sets.REFUSED else config.sets),
    "stock sets": lambda config: replace(config, sets=Sets.AGENT) if config.sets is Sets.STOCK_CHECK else config,
    "shared": lambda config: replace(config, shared=False),
    "idempotent": lambda config: replace(config, idempotent=False),
    "claim checks": lambda config: replace(config, kept_bytes=0),
    "large": lambda config: replace(config, repeats_large=False),
    "raw": lambda config: replace(config, raw=False, all_raw=False),
    "small": lambda config: replace(config, max_message_bytes=1 << 20),
    "plain": lambda config: replace(config, idempotent=True),
}


def _config(rng: random.Random) -> Config:
    idempotent = rng.random() < 0.4
    mirrors = rng.choice((1, 1, 2))
    versions = rng.choice(((13, 13, 13), (12, 12, 12), (12, 13, 12), (13, 12, 13)))
    return Config(
        idempotent=idempotent,
        in_flight=rng.choice((1, 5)),
        mirrors=mirrors,
        shared=mirrors > 1 and rng.random() < 0.6,
        partitions=rng.choice((1, 1, 2)),
        versions=versions,
        sets=rng.choice((Sets.REFUSED, Sets.AGENT, Sets.AGENT, Sets.STOCK_CHECK)),
        batches=rng.choice((4, 8, 12)),
        max_message_bytes=rng.choice((1 << 20, 1 << 20, 150)),
        repeats_large=rng.random() < 0.5,
        kept_bytes=rng.choice((0, 400, 1 << 20)),
        forgets=rng.random() < 0.4,
        all_raw=rng.random() < 0.1,
    )


def run(schedule: Schedule) -> list[str]:
    """The findings; empty if there are none."""
    world = World(schedule.config)
    try:
        for step in schedule.steps:
            world.step(step)
        world.finish()
        return world.verdict()
    finally:
        world.close()


def kind(found: Sequence[str]) -> str:
    """A failure of the same kind is the same failure."""
    return found[0].split(":", 1)[0] if found else ""


def shrunk(schedule: Schedule, judge: Callable[[Schedule], list[str]] = run) -> Schedule:
    """The schedule without everything not needed to fail in the same way."""
    wanted = kind(judge(schedule))
    assert wanted

    def fails(steps: Sequence[Step], config: Config = schedule.config) -> bool:
        return kind(judge(Schedule(config, tuple(steps)))) == wanted

    steps, size = list(schedule.steps), max(len(schedule.steps) // 2, 1)
    while size:
        at = 0
        while at < len(steps):
            shorter = steps[:at] + steps[at + size :]
            if fails(shorter):
                steps = shorter
            else:
                at += size
        size //= 2
    for at, (name, a, b) in enumerate(steps):
        for smaller in (
            (name, 0, 0),
            (name, a, 0),
            (name, 0, b),
            (name, a % 4, b),
            (name, a, b % 4),
            (name, a % 4, b % 4),
        ):
            if smaller < steps[at] and fails([*steps[:at], smaller, *steps[at + 1 :]]):
                steps[at] = smaller
    return Schedule(schedule.config, tuple(steps))
