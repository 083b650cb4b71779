"""Requests of all kinds in any order, cut anywhere: every pump ends after a bounded number of task steps.

A pump that loops without yielding would hang the test: an alarm interrupts it.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.net.trio_internals import TrioInternals
from tests.support.coalesce_rig import ORDERS, CoalesceRig, KafkaLike, batch, coalesce_rig
from tests.support.rig import api_key, correlation_id, request, response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener
    from tests.support.rig import BrokerSide
    from tests.support.shallow.rig import Producer

HEARTBEAT = 12
SPINS = 20.0  # seconds until the alarm
_EMPTY = {ApiKey.METADATA: bytes(12), ApiKey.API_VERSIONS: bytes(6)}  # answers without topics or brokers

PATHS: dict[str, Callable[[Listener], Path[Connection]]] = {
    "plain": PlainPath,
    "coalescing": CoalescePath,
    "legacy": LegacyPath,
    "legacy and coalescing": lambda listener: LegacyPath(listener, CoalescePath(listener)),
}


class Kind(NamedTuple):
    make: Callable[[Producer, int], bytes]
    answered: bool = True


def produced(acks: int, size: int = 1) -> Callable[[Producer, int], bytes]:
    return lambda client, number: client.request({(ORDERS, number % 2): batch(f"{number} " + "x" * size)}, acks)


KINDS = {
    "undecoded": Kind(lambda _, number: request(HEARTBEAT, 3, number, bytes(number % 40))),
    "metadata": Kind(lambda _, number: request(ApiKey.METADATA, 1, number, bytes(4))),
    "versions": Kind(lambda _, number: request(ApiKey.API_VERSIONS, 0, number)),
    "unknown versions": Kind(lambda _, number: request(ApiKey.API_VERSIONS, 99, number, b"\0")),
    "acks=all": Kind(produced(-1)),
    "acks=1": Kind(produced(1)),
    "acks=0": Kind(produced(0), answered=False),
    "large": Kind(produced(-1, 70_000)),
}


class Steps(trio.abc.Instrument):
    def __init__(self) -> None:
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1


@contextmanager
def alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise AssertionError("a task goes round and never gives way")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SPINS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def exchange(path: str, kinds: list[str], cuts: list[int], slowness: list[int]) -> None:
    kafka, asked = KafkaLike(), [0]

    async def answer(side: BrokerSide, frame: bytes) -> None:
        asked[0] += 1
        for _ in range(slowness[asked[0] % len(slowness)]):
            await trio.lowlevel.checkpoint()
        empty = _EMPTY.get(ApiKey(api_key(frame)))
        if empty is None:
            await kafka.answer(side, frame)
        else:
            await side.send(response(correlation_id(frame), empty))

    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    async with coalesce_rig(path=PATHS[path], answer=answer) as r:
        client = await connected(r)
        frames = [KINDS[kind].make(client, number) for number, kind in enumerate(kinds, 1)]
        due = [correlation_id(frame) for frame, kind in zip(frames, kinds, strict=True) if KINDS[kind].answered]
        steps.steps = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, client, b"".join(frames), cuts)
            for number in due:
                assert correlation_id(b"    " + await client.frame()) == number
        # An acks=0 request has no answer: the answer to the next request shows that it was processed.
        await client.send(request(HEARTBEAT, 3, 0))
        await client.frame()
    for partition in (0, 1):
        stored = [int(value.split()[0]) for value in kafka.log(partition)]
        wanted = [n for n, kind in enumerate(kinds, 1) if n % 2 == partition and ("acks" in kind or kind == "large")]
        assert stored == wanted
    assert steps.steps <= 400 + 60 * (len(kinds) + len(cuts) + sum(slowness) * len(kinds)), steps.steps


async def connected(r: CoalesceRig) -> Producer:
    client = await r.producer()
    client.version = 7
    return client


async def send(client: Producer, data: bytes, cuts: list[int]) -> None:
    """In one packet, or in pieces with pauses."""
    for size in cuts:
        await client.send(data[:size])
        data = data[size:]
        await trio.lowlevel.checkpoint()
    await client.send(data)


@pytest.mark.parametrize("laned", [True, False])
@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=8)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 200), max_size=6),
    slowness=st.lists(st.integers(0, 30), min_size=1, max_size=4),
)
@example(kinds=["undecoded", "acks=all", "undecoded"], cuts=[], slowness=[0])
@example(
    kinds=["acks=all", "acks=1", "acks=0", "acks=all", "acks=1"], cuts=[], slowness=[21, 14, 4]
)  # of several lanes
def test_every_pump_comes_to_its_end(
    path: str, laned: bool, kinds: list[str], cuts: list[int], slowness: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch, alarm():
        if not laned:
            patch.setattr(TrioInternals, "find", lambda: None)
        trio.run(exchange, path, kinds, cuts, slowness)
