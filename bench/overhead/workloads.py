"""What is forwarded, and over which path: the same frames for every path that can carry them.

Workloads are rebuilt for each round: to Shoal a repeated envelope is a retry, appended once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from bench.load import Wire
from bench.overhead.report import HEARTBEAT, JOINED, LITTLE, STEADY
from bench.proxies.names import DIRECT, KAFKA_PROXY, KROXYLICIOUS, PROXIES, SHOAL
from bench.runs import Workload, introduce
from bench.stage import BATCHES, MIRROR_CLIENT, PARTITIONS, RECORDS, TINY
from shoal.protocol import FetchedPartition, read_batch_header, read_fetch_response, split
from tests.support.frames import FETCH_VERSION, Topic
from tests.support.frames import fetch as fetch_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.load import Volume
    from bench.proxies.peer import Peer
    from bench.stage import Stage

__all__ = [
    "BUILDERS",
    "INDEX",
    "JOINS",
    "TINY_INDEX",
    "TINY_PLAIN",
    "UNWRAP",
    "WAYS",
    "WRAP",
    "coalesce",
    "fetch",
    "index",
    "produce",
    "small",
    "stage_of",
    "steady",
    "unwrap",
    "wrap",
]

WAYS = (DIRECT, *PROXIES)
WRAP, UNWRAP, INDEX, JOINS = "Shoal wrap", "Shoal unwrap", "Shoal with an index", "Shoal coalesce"
TINY_PLAIN, TINY_INDEX = "fetch of tiny batches", "fetch of tiny batches, index"
SMALL_REQUESTS = 20_000  # in one run: 100,000 in five rounds
CROWD, CROWD_RATE, CROWD_REQUESTS = 200, 3_000, 12_000  # connections, requests a second, requests in one run
_BY_NAME = (KROXYLICIOUS, KAFKA_PROXY)  # which know no Produce by topic id
PIPELINED = 4  # produce requests in flight; a Java producer has up to 5


def fetch(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    frames = stage.fetches()
    return [_fetch("fetch", way, peers[way], frames) for way in WAYS if way in peers]


def wrap(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    """The fetches of one pass, each starting where the previous one ended."""
    return [_fetch("wrap", SHOAL, peers[WRAP], _envelopes(peers[WRAP], stage.fetched).fetches)]


def produce(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    ends = partial(stage.end_offsets, stage.produced)
    return [
        Workload(
            name="produce",
            way=way,
            peer=peers[way],
            frames=stage_of(way, stage).produces(),
            in_flight=PIPELINED,
            counted=_sent,
            end_offset=ends,
            records=PARTITIONS,
        )
        for way in WAYS
        if way in peers
    ]


def unwrap(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    """One request in flight, as in Connect's producer."""
    captured = _envelopes(peers[WRAP], stage.fetched)
    return [
        Workload(
            name="unwrap",
            way=SHOAL,
            peer=peers[UNWRAP],
            frames=stage.unwraps(captured.envelopes),
            in_flight=1,
            counted=_sent,
            end_offset=partial(stage.end_offsets, stage.unwrapped),
            records=captured.wrapped,
            rounds=1,
        )
    ]


