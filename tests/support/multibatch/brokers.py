"""The broker of `tests/support/multibatch/broker.py` on real sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal.protocol.schema.api import ApiKey
from tests.support.multibatch.broker import BatchBroker
from tests.support.rig import api_key, echo

if TYPE_CHECKING:
    from tests.support.rig import BrokerSide

__all__ = ["Behind"]


@dataclass
class Behind:
    """`broker` on real sockets. With `sasl`, a connection that has not authenticated is closed on other requests."""

    broker: BatchBroker = field(default_factory=BatchBroker)
    sasl: bool = False
    authenticated: set[BrokerSide] = field(default_factory=set)
    gate: trio.Event = field(default_factory=trio.Event)
    waits_on: int = -1  # the answer to this API waits for the gate

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        key = api_key(frame)
        if key == self.waits_on:
            await self.gate.wait()
        if key == ApiKey.HEARTBEAT:
            return await echo(side, frame)
        if key == ApiKey.SASL_AUTHENTICATE:
            self.authenticated.add(side)
            return await echo(side, frame)
        refused = self.sasl and side not in self.authenticated and key != ApiKey.API_VERSIONS
        answer = None if refused else self.broker.answer(frame)
        if answer is None:
            await side.stream.aclose()
        elif answer:
            await side.send(answer)
        return None
