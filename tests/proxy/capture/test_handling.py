"""The index's rows for requests that Shoal joins, answers or sends itself. Wrapping and unwrapping:
tests/brokers/mirror/test_capture.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kio.schema.errors import ErrorCode

from shoal.protocol.capture.frames.pcapng import Sender
from shoal.protocol.capture.index.columns import Handling, Kind
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import CaptureSettings, RawCaptureSettings
from tests.support.captures.capture_index import whole_index, whole_raw_capture
from tests.support.coalesce_rig import ORDERS, batch, coalesce_rig
from tests.support.legacy.rig import PLACE, legacy_rig, records
from tests.support.rig import request, rig
from tests.support.shallow.brokers import Script

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none


async def test_joined_batches_are_rows_of_their_clients(tmp_path: Path) -> None:
    capture = CaptureSettings(directory=tmp_path)
    async with coalesce_rig(capture=capture, scripts={1: Script(errors={2: ErrorCode.not_leader_or_follower})}) as r:
        gate = await r.hold(producer=39)
        clients = await r.producers(3)
        for number, client in enumerate(clients):
            await client.send_only({number: batch("a", "b", producer=40 + number, sequence=0)})
        await r.taken(4)
        gate.set()
        for client in clients:
            await client.answers()
        assert len(r.broker.requests) == 2
    rows = [row for row in whole_index(tmp_path) if row["partition"] in range(3)]
    found = {
        row["partition"]: (row["topic"], row["handling"], row["record_count"], row["producer_id"], row["error"])
        for row in rows
    }
    assert found == {
        0: (ORDERS, Handling.COALESCED, 2, 40, 0),
        1: (ORDERS, Handling.COALESCED, 2, 41, 0),
        2: (ORDERS, Handling.COALESCED, 2, 42, int(ErrorCode.not_leader_or_follower)),
    }
    assert len(rows) == len({row["connection"] for row in rows}) == 3
    assert {row["partition"]: row["log_offset"] for row in rows} == {0: 0, 1: 0, 2: -1}
    assert all(row["latency_ns"] > 0 and row["acks"] and row["client"] for row in rows)


async def test_requests_that_go_alone_say_why(tmp_path: Path) -> None:
    async with coalesce_rig(capture=CaptureSettings(directory=tmp_path)) as r:
        client = await r.producer(bootstrap=True)
        await client.send_only({0: batch("a")})
        assert await client.answers() == {0: (NONE, 0)}
    (row,) = [row for row in whole_index(tmp_path) if row["kind"] is Kind.BATCH]
    assert (row["handling"], row["reason"], row["log_offset"]) == (Handling.RAW, "over a bootstrap port", 0)


async def test_what_is_fetched_for_an_old_client_says_so(tmp_path: Path) -> None:
    async with legacy_rig(capture=CaptureSettings(directory=tmp_path)) as r:
        r.broker.log().append(records(0, 300), Codec.GZIP)
        consumer = await r.consumer()
        assert len((await consumer.fetch({PLACE: 0}))[PLACE].messages) == 300
    (row,) = [row for row in whole_index(tmp_path) if row["kind"] is Kind.BATCH]
    assert (row["handling"], row["reason"]) == (Handling.RAW, "converted for an old client")
    assert (row["topic"], row["record_count"], row["client"]) == ("t", 300, "test")


async def test_a_connection_has_one_number_in_both_captures(tmp_path: Path) -> None:
    capture, raw = CaptureSettings(directory=tmp_path), RawCaptureSettings(directory=tmp_path)
    async with rig(capture=capture, raw_capture=raw) as r:
        await r.client()  # silent, so in no index
        for name in (b"first", b"second"):
            client = await r.client()
            await client.send(request(12, 0, 1, bytes(8), client_id=name))
            await client.frame()
    frames = [one for one in whole_raw_capture(tmp_path) if one.sender is Sender.CLIENT]
    assert {row["client"] for row in whole_index(tmp_path)} == {"first", "second"}
    for row in whole_index(tmp_path):
        assert [frame.connection for frame in frames if row["client"].encode() in frame.frame] == [row["connection"]]


async def test_half_a_request_is_no_row(tmp_path: Path) -> None:
    async with rig(capture=CaptureSettings(directory=tmp_path)) as r:
        client = await r.client()
        await client.send(request(99, 0, 1))
        await client.frame()
        await client.send(request(99, 0, 2)[:-2])
    rows = whole_index(tmp_path)
    assert [(row["api_key"], row["handling"], row["latency_ns"] >= 0) for row in rows] == [(99, Handling.PASSED, True)]
