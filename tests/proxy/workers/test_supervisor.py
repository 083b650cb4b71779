from __future__ import annotations

from shoal.proxy.workers.supervisor import pause_after


def test_a_worker_that_ends_again_and_again_is_started_ever_later() -> None:
    assert [pause_after(ends) for ends in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]
