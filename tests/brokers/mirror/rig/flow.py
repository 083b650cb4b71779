"""One stock MirrorMaker 2 whose data clients go through a Shoal process, between a pair of real clusters.

    source brokers <- Shoal (wrap) <- MM2 -> Shoal (unwrap) -> target brokers

Every check of a copy is the same: each record of the source (timestamp, key, value, headers; order per partition) is on
the target, and no topic of either cluster has an envelope.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.proxy.events.table import EVENTS
from shoal.scenarios.kafka.content.compare import Counts, first_difference, reconcile
from shoal.scenarios.kafka.content.copies import Copy, read_copy
from shoal.scenarios.kafka.content.reading import READ_UNCOMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.mirror import Mirror, MirrorSpec
from shoal.scenarios.kafka.process import until
from tests.support.kafka.catchup import until_copied
from tests.support.log_lines import problems
from tests.support.shoal_process import ShoalProcess, free_port_block, json_lines, write_toml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from shoal.protocol.shallow.unwrap.reconcile import Mismatch
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

WITHIN = 150.0  # time limit for a mirror on a busy machine
_LOGS = ("--log-format", "json", "--report-every", "0.5")
_PORTS = 6  # of one listener: bootstrap and up to five brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Deviations from the usual set-up; None: none."""

    topics: str
    tasks: int = 2
    version: str | None = None
    source: str | None = None  # address of the source brokers for Shoal
    target: str | None = None
    producer: str | None = None  # address for MM2's producer instead of Shoal
    host: str = "127.0.0.1"  # address of Shoal for MM2; another one is that of a relay
    extra: Mapping[str, str | None] = field(default_factory=dict)
    other_targets: tuple[str, ...] = ()
    exactly_once: bool = False
    second_source: str | None = None  # of a second wrapping listener of the same Shoal, for `Flow.second_port`
    separate: bool = False  # two processes of Shoal, one per side: `Flow.shoal` wraps, `Flow.target_shoal` unwraps
    shoal: tuple[str, ...] = ()  # more arguments of `shoal mirror`
    tables: Mapping[str, Mapping[str, object]] | None = None  # `shoal run` with more keys of "cluster", "listener"
    mirror: type[Mirror] = Mirror
    mismatches: tuple[Mismatch, ...] = ()  # the expected ones


def mismatches(shoal: ShoalProcess) -> set[str]:
    """Codes of mismatches, of every process that has logged here."""
    found = [event.get("mismatches") for name in ("flow", "total") for event in logged(shoal, name)]
    return {kind for one in found if isinstance(one, dict) for kind in one}


def logged(shoal: ShoalProcess, name: str) -> list[dict[str, object]]:
    """All whole JSON log lines of this event, of every process that has logged here."""
    assert name in EVENTS
    entries = json_lines(shoal.log.read_text())
    assert [problem for entry in entries for problem in problems(entry)] == []
    return [entry for entry in entries if entry["event"] == name]


def counted(shoal: ShoalProcess, event_name: str = "flow") -> Counter[str]:
    """Totals of all listeners: wrapped_records, unwrapped_records, ..., and raw batches by `Reason`.

    "total" instead of "flow": only after Shoal has exited, when nothing is in flight.
    """
    counts: Counter[str] = Counter()
    for event in logged(shoal, event_name):
        counts.update({name: value for name, value in event.items() if isinstance(value, int)})
        raw = event["raw_batches"]
        assert isinstance(raw, dict)
        counts.update({Reason[code.upper()]: number for code, number in raw.items()})
    return counts


