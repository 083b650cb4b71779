"""Shoal's use of cluster ids: nothing is mirrored into itself, and state kept of one cluster is not used for
another."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.messages.metadata import encode_metadata_request
from shoal.protocol.records.batch import encode_batch
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.proxy.cluster.ports import Nodes, SavedPorts
from shoal.proxy.cluster.ports_file import read_state, write_state
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, Limits
from shoal.proxy.shallow.files.producers import ProducersFile
from tests.proxy.shallow.unwrap.test_producers_file import discarded
from tests.support.rig import Peer, free_range, rig, until
from tests.support.shallow.batches import BATCHES, NONE, OTHERS, envelope, outer, records
from tests.support.shallow.brokers import ORDERS, Script, SourceBroker, TargetBroker
from tests.support.shallow.mirror import Mirror, log, logs
from tests.support.shallow.rig import ShallowRig, shallow_rig

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = pytest.mark.usefixtures("lane")

QUICK = Limits(close_seconds=0.01)
by_the_mirror = partial(encode_batch, producer_id=5, producer_epoch=2)


def problem(caught: pytest.ExceptionInfo[BaseExceptionGroup]) -> str:
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, OperatorError)
    return str(error)


# -- one cluster on both sides -----------------------------------------------------------------------------------------


async def ask(peer: Peer) -> None:
    """Every client's first request."""
    await peer.send(encode_metadata_request(12, 0, "client", []))
    await peer.frame()


async def test_one_cluster_on_both_sides_is_an_error() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with shallow_rig(learn=True, same_cluster=False, target=TargetBroker(cluster_id="the source")):
            await trio.sleep_forever()
    said = problem(caught)
    assert said.startswith("listener 'from': clusters 'from' (127.0.0.1:")
    assert "are one cluster, the source: a mirror of it into itself may copy its copies for ever" in said
    assert said.endswith("say so with same-cluster = true")


async def test_one_cluster_on_both_sides_may_be_meant() -> None:
    async with shallow_rig(learn=True, same_cluster=True, target=TargetBroker(cluster_id="the source")) as r:
        clusters = [listener.cluster for listener in r.server.listeners.values()]
        await until(lambda: all(cluster.cluster_id == "the source" for cluster in clusters))


async def test_nothing_is_wrapped_until_both_clusters_are_known(clock: MockClock) -> None:
    async with shallow_rig(same_cluster=False, min_batch_bytes=0) as r:
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(8)]
        mirror = await Mirror.of(r)
        assert [await mirror.copy() for _ in range(3)] == [False] * 3
        assert r.wrap.tally.raw_batches[Reason.UNKNOWN_CLUSTER]
        await ask(mirror.consumer)
        assert not await mirror.copy()
        await ask(mirror.producer)
        assert [await mirror.copy() for _ in range(4)] == [True] * 4
        assert mirror.copied == logs(8)


async def known_later(rigs: list[ShallowRig]) -> None:
    async with shallow_rig(same_cluster=False, min_batch_bytes=0, source=SourceBroker(cluster_id="the target")) as r:
        rigs.append(r)
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(3)]
        mirror = await Mirror.of(r)
        assert [await mirror.copy() for _ in range(3)] == [False] * 3
        for peer in (mirror.consumer, mirror.producer):
            await peer.send(encode_metadata_request(12, 0, "client", []))
        await trio.sleep_forever()


async def test_a_cluster_that_is_known_later_ends_it_before_anything_is_wrapped(clock: MockClock) -> None:
    rigs: list[ShallowRig] = []
    with pytest.raises(BaseExceptionGroup) as caught:
        await known_later(rigs)
    assert "are one cluster, the target" in problem(caught)
    assert not rigs[0].wrap.tally.envelopes


# -- state kept of another cluster -------------------------------------------------------------------------------------


async def produced(r: ShallowRig, *batches: bytes, sequence: int) -> tuple[object, int]:
    client = await r.producer()
    await client.produce(by_the_mirror([seen.record for seen in envelope(*batches)], base_sequence=sequence))
    return (await client.answers())[0]


