"""The alerts: what fires, after how long, what it means, and the way out.

Every expression keeps `job` and `instance`. A counter that may matter at its first step is exposed as 0 from the start,
so `increase` sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALERTS", "GUIDE", "Alert"]

GUIDE: Final = "docs/monitoring.md"
_AN_ERROR_IN_SHOAL: Final = "report it with the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """`summary` and `meaning` are templates of Prometheus; `remedy` is plain text, and Markdown in the guide."""

    name: str
    severity: Literal["critical", "warning", "info"]
    expression: str
    lasts: str = ""  # "": it fires at once
    summary: str
    meaning: str
    remedy: str
    see: Mapping[str, str] = field(default_factory=dict)  # of the guide: text -> page#heading

    @property
    def runbook(self) -> str:
        return f"{GUIDE}#{self.name.lower()}"


ALERTS: Final = (
    Alert(
        name="ShoalDown",
        severity="critical",
        expression="up == 0 and on (job, instance) last_over_time(shoal_build_info[1h])",
        lasts="2m",
        summary="Shoal at {{ $labels.instance }} does not answer",
        meaning="Prometheus got metrics from {{ $labels.instance }} within the last hour, and gets none now: the "
        "process has ended, its event loop is blocked, or the network is cut.",
        remedy="Read the end of its log, and start it again if it does not run. Exit code 4 is a blocked event loop, "
        f"3 an error in Shoal: {_AN_ERROR_IN_SHOAL}.",
        see={"exit codes": "troubleshooting.md#exit-codes"},
    ),
    Alert(
        name="ShoalRestarts",
        severity="warning",
        expression="changes(process_start_time_seconds[30m]) > 2 and on (job, instance) shoal_build_info",
        summary="Shoal at {{ $labels.instance }} has restarted {{ $value }} times within 30 minutes",
        meaning="A restart breaks every connection, and mirrors are proven anew.",
        remedy="Read the last lines of the log before each start: a setting that cannot be used (exit code 2), the "
        "limit of memory, or the liveness probe.",
        see={"exit codes": "troubleshooting.md#exit-codes", "memory": "sizing.md"},
    ),
    Alert(
        name="ShoalClusterUnreachable",
        severity="critical",
        expression="shoal_cluster_reachable == 0",
        lasts="2m",
        summary="Shoal at {{ $labels.instance }} cannot connect to the cluster {{ $labels.cluster }}",
        meaning="No attempt to connect to a broker of {{ $labels.cluster }} has succeeded for 2 minutes: clients of "
        "its listeners are cut off.",
        remedy="/readyz has the reason. Check the brokers, `bootstrap` and the addresses that the brokers advertise, "
        "the network between them and Shoal, and certificates and passwords of `[cluster.tls]` and `[cluster.sasl]`.",
        see={"a broker is dead": "troubleshooting.md#a-broker-is-dead"},
    ),
    Alert(
        name="ShoalBrokerUnreachable",
        severity="warning",
        expression='increase(shoal_connections_closed_total{cause=~"upstream_unreachable|upstream_login"}[5m]) > 0',
        lasts="5m",
        summary="Clients of Shoal's listener {{ $labels.listener }} cannot be connected to a broker",
        meaning="For 5 minutes, connections of {{ $labels.listener }} at {{ $labels.instance }} have ended because no "
        "connection to their broker could be made ({{ $labels.cause }}). Other brokers may work.",
        remedy="The log names the broker and the error (`connection-ended`). Check that broker, and that Shoal reaches "
        "the address that it advertises.",
        see={"a broker is dead": "troubleshooting.md#a-broker-is-dead"},
    ),
    Alert(
        name="ShoalRefusesClients",
        severity="warning",
        expression="sum by (job, instance, listener, cause) (increase(shoal_connections_closed_total"
        '{cause=~"no_port|no_credentials|refused|address_full|internal"}[5m])) > 0',
        lasts="10m",
        summary="Shoal's listener {{ $labels.listener }} refuses clients: {{ $labels.cause }}",
        meaning="For 10 minutes, connections of {{ $labels.listener }} at {{ $labels.instance }} have been refused by "
        "a limit or a setting of Shoal, or by an error in it: {{ $labels.cause }}.",
        remedy="`no_port`: more `ports`. `no_credentials`: the principal lacks a row. `refused`, `address_full`: raise "
        f"the limit, or end the clients (`shoal clients` lists them). `internal`: {_AN_ERROR_IN_SHOAL}.",
        see={"refused connections": "troubleshooting.md#shoal-refuses-connections"},
    ),
    Alert(
        name="ShoalNotWrapping",
        severity="warning",
        expression='sum by (job, instance, listener) (rate(shoal_raw_batches_total{reason!~"control|deep_topic|'
        'internal_topic|small"}[5m]))\n> sum by (job, instance, listener) (rate(shoal_wrapped_batches_total[5m]))',
        lasts="15m",
        summary="Shoal's listener {{ $labels.listener }} does not wrap most of what it mirrors",
        meaning="For 15 minutes, more batches have gone to mirrors of {{ $labels.listener }} at {{ $labels.instance }} "
        "as they are than in envelopes: the mirror is correct, and costs as much as without Shoal. Batches that are "
        "raw by a setting do not count.",
        remedy="`shoal status` says for each topic why. Most often the mirror's producer bypasses Shoal, or the topics "
        "have LogAppendTime or compacted batches: list these in `deep-topics`.",
        see={"nothing is wrapped": "troubleshooting.md#nothing-is-wrapped"},
    ),
    Alert(
        name="ShoalWrappingStopped",
        severity="warning",
        expression="sum by (job, instance, listener, state) "
        '(shoal_interlock_topics{state=~"ambiguous|failed|stopped"}) > 0',
        lasts="5m",
        summary="Shoal's interlock has stopped wrapping for {{ $value }} topics of {{ $labels.listener }}",
        meaning="Topics of {{ $labels.listener }} at {{ $labels.instance }} are in the state {{ $labels.state }}: "
        "envelopes did not arrive (stopped), what came back proves nothing (failed), or two consumers have one name "
        "(ambiguous). They are mirrored as they are.",
        remedy="`shoal status` names the topics and the reason. Shoal tries again by itself after 1, 5 and 30 minutes.",
        see={"wrapping stopped": "troubleshooting.md#wrapping-stopped"},
    ),
    Alert(
        name="ShoalMismatch",
        severity="critical",
        expression="increase(shoal_mismatches_total[30m]) > 0",
        summary="Shoal's listener {{ $labels.listener }}: what was appended does not reconcile ({{ $labels.kind }})",
        meaning="An envelope that came back at {{ $labels.listener }} at {{ $labels.instance }} and what the target "
        "appended for it differ. The copy may lack records, or have foreign ones.",
        remedy="The log has topic and offsets (`envelope-mismatch`). Compare these records at source and target before "
        "consumers rely on them. `between`: another producer writes to the mirrored topic.",
        see={"how it is produced": "mirroring.md#how-it-is-produced"},
    ),
    Alert(
        name="ShoalMirrorLag",
        severity="warning",
        expression="max by (job, instance, listener) (shoal_mirror_lag_seconds) > 300",
        lasts="5m",
        summary="A mirror of {{ $labels.listener }} is {{ $value | humanizeDuration }} behind",
        meaning="The oldest record that is not mirrored has been in the source of {{ $labels.listener }} "
        "({{ $labels.instance }}) for {{ $value | humanizeDuration }}.",
        remedy="Is the mirror running? If it is, compare CPU of Shoal, mirror and brokers with one core each; "
        "`shoal top` shows the partitions. If all partitions are raw, see ShoalNotWrapping.",
        see={"lag": "mirroring.md#lag", "it is slow": "troubleshooting.md#it-is-slow"},
    ),
    Alert(
        name="ShoalMirrorLagUnknown",
        severity="warning",
        expression='shoal_mirror_partitions{state="unknown"} > 0',
        lasts="15m",
        summary="The lag of {{ $value }} partitions of {{ $labels.listener }} is unknown",
        meaning="The source of {{ $labels.listener }} ({{ $labels.instance }}) has not answered for 15 minutes when "
        "asked for the ends of these partitions: they may be behind.",
        remedy="The source's brokers must answer Shoal, and Shoal's user needs `DESCRIBE` on the topics. Without "
        "credentials of its own, Shoal knows no lag while the mirror is stopped.",
        see={"lag": "mirroring.md#lag"},
    ),
    Alert(
        name="ShoalMirrorGap",
        severity="critical",
        expression="increase(shoal_mirror_gaps_total[30m]) > 0",
        summary="A mirror of {{ $labels.listener }} has passed over records ({{ $labels.kind }})",
        meaning="Records of the source of {{ $labels.listener }} ({{ $labels.instance }}) are not in the copy, and the "
        "mirror has continued after them: {{ $labels.kind }}.",
        remedy="The log has the range (`mirror-gap`). Bring these records to the target by another way if they still "
        "exist, and raise the topic's retention, or shorten the mirror's downtime.",
        see={"gaps": "mirroring.md#gaps"},
    ),
    Alert(
        name="ShoalMirrorStopped",
        severity="critical",
        expression='shoal_mirror_partitions{state="stopped"} > 0',
        summary="{{ $value }} partitions of {{ $labels.listener }} are stopped at a gap",
        meaning="`on-gap = stop`: the mirror gets no records of these partitions of {{ $labels.listener }} "
        "({{ $labels.instance }}) until the gap is acknowledged.",
        remedy="`shoal gaps` lists them. Bring the missing records to the target if they are needed, then "
        "`shoal gaps --acknowledge TOPIC-PARTITION`.",
        see={"gaps": "mirroring.md#gaps"},
    ),
    Alert(
        name="ShoalLoopStalled",
        severity="critical",
        expression="increase(shoal_event_loop_lag_seconds_count[10m])\n"
        '- ignoring (le) increase(shoal_event_loop_lag_seconds_bucket{le="1.0"}[10m]) > 0.5',
        summary="The event loop of Shoal at {{ $labels.instance }} stood still for more than a second",
        meaning="Within the last 10 minutes, no client of {{ $labels.instance }} was served for more than a second.",
        remedy="The log has the stack if it took longer (`loop-blocked`). A slow disk under the log or the state "
        f"directory, a machine without memory or CPU; else {_AN_ERROR_IN_SHOAL}.",
        see={"the event loop is blocked": "troubleshooting.md#the-event-loop-is-blocked"},
    ),
    Alert(
        name="ShoalLoopSlow",
        severity="warning",
        expression="histogram_quantile(0.9, sum by (job, instance, le) "
        "(rate(shoal_event_loop_lag_seconds_bucket[5m]))) > 0.05",
        lasts="10m",
        summary="Shoal at {{ $labels.instance }} serves its clients {{ $value | humanizeDuration }} late",
        meaning="For 10 minutes, a tenth of the time the event loop of {{ $labels.instance }} has come that late to a "
        "client's bytes.",
        remedy="Shoal needs more CPU than it gets: a limit of CPU below one core per worker, a busy machine, or more "
        "traffic than its processes can forward. Raise `workers`, or spread listeners over several Shoals.",
        see={"sizing": "sizing.md", "it is slow": "troubleshooting.md#it-is-slow"},
    ),
    Alert(
        name="ShoalSaturated",
        severity="warning",
        expression="rate(process_cpu_seconds_total[5m]) / on (job, instance)\n"
        '(sum by (job, instance) (shoal_workers{state!="ended"}) > 0\n'
        "or sum by (job, instance) (shoal_build_info)) > 0.9",
        lasts="15m",
        summary="Shoal at {{ $labels.instance }} uses {{ $value | humanizePercentage }} of a core per process",
        meaning="One process can use one core for its clients: all processes of {{ $labels.instance }} are at their "
        "limit.",
        remedy="Raise `workers` if the machine has more cores, or spread clients over several Shoals. A listener of a "
        "mirror has one process: give it a Shoal of its own.",
        see={"sizing": "sizing.md"},
    ),
    Alert(
        name="ShoalWorkerEnded",
        severity="warning",
        expression="increase(shoal_worker_ends_total[30m]) > 0",
        summary="Workers of Shoal at {{ $labels.instance }} have ended: {{ $value | humanize }} within 30 minutes",
        meaning="A worker of {{ $labels.instance }} has ended by itself or was killed: its connections were cut, and "
        "its clients have connected again.",
        remedy="The log has the process, the cause and the number of connections (`worker-ended`). Killed with signal "
        "9 is most often the limit of memory; anything else is an error in Shoal: report it with the log.",
        see={"workers": "operations.md#workers"},
    ),
    Alert(
        name="ShoalCertificateExpiresSoon",
        severity="warning",
        expression="shoal_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
        summary="A certificate of Shoal at {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
        meaning="{{ $labels.file }} ({{ $labels.where }}, {{ $labels.setting }}) expires within 14 days.",
        remedy="Replace the file; Shoal reads it again by itself within seconds, or at once with SIGHUP.",
        see={"TLS and logins": "troubleshooting.md#tls-and-logins"},
    ),
    Alert(
        name="ShoalCertificateExpires",
        severity="critical",
        expression="shoal_certificate_expiry_timestamp_seconds - time() < 2 * 86400",
        summary="A certificate of Shoal at {{ $labels.instance }} expires within two days",
        meaning="{{ $labels.file }} ({{ $labels.where }}, {{ $labels.setting }}) expires in "
        "{{ $value | humanizeDuration }} (negative: it has expired). Connections fail then.",
        remedy="Replace the file; Shoal reads it again by itself within seconds, or at once with SIGHUP.",
        see={"TLS and logins": "troubleshooting.md#tls-and-logins"},
    ),
    Alert(
        name="ShoalCaptureDrops",
        severity="warning",
        expression="increase(shoal_capture_rows_dropped_total[10m]) > 0\n"
        "or increase(shoal_raw_capture_frames_lost_total[10m]) > 0",
        summary="The capture of Shoal at {{ $labels.instance }} is incomplete",
        meaning="Within the last 10 minutes, rows or frames could not be written ({{ $value | humanize }}); traffic "
        "was not delayed.",
        remedy="The disk of the capture's directory is full or too slow: make room, or filter what is captured.",
        see={"what it costs": "capture.md#what-it-costs"},
    ),
    Alert(
        name="ShoalStateNotWritten",
        severity="warning",
        expression="increase(shoal_state_file_errors_total[15m]) > 0",
        summary="Shoal at {{ $labels.instance }} cannot write to its state directory",
        meaning="After a restart, Shoal knows less of the mirrors of {{ $labels.listener }}, and brokers may get other "
        "ports.",
        remedy="Make room in the state directory, and check its owner. The log names the file.",
        see={"state": "mirroring.md#state"},
    ),
    Alert(
        name="ShoalErrors",
        severity="info",
        expression='sum by (job, instance) (increase(shoal_log_lines_total{level=~"error|critical"}[10m])) > 0',
        summary="Shoal at {{ $labels.instance }} has logged errors",
        meaning="Within the last 10 minutes, lines at ERROR or CRITICAL.",
        remedy="Read them: each has the way out, and in JSON logs an `event` with a row in the guide.",
        see={"events of the log": "events.md"},
    ),
)
