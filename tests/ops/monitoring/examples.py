"""For each alert: series with which it fires, and similar ones with which it does not.

Values are in promtool's notation, one a minute: `0+5x10` is 0, 5, ... 50, and `_` is a missing sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXAMPLES", "HEALTHY", "INSTANCE", "JOB", "Example"]

JOB: Final = "shoal"
INSTANCE: Final = "shoal-0:9190"
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """`fires` and `quiet`: name{labels} -> values; `job` and `instance` are added. `labels`: of the alert that fires.

    `values`: what the templates make of `$value`, by its filter. `before`: minutes after which it does not fire yet.
    """

    fires: Mapping[str, str]
    at: int  # minutes
    before: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    quiet: Mapping[str, str]


_SOURCE: Final = {"listener": "source"}
_BUCKET: Final = "shoal_event_loop_lag_seconds_bucket"

EXAMPLES: Final[Mapping[str, Example]] = {
    "ShoalDown": Example(
        fires={"up": "1x5 0x20", 'shoal_build_info{version="1"}': "1x5 _x20"},
        before=7,
        at=9,
        quiet={"up": "0x30"},  # something else than Shoal, or a Shoal that was never there
    ),
    "ShoalRestarts": Example(
        fires={"process_start_time_seconds": "1 1 2 2 3 3 4 4x20", 'shoal_build_info{version="1"}': "1x30"},
        before=5,
        at=10,
        values={"": "3"},
        quiet={"process_start_time_seconds": "1 1 2 2x30", 'shoal_build_info{version="1"}': "1x30"},
    ),
    "ShoalClusterUnreachable": Example(
        fires={'shoal_cluster_reachable{cluster="east"}': "1x5 0x20"},
        before=7,
        at=9,
        labels={"cluster": "east"},
        quiet={'shoal_cluster_reachable{cluster="east"}': "1 0 1 0 1 1x20"},
    ),
    "ShoalBrokerUnreachable": Example(
        fires={'shoal_connections_closed_total{listener="source",cause="upstream_unreachable"}': "0x5 0+3x20"},
        before=9,
        at=15,
        labels={**_SOURCE, "cause": "upstream_unreachable"},
        quiet={
            'shoal_connections_closed_total{listener="source",cause="upstream_unreachable"}': "0x5 3x20",
            'shoal_connections_closed_total{listener="source",cause="client_closed"}': "0+9x30",
        },
    ),
    "ShoalRefusesClients": Example(
        fires={'shoal_connections_closed_total{listener="source",cause="no_port"}': "0x5 0+3x30"},
        before=14,
        at=20,
        labels={**_SOURCE, "cause": "no_port"},
        quiet={'shoal_connections_closed_total{listener="source",cause="client_closed"}': "0+9x30"},
    ),
    "ShoalNotWrapping": Example(
        fires={
            'shoal_raw_batches_total{listener="source",reason="no_evidence"}': "0+60x40",
            'shoal_raw_batches_total{listener="source",reason="log_append_time"}': "0+60x40",
            'shoal_wrapped_batches_total{listener="source"}': "0+90x40",
        },
        before=14,
        at=20,
        labels=_SOURCE,
        quiet={
            'shoal_raw_batches_total{listener="source",reason="first"}': "0+10x40",
            'shoal_raw_batches_total{listener="source",reason="deep_topic"}': "0+600x40",
            'shoal_wrapped_batches_total{listener="source"}': "0+90x40",
        },
    ),
    "ShoalWrappingStopped": Example(
        fires={'shoal_interlock_topics{listener="source",state="stopped"}': "0x5 2x20"},
        before=9,
        at=12,
        labels={**_SOURCE, "state": "stopped"},
        values={"": "2"},
        quiet={
            'shoal_interlock_topics{listener="source",state="wrapped"}': "2x30",
            'shoal_interlock_topics{listener="source",state="proving"}': "1x30",
            'shoal_interlock_topics{listener="source",state="stopped"}': "0 1 1 0x20",
        },
    ),
    "ShoalMismatch": Example(
        fires={'shoal_mismatches_total{listener="target",kind="fewer"}': "0x5 1x60"},
        before=4,
        at=7,
        labels={"listener": "target", "kind": "fewer"},
        quiet={'shoal_mismatches_total{listener="target",kind="fewer"}': "1x30"},
    ),
    "ShoalMirrorLag": Example(
        fires={
            'shoal_mirror_lag_seconds{listener="source",topic="a",partition="0"}': "0+60x40",
            'shoal_mirror_lag_seconds{listener="source",topic="a",partition="1"}': "0x40",
        },
        before=10,
        at=15,
        labels=_SOURCE,
        values={"humanizeDuration": "15m 0s"},
        quiet={'shoal_mirror_lag_seconds{listener="source",topic="a",partition="0"}': "0+60x8 0x30"},
    ),
    "ShoalMirrorLagUnknown": Example(
        fires={'shoal_mirror_partitions{listener="source",state="unknown"}': "4x30"},
        before=14,
        at=16,
        labels={**_SOURCE, "state": "unknown"},
        values={"": "4"},
        quiet={
            'shoal_mirror_partitions{listener="source",state="unknown"}': "4x9 0x20",
            'shoal_mirror_partitions{listener="source",state="behind"}': "9x30",
        },
    ),
    "ShoalMirrorGap": Example(
        fires={'shoal_mirror_gaps_total{listener="source",kind="deleted"}': "0x5 1x60"},
        before=4,
        at=7,
        labels={**_SOURCE, "kind": "deleted"},
        quiet={'shoal_mirror_gaps_total{listener="source",kind="deleted"}': "2x30"},
    ),
    "ShoalMirrorStopped": Example(
        fires={'shoal_mirror_partitions{listener="source",state="stopped"}': "0x5 3x20"},
        before=4,
        at=7,
        labels={**_SOURCE, "state": "stopped"},
        values={"": "3"},
        quiet={
            'shoal_mirror_partitions{listener="source",state="stopped"}': "0x30",
            'shoal_mirror_partitions{listener="source",state="caught_up"}': "8x30",
        },
    ),
    "ShoalLoopStalled": Example(
        fires={
            "shoal_event_loop_lag_seconds_count": "0+240x5 1201+240x20",
            f'{_BUCKET}{{le="1.0"}}': "0+240x5 1200+240x20",
        },
        before=5,
        at=8,
        quiet={
            "shoal_event_loop_lag_seconds_count": "0+240x30",
            f'{_BUCKET}{{le="1.0"}}': "0+240x30",
            f'{_BUCKET}{{le="0.5"}}': "0+200x30",
        },
    ),
    "ShoalLoopSlow": Example(
        fires={
            f'{_BUCKET}{{le="0.05"}}': "0+100x30",
            f'{_BUCKET}{{le="0.1"}}': "0+240x30",
            f'{_BUCKET}{{le="+Inf"}}': "0+240x30",
        },
        before=9,
        at=15,
        values={"humanizeDuration": "91.43ms"},
        quiet={
            f'{_BUCKET}{{le="0.05"}}': "0+230x30",
            f'{_BUCKET}{{le="0.1"}}': "0+240x30",
            f'{_BUCKET}{{le="+Inf"}}': "0+240x30",
        },
    ),
    "ShoalSaturated": Example(
        fires={"process_cpu_seconds_total": "0+57x40", 'shoal_build_info{version="1"}': "1x40"},
        before=14,
        at=20,
        values={"humanizePercentage": "95%"},
        quiet={
            "process_cpu_seconds_total": "0+150x40",  # 2.5 cores of four workers
            'shoal_build_info{version="1"}': "1x40",
            'shoal_workers{state="serving"}': "3x40",
            'shoal_workers{state="silent"}': "1x40",
            'shoal_workers{state="ended"}': "0x40",
        },
    ),
    "ShoalWorkerEnded": Example(
        fires={"shoal_worker_ends_total": "0x5 1x60"},
        before=4,
        at=7,
        values={"humanize": "1"},
        quiet={"shoal_worker_ends_total": "1x30"},
    ),
    "ShoalCertificateExpiresSoon": Example(
        fires={
            'shoal_certificate_expiry_timestamp_seconds{where="listener p",setting="certificate",file="/a.pem"}': (
                f"{10 * _DAY}x5"
            ),
        },
        at=0,
        labels={"where": "listener p", "setting": "certificate", "file": "/a.pem"},
        values={"humanizeDuration": "10d 0h 0m 0s"},
        quiet={
            'shoal_certificate_expiry_timestamp_seconds{where="listener p",setting="certificate",file="/a.pem"}': (
                f"{15 * _DAY}x5"
            ),
        },
    ),
    "ShoalCertificateExpires": Example(
        fires={
            'shoal_certificate_expiry_timestamp_seconds{where="cluster c",setting="ca",file="/ca.pem"}': f"{_DAY}x5",
        },
        at=0,
        labels={"where": "cluster c", "setting": "ca", "file": "/ca.pem"},
        values={"humanizeDuration": "1d 0h 0m 0s"},
        quiet={
            'shoal_certificate_expiry_timestamp_seconds{where="cluster c",setting="ca",file="/ca.pem"}': (
                f"{3 * _DAY}x5"
            ),
        },
    ),
    "ShoalCaptureDrops": Example(
        fires={"shoal_capture_rows_dropped_total": "0x5 4x60"},
        before=4,
        at=7,
        values={"humanize": "4"},
        quiet={"shoal_capture_rows_dropped_total": "7x30", "shoal_raw_capture_frames_lost_total": "0x30"},
    ),
    "ShoalStateNotWritten": Example(
        fires={'shoal_state_file_errors_total{listener="source"}': "0x5 1x60"},
        before=4,
        at=7,
        labels=_SOURCE,
        quiet={'shoal_state_file_errors_total{listener="source"}': "1x30"},
    ),
    "ShoalErrors": Example(
        fires={'shoal_log_lines_total{level="error"}': "0x5 1x60", 'shoal_log_lines_total{level="critical"}': "0x60"},
        before=4,
        at=7,
        quiet={'shoal_log_lines_total{level="warning"}': "0+5x30", 'shoal_log_lines_total{level="error"}': "2x30"},
    ),
}

HEALTHY: Final[Mapping[str, str]] = {  # with these together, no alert fires
    "up": "1x60",
    'shoal_build_info{version="1"}': "1x60",
    "process_start_time_seconds": "1000x60",
    "process_cpu_seconds_total": "0+20x60",
    'shoal_cluster_reachable{cluster="east"}': "1x60",
    'shoal_connections_closed_total{listener="source",cause="client_closed"}': "0+5x60",
    'shoal_connections_closed_total{listener="source",cause="upstream_unreachable"}': "0x60",
    'shoal_raw_batches_total{listener="source",reason="first"}': "0+1x60",
    'shoal_wrapped_batches_total{listener="source"}': "0+500x60",
    'shoal_interlock_topics{listener="source",state="wrapped"}': "12x60",
    'shoal_mismatches_total{listener="target",kind="fewer"}': "0x60",
    'shoal_mirror_lag_seconds{listener="source",topic="a",partition="0"}': "3x60",
    'shoal_mirror_partitions{listener="source",state="behind"}': "3x60",
    'shoal_mirror_gaps_total{listener="source",kind="deleted"}': "0x60",
    "shoal_event_loop_lag_seconds_count": "0+240x60",
    f'{_BUCKET}{{le="0.05"}}': "0+240x60",
    f'{_BUCKET}{{le="1.0"}}': "0+240x60",
    f'{_BUCKET}{{le="+Inf"}}': "0+240x60",
    'shoal_certificate_expiry_timestamp_seconds{where="a",setting="b",file="c"}': f"{90 * _DAY}x60",
    "shoal_capture_rows_dropped_total": "0x60",
    'shoal_state_file_errors_total{listener="source"}': "0x60",
    'shoal_log_lines_total{level="error"}': "0x60",
}