async def test_sequences_of_another_cluster_are_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "to.producers"
    async with shallow_rig(producers_file=path, learn=True) as r:
        assert await produced(r, *BATCHES, sequence=0) == (NONE, 14)
    one, another = TargetBroker(cluster_id="another"), TargetBroker(cluster_id="another")
    async with shallow_rig(producers_file=path, learn=True, target=another) as r:
        error, _ = await produced(r, *OTHERS, sequence=1)
        assert error is not NONE, "what came before it is not known of this cluster"
        assert await produced(r, *BATCHES, sequence=0) == (NONE, 14)
    assert another.log() == records(*BATCHES), "in a cluster that has the same producer id for another mirror"
    assert f"discarded {path} (of cluster the target, and this is another)" in caplog.text
    async with shallow_rig(producers_file=path, learn=True, target=another) as r:
        assert await produced(r, *OTHERS, sequence=1) == (NONE, 19)
    assert one.log() == []


async def becomes_another(r: ShallowRig) -> None:
    """Its bootstrap addresses now lead to another cluster; connections to the first one remain."""
    cluster = r.server.listeners["to"].cluster
    await until(lambda: cluster.cluster_id == "the target")
    r.target.cluster_id = "another"
    await ask(await r.producer())
    assert cluster.cluster_id == "another"


async def test_nothing_goes_over_a_connection_to_the_cluster_that_it_was(tmp_path: Path) -> None:
    """What is appended there would be counted as appended in the other one."""
    async with shallow_rig(producers_file=tmp_path / "to.producers", learn=True, limits=QUICK) as r:
        client = await r.producer(agrees=True)
        await becomes_another(r)
        await client.produce(outer(*BATCHES))
        assert await client.at_end()
        assert not r.target.requests
        client = await r.producer(agrees=True)
        await client.produce(outer(*BATCHES))
        assert await client.answers() == {0: (NONE, 14)}


@pytest.mark.parametrize("agrees", [False, True])
async def test_what_is_under_way_while_the_cluster_changes_is_believed_of_the_first_one_only(
    agrees: bool, tmp_path: Path
) -> None:
    gate, sent = trio.Event(), outer(*BATCHES)
    script, path = {0: Script(gate=gate)}, tmp_path / "to.producers"
    async with shallow_rig(producers_file=path, learn=True, limits=QUICK, scripts=script) as r:
        client = await r.producer(agrees=agrees)
        await client.produce(sent)
        await until(lambda: len(r.target.requests) == 1)
        await becomes_another(r)
        gate.set()
        assert await client.answers() == {0: (NONE, 14)}
        first = r.target.next_id
        client = await r.producer(agrees=agrees)
        await client.produce(sent)
        assert await client.answers() == {0: (NONE, 29)}
        assert (r.target.next_id > first) is agrees, "the id is the first cluster's"


async def test_a_host_more_in_the_bootstrap_list_changes_nothing(tmp_path: Path) -> None:
    path, target = tmp_path / "to.producers", TargetBroker()
    for number, batches in enumerate((BATCHES, OTHERS)):  # each rig's broker has another address
        async with shallow_rig(producers_file=path, learn=True, target=target) as r:
            assert (await produced(r, *batches, sequence=number))[0] is NONE
    assert target.log() == records(*BATCHES, *OTHERS)


async def test_a_cluster_that_does_not_tell_its_id_is_taken_for_the_one_it_was(tmp_path: Path) -> None:
    path, target = tmp_path / "to.producers", TargetBroker()
    async with shallow_rig(producers_file=path, learn=True, target=target) as r:
        assert await produced(r, *BATCHES, sequence=0) == (NONE, 14)
    async with shallow_rig(producers_file=path, target=target) as r:
        assert await produced(r, *OTHERS, sequence=1) == (NONE, 19)
    file = ProducersFile("to", path)
    assert file.cluster == "the target"
    file.close()


async def test_ports_of_another_clusters_brokers_are_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, nodes = tmp_path / "state.json", free_range()
    remembered: Nodes = {7: (nodes.first + 3, Address("gone.example", 9092))}
    write_state(path, "test", remembered, "one")
    async with rig(nodes=replace(nodes, state_file=path)) as r:
        assert r.server.clusters["c"].addresses(7) == (Address("gone.example", 9092),)
        r.server.clusters["c"]._identified("another")
        assert r.server.clusters["c"].addresses(7) == r.server.clusters["c"].bootstrap
        assert f"discarded {path} (of cluster one, and this is another)" in caplog.text
        assert read_state(path, "test") == SavedPorts({7: (nodes.first + 3, None)}, "another")
        r.listener.advertise(Address("b7", 9092), 7, "127.0.0.1")
        assert read_state(path, "test") == SavedPorts({7: (nodes.first + 3, Address("b7", 9092))}, "another")
    (kept,) = discarded(path)
    assert read_state(kept, "test") == SavedPorts(remembered, "one")
