"""kcat through Shoal (Debian package `kcat`; `scripts/setup` installs it)."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.brokers.proxy.rig.data import new_topic, read

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka


def _kcat(stand: Stand, *args: str, stdin: str = "") -> str:
    command = ["kcat", "-b", stand.bootstrap, *args]
    return subprocess.run(command, input=stdin, check=True, capture_output=True, text=True, timeout=30).stdout


def test_list_names_only_shoal(stand: Stand) -> None:
    listed = json.loads(_kcat(stand, "-L", "-J"))
    named = {one["id"]: one["name"] for one in listed["brokers"]}
    assert named == {node: "{}:{}".format(*stand.broker(node)) for node in stand.cluster.nodes}


def test_produce_and_consume(brokers: Cluster, stand: Stand) -> None:
    topic = new_topic(brokers, [[1], [2], [3]])
    lines = [f"key{number}:value {number}" for number in range(300)]
    _kcat(stand, "-P", "-t", topic, "-K", ":", "-X", "acks=all", stdin="".join(f"{line}\n" for line in lines))
    consumed = _kcat(stand, "-C", "-t", topic, "-K", ":", "-e", "-q", "-o", "beginning")
    assert sorted(consumed.splitlines()) == sorted(lines)
    stored = [record for records in read(brokers.bootstrap, topic, partitions=3).values() for record in records]
    assert sorted(f"{(one.key or b'').decode()}:{(one.value or b'').decode()}" for one in stored) == sorted(lines)
