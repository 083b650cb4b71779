"""Shoal and MirrorMaker 2 for topics that keep their offsets, and how a copy is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring

if TYPE_CHECKING:
    from typing import Any


def wiring(topics: str, *, same_offsets: str = "so-.*", flags: tuple[str, ...] = (), **more: Any) -> Wiring:
    return Wiring(topics=topics, shoal=("--same-offsets", same_offsets, *flags), **more)


async def until_equal(flow: Flow, *topics: str, renamed: bool = True) -> None:
    """The copies end where the sources end, and each committed record is at its offset, unchanged."""
    await until_ends_equal(flow, *topics, renamed=renamed)
    for topic in topics:
        ours = await read_copy(flow.pair.source.bootstrap, topic, isolation=READ_COMMITTED)
        copy = flow.remote(topic) if renamed else topic
        theirs = await read_copy(flow.pair.target.bootstrap, copy, isolation=READ_COMMITTED)
        assert await first_difference(ours, theirs, offsets=True) is None
    assert await flow.pair.envelopes() == []


async def until_ends_equal(flow: Flow, *topics: str, renamed: bool = True) -> None:
    source, target = Topics(flow.pair.source.bootstrap), Topics(flow.pair.target.bootstrap)
    for topic in topics:
        copy = flow.remote(topic) if renamed else topic

        async def arrived(topic: str = topic, copy: str = copy) -> bool:
            try:  # the source may get its last marker after the producer's commit
                return await target.ends(copy) == await source.ends(topic)
            except HarnessError:  # the topic is not there yet
                return False

        await until(
            arrived,
            within=WITHIN,
            what=f"the copy of {topic} to end where its source does",
            process=flow.running.process,
            poll_s=0.5,
        )


async def until_stopped(flow: Flow, topic: str) -> str:
    """-> why a partition of the source topic waits."""

    def reasons() -> list[str]:
        return [str(line["detail"]) for line in flow.events("same-offsets-stopped") if line["topic"] == topic]

    await until(
        lambda: bool(reasons()),
        within=WITHIN,
        what=f"{topic} to be stopped",
        process=flow.shoal.process,
        poll_s=0.2,
    )
    return reasons()[-1]
