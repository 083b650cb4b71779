"""Fetch v0-v3 through a legacy listener, before a scripted broker: what clients get, and what is asked of the broker for it."""

from __future__ import annotations

import pytest

from shoal.protocol.compression import Codec
from shoal.proxy.settings import KIB
from tests.proxy.legacy_rig import PLACE, as_messages, legacy_rig, records

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", CODECS)
async def test_every_version_gets_every_record(version: int, codec: Codec) -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        log, sent = r.broker.log(), []
        for number in range(5):
            made = records(number * 300, 300)
            sent += as_messages(log.end, made, magic=int(version > 1))
            log.append(made, codec)
        consumer = await r.consumer(version)
        got = await consumer.consume({PLACE: 0}, {PLACE: log.end})
        assert got[PLACE] == sent
        assert r.broker.isolation[0] == 1
