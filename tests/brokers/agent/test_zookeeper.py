"""ZooKeeper mode (Kafka 3.9 still has it): the leader appends through the same code, so it accepts sets, too."""

from functools import partial
from pathlib import Path

import pytest

from shoal.protocol.records.recordset import split
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.jvm import agent_option
from tests.support.kafka.zookeeper import zookeeper_cluster

from .logs import as_logged
from .sets import Answer, batches, produce_one

pytestmark = pytest.mark.agent


async def test_a_zookeeper_broker_takes_sets(tmp_path: Path, topic: str) -> None:
    async with zookeeper_cluster("3.9.1", tmp_path, agent_option()) as (address, broker):
        assert "Kafka 3.9.1 takes several batches per partition" in broker.output()
        await Topics(address).create(topic)
        take = partial(produce_one, address, topic)
        sent = batches(20, tuple(Codec))
        assert take(sent) == Answer(0, 0)
        log = b"".join(path.read_bytes() for path in (tmp_path / "data" / f"{topic}-0").glob("*.log"))
    assert [log[span.start : span.end] for span in split(log, 0, len(log)).spans] == as_logged(sent)
