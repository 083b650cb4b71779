"""Through Shoal, a broker refuses a set for one batch in it: bisection finds the batch, and the order is kept."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch, read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.rig.flow import logged
from tests.brokers.mirror.unwrap.test_produce import shoal_before
from tests.support.batches import consumed
from tests.support.shallow.batches import outer
from tests.support.shallow.rig import Producer
from tests.support.shallow.world import plain
from tests.support.shoal_process import running_shoal

from .logs import log_batches

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster, Node
    from tests.support.shoal_process import ShoalProcess

LIMIT = 2_000
SMALL = 60  # batches before and after the tested one
_RANDOM = random.Random(9)


def some(base: int, count: int = 2, *, size: int = 40, key: bytes | None = b"key", codec: Codec = Codec.LZ4) -> bytes:
    records = [NewRecord(1_700_000_000_000 + base + at, key, _RANDOM.randbytes(size)) for at in range(count)]
    return encode_batch(records, base_offset=base, codec=codec)


def around(middle: bytes) -> list[bytes]:
    """`middle` begins at offset 2 * SMALL."""
    end = read_batch_header(middle, 0, len(middle)).last_offset + 1
    return [*(some(2 * at) for at in range(SMALL)), middle, *(some(end + 2 * at) for at in range(SMALL))]


async def sent(port: int, topic: str, batches: list[bytes]) -> tuple[ErrorCode, int]:
    """Produce one envelope, with retries like a mirror until the broker knows the topic."""
    client = Producer(await trio.open_tcp_stream("127.0.0.1", port))
    client.version = 9
    await client.agree()
    async with client.stream:
        for _ in range(100):
            await client.produce(outer(*batches), topic=topic)
            (answer,) = (await client.answers()).values()
            if answer[0] is not ErrorCode.unknown_topic_or_partition:
                return answer
            await trio.sleep(0.05)
    raise AssertionError(answer)


def records(batches: list[bytes]) -> list[NewRecord]:
    return plain([record for batch in batches for record in consumed(batch)])


def requests(shoal: ShoalProcess) -> int:
    (told,) = logged(shoal, "total")
    return int(str(told["produce_requests"]))


async def through(
    cluster: Cluster, node: Node, work: Path, topic: str, batches: list[bytes], *, sets: bool = True, **config: str
) -> tuple[ErrorCode, int, int]:
    """-> the answer, and the number of produce requests with records of the topic; the proof must still hold."""
    await Topics(cluster.bootstrap).create(
        topic, config={name.replace("_", "."): value for name, value in config.items()}
    )
    shoal, port = shoal_before(node.address, work, "auto" if sets else "never")
    async with running_shoal(shoal):
        code, offset = await sent(port, topic, batches)
    assert ("gets several batches per partition" in shoal.output()) is sets
    assert "no longer takes several batches" not in shoal.output()
    return code, offset, requests(shoal)


@pytest.mark.parametrize("sets", [True, False], ids=["in sets", "one by one"])
async def test_a_batch_that_is_too_large_is_found_and_cut(
    cluster: Cluster, node: Node, topic: str, tmp_path: Path, sets: bool
) -> None:
    batches = around(some(2 * SMALL, 16, size=300, codec=Codec.NONE))
    code, offset, asked = await through(
        cluster, node, tmp_path, topic, batches, sets=sets, max_message_bytes=str(LIMIT)
    )
    wanted = records(batches)
    assert (code, offset) == (ErrorCode.none, len(wanted) - 1)
    logged_batches = log_batches(node, topic)
    assert records(logged_batches) == wanted
    assert max(map(len, logged_batches)) <= LIMIT
    assert asked > 0
    assert (asked < SMALL / 2) is sets


async def test_of_the_others_around_a_batch_that_is_refused_for_good_all_are_there(
    cluster: Cluster, node: Node, topic: str, tmp_path: Path
) -> None:
    """A compacted topic rejects records without a key: the mirror would get this error without Shoal, too."""
    batches = around(some(2 * SMALL, 3, key=None))
    code, offset, asked = await through(cluster, node, tmp_path, topic, batches, cleanup_policy="compact")
    assert (code, offset) == (ErrorCode.invalid_record, -1)
    assert records(log_batches(node, topic)) == records(batches[:SMALL] + batches[SMALL + 1 :])
    assert 0 < asked < SMALL / 2


async def test_a_set_that_is_too_large_for_a_segment_goes_in_smaller_ones(
    cluster: Cluster, node: Node, version: str, topic: str, tmp_path: Path
) -> None:
    if not version.startswith("3."):
        pytest.skip("since Kafka 4 a segment is at least as large as a set of Shoal's")
    batches = around(some(2 * SMALL))
    size = sum(map(len, batches))
    code, offset, asked = await through(cluster, node, tmp_path, topic, batches, segment_bytes=str(size // 3))
    wanted = records(batches)
    assert (code, offset) == (ErrorCode.none, len(wanted) - 1)
    assert records(log_batches(node, topic)) == wanted
    assert 1 < asked < SMALL / 2
