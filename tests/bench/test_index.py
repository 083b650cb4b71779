import pytest

from bench.overhead.index import microseconds_per_batch


@pytest.mark.slow
def test_every_batch_of_the_measurement_makes_a_row() -> None:
    assert all(0 < value < 10_000 for value in microseconds_per_batch().values())
