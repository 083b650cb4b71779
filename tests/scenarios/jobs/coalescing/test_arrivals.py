"""Which requests travel alone, by their own properties and by earlier ones."""

from typing import Any

import numpy as np

from shoal.scenarios.jobs.coalescing.arrivals import COLUMNS, IS_ALONE, IS_ERROR, Arrivals, read_arrivals

SECOND = 1_000_000_000


def _arrivals(*batches: dict[str, Any]) -> Arrivals:
    """Each of its own request, a millisecond apart, unless stated otherwise."""
    usual = {"latency_ns": 1000, "size": 100, "records": 1}
    rows = [
        {**dict.fromkeys(COLUMNS, 0), **usual, "request": number, "time_ns": number * 1_000_000, **batch}
        for number, batch in enumerate(batches)
    ]
    return read_arrivals({name: np.array([row[name] for row in rows], np.int64) for name in COLUMNS})


def test_a_request_travels_alone_when_one_of_its_batches_does() -> None:
    found = _arrivals({"request": 1}, {"request": 2, "time_ns": 5}, {"request": 2, "time_ns": 5, "flags": IS_ALONE})
    assert found.first.tolist() == [True, True, False]
    assert found.alone.tolist() == [False, True, True]


def test_a_sequence_that_does_not_follow_may_be_a_retry() -> None:
    sequences = [7, 8, 8, 9, 12, 13]
    found = _arrivals(*({"producer": 5, "sequence": sequence} for sequence in sequences))
    assert found.alone.tolist() == [False, False, True, False, True, False]


def test_sequences_begin_again_behind_the_last() -> None:
    last = (1 << 31) - 1
    found = _arrivals(*({"producer": 5, "sequence": sequence} for sequence in (last, 0, 1)))
    assert not found.alone.any()


def test_batches_without_a_producer_id_have_no_sequence() -> None:
    assert not _arrivals({"sequence": 4}, {"sequence": 4}).alone.any()


def test_a_connection_that_was_told_of_an_error_is_alone_for_a_while() -> None:
    told = {"source": 1, "flags": IS_ERROR, "latency_ns": SECOND, "time_ns": 0}
    later = [{"source": 1, "time_ns": at} for at in (SECOND // 2, 2 * SECOND, 15 * SECOND, 16 * SECOND)]
    other = {"source": 2, "time_ns": 3 * SECOND}
    found = _arrivals(told, *later, other)
    assert found.times.tolist() == [0, SECOND // 2, 2 * SECOND, 3 * SECOND, 15 * SECOND, 16 * SECOND]
    assert found.alone.tolist() == [False, False, True, False, True, False]


def test_an_answer_that_is_not_known_takes_as_long_as_others() -> None:
    found = _arrivals({"latency_ns": 10}, {"latency_ns": -1}, {"latency_ns": 30}, {"latency_ns": 20})
    assert found.latencies.tolist() == [10, 20, 30, 20]