def index(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    """With a traffic index, and, for small batches, without one."""
    (produced,) = (work for work in produce(stage, {SHOAL: peers[INDEX]}))
    tiny = stage.tiny_fetches()
    plain, indexed = (_tiny(replace(produced, peer=peers[way]), stage) for way in (SHOAL, INDEX))
    return [
        _fetch("fetch, index", SHOAL, peers[INDEX], stage.fetches()),
        replace(produced, name="produce, index"),
        _fetch(TINY_PLAIN, SHOAL, peers[SHOAL], tiny),
        _fetch(TINY_INDEX, SHOAL, peers[INDEX], tiny),
        plain,
        replace(indexed, name=LITTLE[1]),
    ]


def small(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    """What a proxy costs per request. No listener edits a Heartbeat."""
    proxies = {way: peers[way] for way in PROXIES if way in peers}
    tiny = [_tiny(work, stage_of(work.way, stage)) for work in produce(stage, proxies)]
    beats = [
        Workload(
            name=HEARTBEAT,
            way=way,
            peer=peer,
            frames=stage.heartbeats(),
            in_flight=PIPELINED,
            counted=_sent,
            rounds=SMALL_REQUESTS,
        )
        for way, peer in proxies.items()
    ]
    return tiny + beats


def steady(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    """Small requests of many clients at a steady rate: the proxy sleeps between most of them."""
    (produced,) = produce(stage, {SHOAL: peers[SHOAL]})
    produces, records = stage.few_records()
    crowd = replace(produced, connections=CROWD, rate=CROWD_RATE, rounds=CROWD_REQUESTS)
    beats = replace(crowd, name=STEADY[1], frames=stage.heartbeats(), end_offset=None)
    return [replace(crowd, name=STEADY[0], frames=produces, records=records), beats]


def coalesce(stage: Stage, peers: Mapping[str, Peer]) -> list[Workload]:
    """Requests of one record each that are joined, of many clients at a steady rate."""
    frames = stage.keyed_produces(CROWD_RATE)
    joined = Workload(
        name=JOINED,
        way=SHOAL,
        peer=peers[JOINS].at_broker,
        frames=frames,
        in_flight=1,
        counted=_sent,
        end_offset=partial(stage.end_offsets, stage.crowd),
        records=len(frames),
        rounds=CROWD_REQUESTS,
        connections=CROWD,
        rate=CROWD_RATE,
    )
    return [joined]


def stage_of(way: str, stage: Stage) -> Stage:
    return stage.by_name() if way in _BY_NAME else stage


def _tiny(produced: Workload, stage: Stage) -> Workload:
    return replace(produced, name=LITTLE[0], frames=stage.tiny_produces(), records=TINY, rounds=SMALL_REQUESTS)


def _fetch(name: str, way: str, peer: Peer, frames: list[bytes]) -> Workload:
    return Workload(name=name, way=way, peer=peer, frames=frames, in_flight=1, counted=_received)


def _received(volume: Volume) -> int:
    return volume.received


def _sent(volume: Volume) -> int:
    return volume.sent


BUILDERS: Mapping[str, Callable[[Stage, Mapping[str, Peer]], list[Workload]]] = {
    "fetch": fetch,
    "produce": produce,
    "wrap": wrap,
    "unwrap": unwrap,
    "small": small,
    "steady": steady,
    "coalesce": coalesce,
    "index": index,
}


_END = BATCHES * RECORDS
_MOSTLY = 0.9  # of all records: the first batch after a start is never wrapped


@dataclass(slots=True)
class _Envelopes:
    """One pass over the fetched topic through the wrap listener."""

    fetches: list[bytes] = field(default_factory=list)
    envelopes: dict[int, list[bytes]] = field(default_factory=lambda: {at: [] for at in range(PARTITIONS)})
    """Producible batches of one envelope each, by partition, in order."""
    wrapped: int = 0
    """Records in the envelopes."""
    position: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    def take(self, answer: bytes, fetched: FetchedPartition) -> None:
        for span in split(answer, fetched.start, fetched.end).spans:
            header = read_batch_header(answer, span.start, span.end)
            following = header.last_offset + 1
            if header.record_count == 1:
                self.wrapped += following - self.position[fetched.partition]
                # A producer's base offset is 0; the CRC does not cover it.
                self.envelopes[fetched.partition].append(bytes(8) + answer[span.start + 8 : span.end])
            self.position[fetched.partition] = following


def _envelopes(peer: Peer, topic: Topic) -> _Envelopes:
    """Raises RuntimeError if Shoal left more than the first batches unwrapped."""
    captured = _Envelopes()
    with Wire(peer.address) as wire:
        introduce(wire)
        while asked := {partition: offset for partition, offset in captured.position.items() if offset < _END}:
            captured.fetches.append(fetch_frame(MIRROR_CLIENT, topic, asked))
            wire.send(captured.fetches[-1])
            answer = wire.answer()
            for fetched in read_fetch_response(answer, FETCH_VERSION).partitions:
                captured.take(answer, fetched)
    if captured.wrapped < _MOSTLY * PARTITIONS * _END:
        raise RuntimeError(f"{peer.name} wrapped only {captured.wrapped:,} of {PARTITIONS * _END:,} records")
    return captured