class Flow:
    """Use `flowing`."""

    def __init__(self, pair: Pair, aliases: Aliases, work: Path, wiring: Wiring) -> None:
        self.pair = pair
        self.work = work
        self.source_port, self.target_port = free_port_block(_PORTS), free_port_block(_PORTS)
        self.second_port = free_port_block(_PORTS) if wiring.second_source else 0
        if wiring.second_source:
            self.shoal = self.target_shoal = self._two_sources(wiring, wiring.second_source)
        elif wiring.tables is not None:
            self.shoal = self.target_shoal = self._in_file(wiring, wiring.tables)
        else:
            self.shoal, self.target_shoal = self._separate(wiring) if wiring.separate else self._together(wiring)
        self.spec = MirrorSpec(
            source=pair.source.bootstrap,
            target=pair.target.bootstrap,
            consumer=f"{wiring.host}:{self.source_port}",
            producer=wiring.producer or f"{wiring.host}:{self.target_port}",
            topics=wiring.topics,
            tasks=wiring.tasks,
            source_alias=aliases.source,
            target_alias=aliases.target,
            other_targets=wiring.other_targets,
            exactly_once=wiring.exactly_once,
            extra={"refresh.topics.interval.seconds": "2", **wiring.extra},
        )
        if wiring.version:
            self.spec = replace(self.spec, version=wiring.version)
        self.mirror: Mirror | None = None

    def _together(self, wiring: Wiring) -> tuple[ShoalProcess, ShoalProcess]:
        argv = ["mirror", "--form", "dedicated", *_LOGS, "--state-dir", str(self.work / "state")]
        for side, (bootstrap, port) in self._sides(wiring).items():
            argv += [f"--{side}", bootstrap, f"--{side}-listen", f"127.0.0.1:{port}"]
            argv += [f"--{side}-ports", f"{port + 1}-{port + _PORTS - 1}"]
        if self.pair.source is self.pair.target:  # the copies have other names
            argv.append("--same-cluster")
        ports = [self.source_port, self.target_port]
        shoal = ShoalProcess([*argv, "--advertise", wiring.host, *wiring.shoal], work=self.work, ports=ports)
        return shoal, shoal

    def _in_file(self, wiring: Wiring, tables: Mapping[str, Mapping[str, object]]) -> ShoalProcess:
        modes = {"source": {"mode": "wrap", "pair": "target"}, "target": {"mode": "unwrap"}}
        sides = self._sides(wiring)
        return self._from_file(sides, modes, tables)

    def _two_sources(self, wiring: Wiring, second: str) -> ShoalProcess:
        sides = {**self._sides(wiring), "second": (second, self.second_port)}
        modes: dict[str, dict[str, object]] = {
            "source": {"mode": "wrap", "pair": "target", "shallow": {"evidence-seconds": 50}},
            "second": {"mode": "wrap", "pair": "target"},
            "target": {"mode": "unwrap"},
        }
        return self._from_file(sides, modes)

    def _from_file(
        self,
        sides: Mapping[str, tuple[str, int]],
        modes: Mapping[str, Mapping[str, object]],
        tables: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
    ) -> ShoalProcess:
        """`sides`: bootstrap and port by name; `tables`: further tables of every cluster and listener."""
        document = {
            "state-dir": str(self.work / "state"),
            "cluster": [
                {"name": side, "bootstrap": bootstrap, **tables.get("cluster", {})}
                for side, (bootstrap, _) in sides.items()
            ],
            "listener": [
                {
                    "name": side,
                    "cluster": side,
                    "listen": f"127.0.0.1:{port}",
                    "ports": f"{port + 1}-{port + _PORTS - 1}",
                    **modes[side],
                    **tables.get("listener", {}),
                }
                for side, (_, port) in sides.items()
            ],
        }
        config = write_toml(self.work / "shoal.toml", document)
        ports = [port for _, port in sides.values()]
        return ShoalProcess(["run", "-c", str(config), *_LOGS], work=self.work, ports=ports)

    def _separate(self, wiring: Wiring) -> tuple[ShoalProcess, ShoalProcess]:
        modes: dict[str, dict[str, object]] = {
            "source": {"mode": "wrap", "shallow": {"unpaired": True}},
            "target": {"mode": "unwrap"},
        }
        processes = []
        for side, (bootstrap, port) in self._sides(wiring).items():
            ports = f"{port + 1}-{port + _PORTS - 1}"
            where = {"name": side, "cluster": side, "listen": f"127.0.0.1:{port}", "ports": ports}
            document = {
                "state-dir": str(self.work / side),
                "cluster": [{"name": side, "bootstrap": bootstrap}],
                "listener": [{**where, **modes[side]}],
            }
            config = write_toml(self.work / side / "shoal.toml", document)
            processes.append(ShoalProcess(["run", "-c", str(config), *_LOGS], work=self.work / side, ports=[port]))
        return processes[0], processes[1]

    def _sides(self, wiring: Wiring) -> dict[str, tuple[str, int]]:
        return {
            "source": (wiring.source or self.pair.source.bootstrap, self.source_port),
            "target": (wiring.target or self.pair.target.bootstrap, self.target_port),
        }

    @property
    def ports(self) -> tuple[range, range]:
        """All ports on which Shoal may listen: (source, target)."""
        source, target = (range(first, first + _PORTS) for first in (self.source_port, self.target_port))
        return source, target

    def with_extra(self, extra: Mapping[str, str | None]) -> MirrorSpec:
        """The mirror's properties with these overrides, for a restart."""
        return replace(self.spec, extra={**self.spec.extra, **extra})

    @property
    def running(self) -> Mirror:
        assert self.mirror is not None
        return self.mirror

    def remote(self, topic: str) -> str:
        return self.spec.remote_topic(topic)

    # -- Shoal's log --------------------------------------------------------------------------------------------------

    def events(self, name: str) -> list[dict[str, object]]:
        """All log lines of this event, of every process that has logged here."""
        return logged(self.shoal, name)

    def counts(self, event_name: str = "flow") -> Counter[str]:
        """See `counted`."""
        return counted(self.shoal, event_name)

    async def until_wrapped(self, records: int) -> None:
        """Wait until this many records were sent in envelopes since the start."""
        await until(
            lambda: self.counts()["wrapped_records"] >= records,
            within=WITHIN,
            what=f"{records} records to be wrapped",
            process=self.shoal.process,
            poll_s=0.2,
        )

    async def until_opened(self) -> None:
        """Wait until all records sent in envelopes have come back; not after a task restart, which drops some.

        Plain records that share an outer batch with an envelope are appended by Shoal, and counted, too.
        """

        def is_opened() -> bool:
            counts = self.counts()
            return counts["unwrapped_records"] >= counts["wrapped_records"] > 0

        await until(is_opened, within=WITHIN, what="all envelopes to be opened", process=self.shoal.process, poll_s=0.2)

    async def until_said(self, text: str) -> None:
        await until(
            lambda: text in self.shoal.log.read_text(),
            within=WITHIN,
            what=f"shoal to say {text!r}",
            process=self.shoal.process,
            poll_s=0.2,
        )

    # -- checks -------------------------------------------------------------------------------------------------------

    async def check(self, *topics: str, isolation: str = READ_UNCOMMITTED) -> None:
        """When everything has arrived, each copy is equal, without duplicates, and no topic has an envelope."""
        for topic in topics:
            ours = await read_copy(self.pair.source.bootstrap, topic, isolation=isolation)
            theirs = await self._copied(ours, isolation)
            assert await first_difference(ours, theirs) is None
        assert await self.pair.envelopes() == []

    async def check_faithful(self, topic: str, *, duplicates: float) -> Counts:
        """The same after a fault: nothing lost, altered or out of order, and at most this many duplicates."""
        ours = await read_copy(self.pair.source.bootstrap, topic)
        counts = reconcile(ours, await self._copied(ours, READ_UNCOMMITTED))
        assert counts.faithful, counts
        assert counts.duplicates <= duplicates, counts
        assert await self.pair.envelopes() == []
        return counts

    async def check_gap(self, topic: str) -> Counts:
        """Records that the source still has are on the target, in order; records that it no longer has may be, too."""
        ours = await read_copy(self.pair.source.bootstrap, topic)
        counts = reconcile(ours, await self._copied(ours, READ_UNCOMMITTED))
        assert counts.missing == counts.reordered == 0, counts
        assert await self.pair.envelopes() == []
        return counts

    async def _copied(self, ours: Copy, isolation: str) -> Copy:
        """The copy of `ours` when it is complete. End offsets are requested first, because they are cheap."""
        process, remote = self.running.process, self.remote(ours.topic)
        topics = Topics(self.pair.target.bootstrap)
        await topics.until_total(remote, ours.records, within=WITHIN, process=process)
        bootstrap = self.pair.target.bootstrap
        return await until_copied(ours, bootstrap, remote, within=WITHIN, isolation=isolation, process=process)


