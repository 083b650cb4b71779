"""The result of the demo, over its rounds, and `report.json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.scenarios.spread import Spread, ratios

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.demo.measure import Sample
    from shoal.scenarios.kafka.segments import SegmentContents

__all__ = [
    "MIRROR",
    "PROXY",
    "ROLES",
    "SOURCE",
    "TARGET",
    "DemoRun",
    "FigureOf",
    "Ratio",
    "Report",
    "as_json",
    "cpu_of",
    "peak_of",
]

MIRROR, PROXY, SOURCE, TARGET = ROLES = ("mirror", "proxy", "source_broker", "target_broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """One copy of the topic, from the first mirrored record to the last. Values are by role; no proxy: no key."""

    column: str  # its heading
    wall_s: float
    cpu_s: Mapping[str, float]
    peak_mib: Mapping[str, float]
    difference: str | None  # the first difference, in words; None: every record equals the source's
    copy: SegmentContents
    samples: tuple[Sample, ...] = ()
    requests: int | None = None  # Produce requests that the target broker has received; None: not counted

    @property
    def equal(self) -> bool:
        return self.difference is None

    @property
    def mirroring_cpu_s(self) -> float:
        return self.cpu_s[MIRROR] + self.cpu_s.get(PROXY, 0.0)


FigureOf = Callable[[DemoRun], float | None]
"""One of a run's figures; None where it was not measured."""
_wall_s: Callable[[DemoRun], float] = attrgetter("wall_s")


def cpu_of(role: str) -> FigureOf:
    return lambda run: run.cpu_s.get(role)


def peak_of(role: str) -> FigureOf:
    return lambda run: run.peak_mib.get(role)


class Ratio(NamedTuple):
    """How many times less `by` needs than `of`, by the names of the runs."""

    heading: str
    of: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    kafka: str
    source: SegmentContents
    rounds: Sequence[Mapping[str, DemoRun]]
    """All runs, by name, in the same order in each round."""
    ratios: tuple[Ratio, ...]
    envelopes_left: int
    """In any topic of all clusters that is left after the last round."""

    @property
    def good(self) -> bool:
        return not self.envelopes_left and not self.differences()

    def differences(self) -> list[str]:
        return [
            f"{name}, round {at}: {run.difference}" if len(self.rounds) > 1 else f"{name}: {run.difference}"
            for at, runs in enumerate(self.rounds, 1)
            for name, run in runs.items()
            if run.difference is not None
        ]

    def typical(self) -> list[DemoRun]:
        """Each run in the round where it took the median time."""
        by_time = (sorted(self.of(name), key=_wall_s) for name in self.rounds[0])
        return [measured[(len(measured) - 1) // 2] for measured in by_time]

    def of(self, name: str) -> list[DemoRun]:
        """A run in all rounds."""
        return [runs[name] for runs in self.rounds]

    def figures(self, figure: FigureOf) -> list[Spread | None]:
        """One per run; None where it was not measured."""
        return [_spread([figure(run) for run in self.of(name)]) for name in self.rounds[0]]

    def times_less(self, figure: FigureOf) -> list[Spread | None]:
        """One for each of `ratios`."""
        return [
            _spread(ratios(*([figure(run) for run in self.of(name)] for name in (ratio.of, ratio.by))))
            for ratio in self.ratios
        ]

    @property
    def counts_requests(self) -> bool:
        return any(run.requests is not None for run in self.rounds[0].values())


def _spread(values: Sequence[float | None]) -> Spread | None:
    measured = [value for value in values if value is not None]
    return Spread.of(measured) if measured else None


def as_json(report: Report) -> dict[str, Any]:
    """Medians of the rounds. With more than one, each run has the figures of all `rounds`, too."""
    return {
        "kafka": report.kafka,
        **({"batches": report.source.batches} if report.counts_requests else {}),
        "records": report.source.records,
        "compressed_bytes": report.source.size,
        "runs": {name: _run_json(report.of(name)) for name in report.rounds[0]},
        "envelopes_left": report.envelopes_left,
    }


def _run_json(rounds: Sequence[DemoRun]) -> dict[str, Any]:
    requests = [run.requests for run in rounds if run.requests is not None]
    return {
        "wall_s": round(median(run.wall_s for run in rounds), 2),
        "cpu_s": {role: round(median(run.cpu_s.get(role, 0.0) for run in rounds), 2) for role in ROLES},
        "peak_mib": {role: round(median(run.peak_mib.get(role, 0.0) for run in rounds), 1) for role in ROLES},
        "equal": all(run.equal for run in rounds),
        **({"requests": round(median(requests))} if requests else {}),
        **({"rounds": [_run_json([run]) for run in rounds]} if len(rounds) > 1 else {}),
    }
