"""The models themselves: without faults they find nothing; schedules are repeatable and shrink correctly."""

from __future__ import annotations

from shoal.protocol.wire.crc import crc32c
from tests.torture_models.known import FAULTS
from tests.torture_models.machine import MirrorMachine
from tests.torture_models.schedules import WEIGHTS, Schedule, drawn, run, shrunk
from tests.torture_models.world import STEPS, Config, World

TestMirror = MirrorMachine.TestCase


def test_a_mirror_without_trouble_copies_every_record_once() -> None:
    world = World(Config(mirrors=2, partitions=2))
    try:
        world.finish()
        assert world.verdict() == []
        assert sum(len(partition.log) for partition in world.logs.values()) == 4 * 8
    finally:
        world.close()


def test_every_step_is_drawn() -> None:
    assert WEIGHTS.keys() == STEPS.keys()
    assert {name for seed in range(60) for name, _, _ in drawn(seed).steps} == STEPS.keys()


def test_a_seed_is_one_schedule_with_one_end() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    for seed in range(5):
        assert run(drawn(seed)) == run(drawn(seed))


def test_a_record_that_is_lost_or_changed_or_comes_twice_is_seen() -> None:
    def verdict(change: str) -> list[str]:
        world = World(Config(batches=4))
        try:
            world.finish()
            log = world.logs["A.orders", 0].log
            if change == "lost":
                del log[1]
            elif change == "doubled":
                log.append(log[1])
            elif change == "reordered":
                log[0], log[1] = log[1], log[0]
            else:
                log[1] = log[1]._replace(batch=_with_another_timestamp(log[1].batch))
            return [one.split(":", 1)[0] for one in world.verdict()]
        finally:
            world.close()

    for change in ("lost", "doubled", "reordered", "altered"):
        assert change in verdict(change)


def _with_another_timestamp(batch: bytes) -> bytes:
    changed = bytearray(batch)
    changed[34] ^= 1
    return bytes(changed[:17]) + crc32c(bytes(changed[21:])).to_bytes(4, "big") + bytes(changed[21:])


def test_the_shortest_schedule_is_a_part_of_the_long_one_that_fails_alike() -> None:
    fault = FAULTS["two mirrors"]

    def judge(schedule: Schedule) -> list[str]:
        names = [name for name, _, _ in schedule.steps]
        return ["lost: it"] if "fetch" in names and "cut" in names else []

    padded = Schedule(fault.config, (("wait", 1, 1), *fault.steps, ("copy", 3, 3)))
    assert shrunk(padded, judge).steps == (("fetch", 0, 0), ("cut", 0, 0))
