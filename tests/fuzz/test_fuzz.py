"""A short run of every target, the same each time; and the fuzzer itself, on decoders that are wrong."""

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.check import BrokenInvariant, check
from tests.fuzz.hostile import hostile
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.with_mutations import fuzz, smallest

INPUTS = 150


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run(name: str) -> None:
    target, random = TARGETS[name], Random(1)
    seeds = target.seeds()
    assert seeds
    for data in [b"", *seeds, *(hostile(random, seeds) for _ in range(INPUTS))]:
        check(target, data)


def _seeds() -> list[bytes]:
    return [b"\3abcdefgh"]


def _index_error(data: bytes) -> int:
    return data[data[0]] if data else 0


def _endless(data: bytes) -> None:
    while data[:1] == b"\0":
        pass


def test_another_exception_is_found_cut_down_and_kept(tmp_path: Path) -> None:
    target = Target("planted", _index_error, _seeds)
    with pytest.raises(IndexError):
        fuzz(target, 60, 1, kept=tmp_path)
    (found,) = (path.read_bytes() for path in tmp_path.iterdir())
    assert len(found) == 1
    with pytest.raises(IndexError):
        check(target, found)


def test_an_endless_loop_is_ended() -> None:
    with pytest.raises(BrokenInvariant, match="s for 4 bytes"):
        check(Target("planted", _endless, _seeds), b"\0abc", cpu_limit=0.05)


def test_only_what_raises_the_same_is_kept_when_cutting_down() -> None:
    def run(data: bytes) -> None:
        if b"needle" in data:
            raise KeyError
        if len(data) < 6:
            raise IndexError

    assert smallest(Target("planted", run, _seeds), b"hay" * 50 + b"needle" + b"hay" * 50, KeyError) == b"needle"


def test_inputs_are_the_same_for_the_same_seed() -> None:
    first, again = ([hostile(Random(7), _seeds()) for _ in range(20)] for _ in range(2))
    assert first == again
