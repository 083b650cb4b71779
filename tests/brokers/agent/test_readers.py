"""What readers find after sets: librdkafka, the Java consumer and DumpLogSegments agree on every record and offset."""

import re

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.records.record import Slice
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, Node
from shoal.scenarios.kafka.content.copies import Contents, read_copy
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.tools import run_tool
from tests.support.batches import consumed

from .sets import batches, produce_one

_DUMPED = re.compile(r"^\|? ?offset: (\d+) (?:CreateTime|createTime): (\d+) .*?sequence: -1 .*?payload: (\S+)$", re.M)
_SETS = (2, 5, 500)


async def test_all_readers_agree(cluster: Cluster, node: Node, version: str, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic)
    sent = [batch for size in _SETS for batch in batches(size, tuple(Codec))]
    for size in _SETS:
        assert produce_one(node.address, topic, batches(size, tuple(Codec))).error == 0
    wanted = [record for batch in sent for record in consumed(batch)]
    copy = await read_copy(cluster.bootstrap, topic)
    assert list(copy.partitions[0].offsets) == list(range(len(wanted)))
    assert list(copy.partitions[0].fingerprints) == [hash(contents(record)) for record in wanted]
    expected = [(offset, record.timestamp, str(record.value or b"", "ascii")) for offset, record in enumerate(wanted)]
    assert await dumped(node, version, topic) == expected
    assert await java_consumed(cluster, version, topic, len(wanted)) == expected


def contents(record: NewRecord) -> Contents:
    def whole(part: Slice | None) -> bytes | None:
        return None if part is None else bytes(part)

    headers = tuple((bytes(name).decode(), whole(value)) for name, value in record.headers)
    return Contents(record.timestamp, None, whole(record.key), whole(record.value), headers)


async def dumped(node: Node, version: str, topic: str) -> list[tuple[int, int, str]]:
    """Offset, timestamp and value of every record, as DumpLogSegments finds them; it checks every batch."""
    (segment,) = (node.data / f"{topic}-0").glob("*.log")
    text = await run_tool(
        "DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", str(segment), version=version
    )
    assert "isvalid: false" not in text
    return [(int(offset), int(time), value) for offset, time, value in _DUMPED.findall(text)]


async def java_consumed(cluster: Cluster, version: str, topic: str, count: int) -> list[tuple[int, int, str]]:
    printed = ("print.timestamp=true", "print.offset=true", "print.partition=false", "key.separator=|")
    properties = [argument for one in printed for argument in ("--property", one)]
    limits = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
    text = await run_tool(
        "ConsoleConsumer",
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        topic,
        *limits,
        *properties,
        version=version,
    )
    rows = re.findall(r"CreateTime:(\d+)\|Offset:(\d+)\|(\S+)$", text, re.M)
    return [(int(offset), int(time), value) for time, offset, value in rows]
