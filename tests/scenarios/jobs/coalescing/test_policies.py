"""A policy's name contains all its settings."""

import numpy as np
import pytest

from shoal.scenarios.jobs.coalescing.latencies import by_bin, histogram, percentile_ms
from shoal.scenarios.jobs.coalescing.policies import POLICIES, Policy, read_policy


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_name_can_be_read_again(policy: Policy) -> None:
    assert read_policy(policy.name) == policy


def test_names_are_as_people_write_them() -> None:
    assert read_policy("linger=5ms,bytes=64k,sets=64,client-ids") == Policy(
        linger=0.005, bytes=64 * 1024, sets=64, client_ids=True
    )


@pytest.mark.parametrize("text", ["langer=5ms", "linger=5 minutes", "linger=-1ms", "count=0", "group=topic", "sets=x"])
def test_what_is_wrong_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        read_policy(text)


def test_percentiles_are_of_the_right_bin() -> None:
    times = np.concatenate([np.full(98, 2_000_000), np.full(2, 50_000_000), np.zeros(100, np.int64)])
    counts = histogram(times).tolist()
    assert by_bin(counts)[-1] == 100
    assert percentile_ms(counts, 0.5) == 0.0
    assert percentile_ms(counts, 0.9) == pytest.approx(2.0, rel=0.095)
    assert percentile_ms(counts, 0.995) == pytest.approx(50.0, rel=0.095)