@asynccontextmanager
async def flowing(
    pair: Pair,
    aliases: Aliases,
    work: Path,
    wiring: Wiring,
    *,
    more: Callable[[Flow], Mapping[str, str | None]] = lambda flow: {},
) -> AsyncIterator[Flow]:
    """Shoal and the mirror run during a block; a failure shows the ends of both logs. `more`: properties with ports."""
    flow = Flow(pair, aliases, work, wiring)
    flow.spec = flow.with_extra(more(flow))
    shoals = list(dict.fromkeys((flow.shoal, flow.target_shoal)))
    try:
        for shoal in shoals:
            await shoal.start()
        flow.mirror = await wiring.mirror.start(work, flow.spec)
        yield flow
        for shoal in shoals:
            await shoal.stop()
        assert mismatches(flow.target_shoal) == {kind.name.lower() for kind in wiring.mismatches}
    except BaseException:
        print(flow.shoal.process.tail(60))
        if flow.mirror is not None:
            print(flow.mirror.process.tail())
        raise
    finally:
        for shoal in shoals:
            if shoal.running:
                shoal.kill()
        if flow.mirror is not None and flow.mirror.running:
            flow.mirror.kill()


__all__ = ["WITHIN", "Flow", "Wiring", "counted", "flowing", "logged", "mismatches"]
