"""The compiled policy against the joiner itself, on any history."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from shoal.scenarios.jobs.coalescing.by_joiner import join_by_joiner
from shoal.scenarios.jobs.coalescing.lanes import Lanes, Rules, join

TARGETS = 6


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    return Rules(
        linger=draw(st.sampled_from([0, 1, 7, 50])),
        request_bytes=draw(st.sampled_from([1, 50, 200, 10_000])),
        request_batches=draw(st.sampled_from([1, 2, 3, 100])),
        set_batches=draw(st.sampled_from([1, 1, 2, 5])),
        in_flight=draw(st.sampled_from([1, 2, 4])),
        patience=draw(st.sampled_from([0, 3, 40])),
        slowest=draw(st.booleans()),
    )


@st.composite
def arrivals(draw: st.DrawFn) -> Lanes:
    """Few targets and coarse times, so that ties and collisions are frequent."""
    lanes = draw(st.integers(1, 3))
    seed, count = draw(st.integers(0, 1 << 32)), draw(st.integers(0, 120))
    spread, slow = draw(st.sampled_from([5, 60, 1000])), draw(st.sampled_from([1, 10, 90]))
    random = np.random.default_rng(seed)
    lane, times = random.integers(0, lanes, count), random.integers(0, spread, count)
    order = np.lexsort((times, lane))
    return Lanes(
        starts=np.searchsorted(lane[order], np.arange(lanes + 1)).astype(np.int64),
        times=times[order],
        sizes=random.integers(1, 70, count),
        targets=random.integers(0, TARGETS, count),
        lone=random.random(count) < draw(st.sampled_from([0.0, 0.3])),
        latencies=random.integers(0, slow, count),
    )


@settings(max_examples=400)
@given(lanes=arrivals(), rules=rules())
def test_it_is_what_the_joiner_does(lanes: Lanes, rules: Rules) -> None:
    found, expected = join(lanes, rules, TARGETS), join_by_joiner(lanes, rules)
    assert found.requests == expected.requests
    assert found.sent.tolist() == expected.sent.tolist()
    assert found.answered.tolist() == expected.answered.tolist()
    assert (found.sent >= lanes.times).all()
