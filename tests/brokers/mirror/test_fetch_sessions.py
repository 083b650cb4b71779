"""A fetch session belongs to the broker: a mirror whose connection ends between two requests continues it over the next
connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing
from tests.brokers.mirror.rig.steady import steady, warm_up, wrapped_more
from tests.brokers.mirror.test_multi_broker import EXTRA, PARTITIONS, both
from tests.support.kafka.relay import RELAY_HOST, relay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

__all__ = ["both"]

SENT_BACK = "goes on with the fetch session of another connection"


@pytest.mark.slow
async def test_wrapping_goes_on_over_another_connection(
    both: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """MirrorMaker 2 notices that the connection to a broker has ended while it fetches from another one, and has
    records left to poll.

    It depends on timing whether it has a fetch in flight to this broker (and starts a new session), so repeat until it
    has not.
    """
    await Topics(both.source.bootstrap).create(topic, PARTITIONS)
    extra = {**EXTRA, f"{aliases.source}.consumer.max.poll.records": "10"}
    whole = ("--claim-check-bytes", "0")  # claim checks are small: then it seldom has records left
    wiring = Wiring(topics=topic, tasks=1, host=RELAY_HOST, extra=extra, shoal=whole)
    async with flowing(both, aliases, tmp_path, wiring) as flow:
        source, target = flow.ports
        async with relay(*source) as from_shoal, relay(*target):
            await warm_up(both, topic, flow, partitions=PARTITIONS)
            times = 0

            def went_on() -> bool:
                nonlocal times
                if not from_shoal.end_answers:
                    times += 1
                    from_shoal.end_answers = 1
                return SENT_BACK in flow.shoal.log.read_text()

            async with steady(both, topic, partitions=PARTITIONS):
                process = flow.shoal.process
                await until(went_on, within=WITHIN, what="a session to go on", process=process, poll_s=0.3)
                from_shoal.end_answers = 0
                await wrapped_more(flow, 20_000)
            await flow.check_faithful(topic, duplicates=0)
    counts = flow.counts("total")
    print(
        f"{from_shoal.done} connections ended, {flow.shoal.log.read_text().count(SENT_BACK)} sessions went on; {counts}"
    )
    assert counts[Reason.UNKNOWN_OFFSET] == 0
