"""The raw capture's line in the report."""

from __future__ import annotations

from shoal.proxy.cli.serving.report import Snapshot, report
from shoal.proxy.statistics import RawStatistics, ServerStatistics


def _snapshot(raw: RawStatistics | None) -> Snapshot:
    return Snapshot(at=1.0, server=ServerStatistics(listeners=(), raw_capture=raw))


def test_frames_that_were_written_and_lost_are_told() -> None:
    before, now = RawStatistics(written=5, lost=1, bytes=100), RawStatistics(written=7, lost=2, bytes=1_000_100)
    (line,) = report(_snapshot(before), _snapshot(now))

    assert line.text == "raw capture: 2 frames (1.0 MB), 1 frame lost"
    assert line.values == {"written": 2, "lost": 1, "bytes": 1_000_000}


def test_nothing_is_told_where_nothing_happened() -> None:
    assert report(_snapshot(RawStatistics(written=5)), _snapshot(RawStatistics(written=5))) == []
    (line,) = report(_snapshot(None), _snapshot(RawStatistics(written=1)))
    assert line.text.startswith("raw capture: 1 frame (")
