"""Rate limits with real producers: the rate is right within ten percent, and nothing is lost."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import trio

from tests.brokers.proxy.rig.data import Record, new_topic, produce, read
from tests.support.shoal_process import running_shoal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka

_RATE = 2_000_000
_SECONDS = 4
_VALUE_BYTES = 1000


@pytest.mark.parametrize("key", ["bytes-per-second", "client-bytes-per-second"])
async def test_producers_are_slowed_to_the_rate_and_nothing_is_lost(new_stand: Callable[..., Stand], key: str) -> None:
    stand = new_stand(access={key: _RATE})
    async with running_shoal(stand.shoal):
        topics = [await trio.to_thread.run_sync(partial(new_topic, stand.cluster, [[1]])) for _ in range(2)]
        count = _RATE * _SECONDS // _VALUE_BYTES // len(topics)
        records = [Record(None, f"{number:0{_VALUE_BYTES}}".encode()) for number in range(count)]
        before = monotonic()
        async with trio.open_nursery() as nursery:
            for topic in topics:
                send = partial(produce, stand.bootstrap, topic, records, client_id="limited", linger_ms=20)
                nursery.start_soon(trio.to_thread.run_sync, send)
        seconds = monotonic() - before
        assert _SECONDS * 0.9 < seconds < _SECONDS * 1.25  # with start-up, and 2 % of overhead
        for topic in topics:
            found = await trio.to_thread.run_sync(partial(read, stand.cluster.bootstrap, topic))
            assert [record.value for record in found[0]] == [record.value for record in records]
