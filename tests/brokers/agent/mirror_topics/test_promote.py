"""`shoal promote` with brokers that have the agent, and a mirror that still writes."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.content.topics import Topics

from .rig import READ_ONLY, dense, flagged, probe, send

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster, Node


async def promote(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "shoal", "promote", *arguments, "--bootstrap", cluster.bootstrap]
    run = partial(subprocess.run, command, capture_output=True, text=True, check=False, timeout=90)
    done = await trio.to_thread.run_sync(run)
    return done.returncode, done.stdout + done.stderr


async def test_it_promotes_what_no_mirror_writes_to(cluster: Cluster, node: Node, mirrored: str, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic)
    assert send(node, mirrored, flagged(dense(0, 5))).error == 0

    code, said = await promote(cluster, mirrored, topic)
    assert code == 1
    assert f"{topic}-0" in said
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, node, mirrored)
        code, said = await promote(cluster, mirrored)
        assert (code, "--force" in said) == (1, True)
        code, said = await promote(cluster, mirrored, "--force", "--dry-run")
        assert code == 0
        assert send(node, mirrored, probe()).error == 0
        nursery.cancel_scope.cancel()

    code, said = await promote(cluster, mirrored)
    assert (code, mirrored in said) == (0, True)
    assert send(node, mirrored, probe()).error == READ_ONLY
    assert send(node, mirrored, dense(0, 1)).error == 0
    code, said = await promote(cluster, mirrored)
    assert (code, "already" in said) == (0, True)


async def write(node: Node, topic: str) -> None:
    """A mirror, batch by batch."""
    for base in count(5):
        answer = await trio.to_thread.run_sync(partial(send, node, topic, flagged(dense(base, 1))))
        assert answer.error == 0
        await trio.sleep(0.1)
