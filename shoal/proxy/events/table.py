"""The events: one row for each id. `tests/proxy/events` fails for a log call without a row, or a row without a call."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

__all__ = ["EVENTS", "Event"]

_DEBUG, _INFO, _WARNING, _ERROR, _CRITICAL = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)
_STATE = "Make room, or choose another `state-dir`, and restart Shoal."
_BUG = "This is an error in Shoal: report it with the line's `exception`."


@dataclass(frozen=True, slots=True)
class Event:
    """`fields`: names of `FIELDS`; a line leaves out those that have no value. `action`: empty if there is none."""

    id: str
    levels: tuple[int, ...]
    meaning: str
    fields: tuple[str, ...] = field(kw_only=True, default=())
    action: str = field(kw_only=True, default="")


def _row(id: str, *levels: int, has: str = "", meaning: str, do: str = "") -> Event:
    return Event(id, levels, meaning, fields=tuple(has.split()), action=do)


_COMMON = "listener seconds connections in_flight opened closed state_errors requests from_client to_client"
_SHALLOW = (
    "envelopes claim_checks wrapped_batches wrapped_records wrapped_bytes raw_batches opened_envelopes read_again "
    "unwrapped_batches unwrapped_records unwrapped_bytes produce_requests retries_suppressed partition_errors "
    "reconciled_envelopes mismatches"
)
_COALESCE = (
    "coalesced_taken coalesced_batches coalesced_requests coalesced_request_bytes coalesced_split_sets "
    "coalesced_errors coalesced_alone"
)
_LEGACY = (
    "legacy_fetches legacy_conversions legacy_source_bytes legacy_converted_bytes legacy_records legacy_seconds "
    "legacy_chunks legacy_padding_bytes legacy_dropped_headers legacy_asked_on legacy_resumed legacy_fetch_errors "
    "legacy_produces legacy_up_conversions legacy_up_source_bytes legacy_up_converted_bytes legacy_up_records "
    "legacy_up_seconds legacy_up_errors legacy_waits legacy_waited_seconds legacy_evictions"
)
_LAG = "lag_partitions lag_records lag_bytes lag_seconds lag_unknown gaps stopped_partitions"
_TRAFFIC = f"{_COMMON} {_SHALLOW} {_LAG} {_COALESCE} {_LEGACY}"

_PROCESS = (
    _row(
        "starting",
        _INFO,
        has="version pid configuration state_dir python trio",
        meaning="Shoal starts: the first line of each process.",
    ),
    _row("listening", _INFO, has="listener mode address pair", meaning="A listener accepts clients."),
    _row(
        "settings-doubtful",
        _WARNING,
        meaning="A setting works, but perhaps not as meant.",
        do="See the sentence; `shoal check` shows it as well.",
    ),
    _row(
        "advertised-not-reachable",
        _WARNING,
        has="listener address advertise",
        meaning="Clients get an address of another host, but the listener accepts only clients of this host.",
        do="Let it listen on an address that clients reach, or remove `advertise`.",
    ),
    _row("state-file-renamed", _INFO, has="file renamed_to", meaning="A state file of Shoal 0.1 has its new name."),
    _row(
        "could-not-run",
        _ERROR,
        has="setting error",
        meaning="Shoal ends with exit code 2: a setting cannot be used. The last line is the same as text.",
        do="Correct the setting.",
    ),
    _row("ended-by-error", _CRITICAL, meaning="Shoal ends with exit code 3.", do=_BUG),
    _row(
        "output-failed",
        _ERROR,
        has="error",
        meaning="Standard output cannot be written; the proxy goes on.",
        do="Make room.",
    ),
    _row(
        "log-lines-missing",
        _WARNING,
        has="lines",
        meaning="Lines before this one could not be written, and are lost.",
        do="Make room on the disk of the log.",
    ),
    _row(
        "flow",
        _INFO,
        has=_TRAFFIC,
        meaning="Traffic of a listener since its last such line (`log.report-every`); none without traffic. Fields "
        "`coalesced_*` and `legacy_*` are there if the listener has `coalesce` or `legacy`; `lag_*`, `gaps` and "
        '`stopped_partitions` if it has `mode = "wrap"`.',
    ),
    _row("total", _INFO, has=_TRAFFIC, meaning="The same since the start, when Shoal ends."),
    _row(
        "waiting-for-clients",
        _INFO,
        has="clients most_seconds",
        meaning='Shoal ends when its clients have gone (`limits.drain = "until-clients-gone"`).',
    ),
    _row("clients-gone", _INFO, has="seconds", meaning="The clients have gone: Shoal drains."),
    _row(
        "clients-stay",
        _WARNING,
        has="clients seconds",
        meaning="Clients were still there after `limits.drain-wait-seconds`: Shoal drains.",
        do="End the clients first, or raise the limit.",
    ),
    _row("draining", _INFO, has="signal seconds", meaning="Shoal ends: requests in flight get their answers."),
    _row(
        "state-dir-not-locked",
        _WARNING,
        has="directory error",
        meaning="The file system of the state directory has no locks: a second Shoal in it would not be noticed.",
        do="Choose another `state-dir`, and give each Shoal one of its own.",
    ),
    _row(
        "takeover-impossible",
        _WARNING,
        has="file error",
        meaning="Shoal runs, and no other one can take over from it (`--takeover`).",
        do="Choose a `state-dir` in which a Unix socket can be made; until then restart Shoal to replace it.",
    ),
    _row(
        "nothing-to-take-over", _INFO, has="directory", meaning="`--takeover` where no Shoal runs: an ordinary start."
    ),
    _row("takeover-asked", _INFO, has="pid version", meaning="Another Shoal asks for the ports (`--takeover`)."),
    _row(
        "takeover-failed",
        _WARNING,
        has="pid error",
        meaning="The Shoal that asked for the ports cannot use them: this one goes on as before.",
        do="See the log of the other one.",
    ),
    _row("taken-over", _INFO, has="pid", meaning="Another Shoal has the ports: this one drains."),
    _row("took-over", _INFO, has="pid", meaning="This Shoal has the ports of the one before, which drains."),
    _row(
        "takeover-waits",
        _WARNING,
        has="pid",
        meaning="The Shoal before still has the files of its mirrors: mirrors' connections wait.",
        do="It ends after `limits.drain-seconds`; if it does not, end it.",
    ),
    _row("predecessor-ended", _INFO, has="pid", meaning="The Shoal from which this one took over has ended."),
    _row("ending-at-once", _INFO, has="signal", meaning="A second signal: connections are closed at once."),
    _row("admin-listening", _INFO, has="address", meaning="The admin listener is open."),
    _row(
        "admin-accept-failed",
        _ERROR,
        has="error",
        meaning="Clients of the admin listener wait.",
        do="Raise the limit of open files.",
    ),
    _row("admin-error", _ERROR, has="page", meaning="An admin page failed; traffic is not affected.", do=_BUG),
    _row(
        "files-reread",
        _INFO,
        has="loaded unchanged refused",
        meaning="SIGHUP: certificates, keys, users and secrets were read again.",
        do="If `refused` is not 0: see the errors before this line.",
    ),
    _row(
        "reloaded",
        _INFO,
        has="applied new_connections reopened needs_restart untouched",
        meaning="Another configuration is in force.",
        do="If `needs_restart` is not empty: restart Shoal when it suits you.",
    ),
    _row(
        "reload-refused",
        _ERROR,
        has="findings",
        meaning="The new configuration has errors, or a port or file of it cannot be used; the former one is in force.",
        do="Correct what `findings` names (`shoal check -c FILE` shows most of it), and reload again.",
    ),
    _row(
        "control-failed",
        _WARNING,
        has="file error",
        meaning="`shoal reload` does not reach this process; SIGHUP does.",
        do="Make the state directory writable, and restart Shoal when it suits you.",
    ),
    _row(
        "control-accept-failed",
        _ERROR,
        has="error",
        meaning="`shoal reload` and a Shoal that is to take over wait, because there are too many open files.",
        do="Raise the limit of open files.",
    ),
    _row("reload-ignored", _INFO, meaning="There is no file with settings (`shoal mirror`), or Shoal is ending."),
    _row(
        "reloaded-listener-failed",
        _ERROR,
        has="findings",
        meaning="A listener of a reload has an error that would have ended Shoal at its start: it wraps nothing.",
        do="Correct what `findings` names, and reload again.",
    ),
    _row(
        "loop-blocked",
        _ERROR,
        has="seconds",
        meaning="The event loop does not run: no client is served. `stack` lines follow.",
        do="Look at the stacks: a slow disk, or an error in Shoal.",
    ),
    _row("stack", _ERROR, has="task tasks at left_out", meaning="Where a task waits, or what runs."),
    _row("loop-runs-again", _WARNING, has="seconds", meaning="The event loop runs again."),
    _row(
        "loop-blocked-exit",
        _CRITICAL,
        has="seconds exit_code",
        meaning="The event loop is blocked for `limits.stall-exit`: Shoal exits.",
        do="A supervisor must restart it.",
    ),
    _row(
        "no-fast-lane",
        _WARNING,
        has="trio",
        meaning="Shoal was not tried with this release of trio: small requests need more CPU. Nothing else differs.",
        do="Install the release that the line names.",
    ),
)
_CLUSTERS = (
    _row(
        "cluster-unreachable",
        _WARNING,
        has="cluster error left_out",
        meaning="No bootstrap broker can be reached.",
        do="Check `bootstrap`, and the network.",
    ),
    _row(
        "brokers-not-learned",
        _INFO,
        has="cluster error left_out",
        meaning="The brokers are not known before the first client asks for them: the cluster demands a login.",
    ),
    _row("broker-port", _INFO, has="listener node_id broker port", meaning="A broker has its port, or its name."),
    _row(
        "broker-port-taken",
        _WARNING,
        has="listener node_id port",
        meaning="Another process has the port that this broker had: it gets another one.",
        do="Choose `ports` that only Shoal uses.",
    ),
    _row(
        "broker-has-no-port",
        _ERROR,
        has="listener node_id broker left_out",
        meaning="No port is left for this broker: its clients cannot be served.",
        do="Set a larger range of `ports`, or add the broker to it.",
    ),
    _row(
        "broker-closes-early",
        _WARNING,
        has="cluster node_id broker peer answers",
        meaning="A broker closes connections instead of serving them.",
        do="See the sentence: a TLS or SASL port, or a limit of connections at the broker.",
    ),
    _row(
        "cluster-id-changed",
        _ERROR,
        has="cluster cluster_id former_id left_out",
        meaning="The brokers belong to another cluster than before.",
        do="Check whether the bootstrap addresses lead to two clusters.",
    ),
    _row("topic-recreated", _INFO, has="cluster topic left_out", meaning="A topic was deleted and created again."),
    _row("ports-file-loaded", _INFO, has="listener file", meaning="Brokers keep the ports of the last run."),
    _row(
        "ports-file-discarded",
        _WARNING,
        has="listener file kept_as error",
        meaning="The ports of the last run cannot be used: brokers may get other ports.",
    ),
    _row(
        "ports-file-not-written",
        _ERROR,
        has="listener file error left_out",
        meaning="Brokers may get other ports after a restart.",
        do=_STATE,
    ),
    _row(
        "sets-proof",
        _INFO,
        _WARNING,
        has="cluster node_id result detail",
        meaning="Whether a broker takes several batches per partition and request.",
        do="For `unsafe`, see [several batches](multi-batch.md).",
    ),
    _row(
        "sets-withdrawn",
        _WARNING,
        has="cluster node_id detail",
        meaning="A broker gets one batch per partition and request until it is proven again.",
    ),
)
_WORKERS = (
    _row("worker-serves", _INFO, has="worker pid", meaning="A worker (`workers`) accepts clients."),
    _row(
        "worker-ended",
        _ERROR,
        has="worker pid ended_by connections seconds",
        meaning="A worker has ended, and its connections with it; another process follows after `seconds`.",
        do="See the lines of this worker before; SIGKILL may be the kernel's, for want of memory.",
    ),
    _row(
        "worker-failed",
        _ERROR,
        has="worker findings",
        meaning="A worker cannot be started, or, started again, cannot use the settings; it is tried again.",
        do="Correct what the findings name.",
    ),
    _row(
        "worker-silent",
        _ERROR,
        has="worker pid",
        meaning="A worker does not use the settings in force, or not in time: it is ended, and another one begins.",
    ),
    _row(
        "supervisor-lost",
        _ERROR,
        meaning="The process that has the workers has ended: this worker drains.",
        do="Start Shoal again; it waits for nothing.",
    ),
    _row(
        "broker-port-missing",
        _WARNING,
        has="listener node_id port",
        meaning="A worker cannot accept at the port of a broker; the other workers do.",
        do="Raise the limit of open files.",
    ),
)
_CONNECTIONS = (
    _row(
        "connection-ended",
        _DEBUG,
        _WARNING,
        has="listener peer client_id principal cluster node_id cause detail left_out",
        meaning="A connection has ended; a warning if an operator should know.",
        do="See [troubleshooting](troubleshooting.md) for the sentence.",
    ),
    _row(
        "client-not-served",
        _DEBUG,
        _WARNING,
        has="listener host cause detail left_out",
        meaning="A client was refused before its first request: TLS, PROXY protocol, or the time for it.",
        do="See [troubleshooting](troubleshooting.md) for the sentence.",
    ),
    _row(
        "connections-refused",
        _WARNING,
        has="listener cause connections peer setting",
        meaning="A limit or rule refused connections, at most one line per cause and interval.",
        do="Raise the setting if these clients are wanted.",
    ),
    _row(
        "address-dropped",
        _WARNING,
        has="listener host",
        meaning="The kernel drops some connection attempts of an address that floods.",
    ),
    _row(
        "syn-filter-unsupported",
        _INFO,
        has="listener error",
        meaning="The kernel cannot drop connection attempts: Shoal refuses each of them itself.",
    ),
    _row(
        "accept-failed",
        _ERROR,
        has="listener error left_out",
        meaning="Clients wait, because there are too many open files.",
        do="Raise the limit of open files.",
    ),
    _row(
        "connection-unexpected-error",
        _ERROR,
        has="listener client_id",
        meaning="An error in Shoal has ended a connection; the others are not affected.",
        do=_BUG,
    ),
    _row(
        "client-unexpected-error",
        _ERROR,
        has="listener host",
        meaning="An error in Shoal has ended a new connection; the others are not affected.",
        do=_BUG,
    ),
    _row("wait-without-reason", _ERROR, meaning="A connection waits for what is there.", do=_BUG),
)
_SECURITY = (
    _row(
        "login-refused",
        _WARNING,
        has="listener peer client_id mechanism user cause detail left_out",
        meaning="A client did not log in.",
        do="Check its user and password, or its token.",
    ),
    _row(
        "login-unencrypted",
        _WARNING,
        has="listener",
        meaning="Passwords or tokens can be read on the network.",
        do="Add `[listener.tls]`.",
    ),
    _row(
        "users-cut-off",
        _INFO,
        has="listener connections users",
        meaning="Connections of users that are removed or have a new password were ended.",
    ),
    _row(
        "broker-login-refused",
        _ERROR,
        has="listener mechanism left_out",
        meaning="A client wants to log in at the broker, but Shoal logs in there.",
        do="Let the client connect without SASL, or set `[listener.sasl]`.",
    ),
    _row(
        "delegation-token-refused",
        _ERROR,
        has="listener api left_out",
        meaning="A client asks for a delegation token, which would act as Shoal's principal.",
        do="Give such clients a listener where they log in at the brokers.",
    ),
    _row("file-reloaded", _INFO, has="setting file entries", meaning="A changed file is in use."),
    _row(
        "file-refused",
        _ERROR,
        has="setting file error",
        meaning="A changed file cannot be used: what it had before stays in use.",
        do="Correct the file.",
    ),
    _row("keys-loaded", _INFO, has="listener endpoint keys", meaning="The keys of the tokens' issuer are there."),
    _row(
        "keys-refused",
        _ERROR,
        has="listener endpoint error keys",
        meaning="The keys of the tokens' issuer cannot be read; with `keys` 0 no client can log in with OAUTHBEARER.",
        do="Check the endpoint.",
    ),
    _row("tls-files-loaded", _INFO, has="setting certificates", meaning="New connections use changed TLS files."),
    _row(
        "tls-files-refused",
        _ERROR,
        has="setting error",
        meaning="Changed TLS files cannot be used: the former ones stay in use.",
        do="Correct the files.",
    ),
    _row("tls-files-doubtful", _WARNING, has="setting", meaning="TLS files work, but perhaps not for all clients."),
    _row(
        "certificate-expiry",
        _WARNING,
        _ERROR,
        has="setting file days",
        meaning="A certificate expires soon (30, 7, 1 days), or has expired (every day).",
        do="Renew it; the new file is used without a restart.",
    ),
    _row(
        "token-not-renewed",
        _WARNING,
        has="setting error",
        meaning="Shoal gets no new token; the old one is used while it is valid.",
        do="Check the issuer, or the command.",
    ),
    _row(
        "broker-credentials-refused",
        _ERROR,
        has="setting error",
        meaning="Files of the credentials for brokers cannot be used.",
        do="Correct the files.",
    ),
    _row("broker-login-renewed", _DEBUG, has="setting broker", meaning="Shoal has logged in again at a broker."),
)
_SHALLOW_EVENTS = (
    _row(
        "flow-proven",
        _INFO,
        has="client_id peer topic",
        meaning="The mirror copies into the target of this pair: its topics are wrapped from now on.",
    ),
    _row(
        "flow-stopped",
        _ERROR,
        has="client_id peer topic",
        meaning="Envelopes did not arrive: nothing is wrapped for this mirror.",
        do="See [troubleshooting](troubleshooting.md).",
    ),
    _row(
        "flow-strayed",
        _ERROR,
        has="client_id peer topic",
        meaning="A record did not come back, or another mirror brought it.",
        do="See [troubleshooting](troubleshooting.md).",
    ),
    _row("flow-paused", _WARNING, has="client_id peer topic", meaning="A connection has ended: evidence is sought."),
    _row(
        "flow-lost",
        _WARNING,
        has="client_id peer topic",
        meaning="A connection has ended before the first envelopes arrived; tried again.",
    ),
    _row(
        "flow-without-evidence",
        _WARNING,
        has="client_id peer topic",
        meaning="The mirror has fetched, and nothing came back: nothing is wrapped.",
        do="Check that the mirror's producer uses the other listener of the pair.",
    ),
    _row(
        "same-offsets-stopped",
        _ERROR,
        has="listener topic partition detail",
        meaning="A partition of a mirror topic waits; the others go on. It is tried again by itself.",
        do="See [same offsets](same-offsets.md).",
    ),
    _row(
        "same-offsets-resumed",
        _INFO,
        has="listener topic partition",
        meaning="A partition of a mirror topic that waited is mirrored again.",
    ),
    _row(
        "same-offsets-ordinary",
        _WARNING,
        has="listener topic copy",
        meaning="A topic of `same-offsets` is mirrored as an ordinary one, with other offsets: no broker of its copy "
        "has the agent for it (`without-agent`).",
        do="Nothing, if it is meant. Else see [same offsets](same-offsets.md).",
    ),
    _row(
        "same-offsets-undecided",
        _WARNING,
        has="listener topic detail",
        meaning="A topic waits, because it is not known whether its copy is a mirror topic (`without-agent`).",
        do="Mend what `detail` says.",
    ),
    _row(
        "same-offsets-not-kept",
        _WARNING,
        has="listener file error",
        meaning="It could not be written down that a topic keeps its offsets. With `without-agent` it waits.",
        do=_STATE,
    ),
    _row(
        "same-offsets-expired",
        _WARNING,
        has="listener topic partition from_offset to_offset",
        meaning="The source has deleted records that the copy does not have.",
        do="Raise the source's retention, or find out why the mirror is late.",
    ),
    _row(
        "log-start-not-followed",
        _WARNING,
        has="listener topic partition error_code left_out",
        meaning="The target does not delete what the source of a mirror topic has deleted.",
        do="Give the mirror's producer DELETE on the topic, or turn `follow-log-start` off. Topics that are only "
        "compacted refuse it.",
    ),
    _row(
        "mirror-gap",
        _WARNING,
        has="listener cluster mirror topic partition kind from_offset to_offset",
        meaning="A mirror passes over source records: they will not be at the target.",
        do="See [gaps](mirroring.md#gaps).",
    ),
    _row(
        "mirror-gap-acknowledged",
        _INFO,
        has="listener name",
        meaning="An operator has acknowledged a gap: the mirror gets the records after it.",
    ),
    _row(
        "gaps-file-discarded",
        _WARNING,
        has="listener file kept_as error",
        meaning="The file of gaps cannot be used: partitions that were stopped at a gap go on.",
    ),
    _row(
        "gaps-file-not-written",
        _ERROR,
        has="listener file error",
        meaning="The file of gaps cannot be written: partitions that are stopped go on after a restart of Shoal.",
        do=_STATE,
    ),
    _row(
        "mirrored-file-discarded",
        _WARNING,
        has="listener file kept_as error",
        meaning="What mirrors had copied is not known: gaps before now are not seen.",
    ),
    _row(
        "mirrored-file-not-written",
        _ERROR,
        has="listener file error",
        meaning="Gaps during a restart of Shoal are not seen.",
        do=_STATE,
    ),
    _row(
        "batches-not-kept",
        _INFO,
        has="listener topic error",
        meaning="Shoal cannot read the topic from the source by itself: its batches pass through the mirror "
        "(`claim-check-bytes` has no effect for it). Tried again every 30 s.",
        do="Give Shoal a login at the source, and READ on the topic; or nothing.",
    ),
    _row(
        "batches-read-again",
        _INFO,
        has="listener bytes",
        meaning="Batches of claim checks were not here any more, and were read from the source again: normal after a "
        "restart of Shoal.",
    ),
    _row(
        "offsets-file-new",
        _INFO,
        has="listener file",
        meaning="`shoal translate` knows what is appended from now on.",
    ),
    _row(
        "offsets-file-loaded",
        _INFO,
        has="listener file ranges",
        meaning="What Shoal appended before is known to `shoal translate`.",
    ),
    _row(
        "offsets-file-discarded",
        _WARNING,
        has="listener file kept_as error",
        meaning="`shoal translate` knows only what is appended from now on.",
    ),
    _row(
        "offsets-file-not-written",
        _ERROR,
        has="listener file error",
        meaning="`shoal translate` does not know what is appended. Shoal tries again every 30 s.",
        do="Make room, or choose another `state-dir`.",
    ),
    _row(
        "mirror-gap-ahead",
        _WARNING,
        has="listener cluster mirror topic partition kind from_offset to_offset",
        meaning="A mirror does not run, and records that it has not mirrored are gone from the source.",
        do="Start the mirror, or raise the retention of the topic. `mirror-gap` follows when the mirror continues.",
    ),
    _row(
        "mirror-lag-unknown",
        _WARNING,
        has="cluster error",
        meaning="The source does not tell Shoal where its partitions end, so the lag of stopped mirrors is unknown.",
        do="See the error. Shoal's user needs `DESCRIBE` on the topics.",
    ),
    _row(
        "mirror-partitions-left-out",
        _WARNING,
        has="listener partitions",
        meaning="Mirrors read more partitions than Shoal follows: the others have neither lag nor gaps.",
        do="Give mirrors listeners of their own.",
    ),
    _row(
        "client-is-no-mirror",
        _INFO,
        has="client_id pattern",
        meaning="A consumer of a wrapping listener is not a mirror: it gets records unchanged.",
        do="If it is a mirror, correct `mirror-clients`.",
    ),
    _row(
        "fetch-session-sent-back",
        _INFO,
        has="client_id peer left_out",
        meaning="A consumer uses the fetch session of another connection: it begins a new one.",
    ),
    _row(
        "fetch-answer-too-large",
        _ERROR,
        has="listener bytes left_out",
        meaning="A fetch answer passes raw.",
        do="Raise `limits.held-response-bytes`, or lower the consumer's `fetch.max.bytes`.",
    ),
    _row(
        "partition-refused",
        _WARNING,
        has="cluster topic partition error_code peer client_id detail left_out",
        meaning="A mirror's produce request got an error for a partition.",
        do="The mirror retries or fails, as for any producer; see the code.",
    ),
    _row(
        "envelope-mismatch",
        _WARNING,
        has="cluster topic partition mismatch detail left_out",
        meaning="What was appended is not what the source has.",
        do="See [troubleshooting](troubleshooting.md).",
    ),
    _row(
        "ended-in-doubt",
        _WARNING,
        has="listener partitions",
        meaning="Shoal has ended with batches in flight that have no producer id: they may be appended twice.",
    ),
    _row(
        "no-producer-id",
        _INFO,
        has="listener detail",
        meaning="Shoal's own producer id is not used for some clients: one request in flight per partition.",
    ),
    _row(
        "producer-slots-used-up",
        _WARNING,
        has="listener slots",
        meaning="The producer ids of idempotent mirrors that were unused for the longest time are forgotten.",
        do="Raise `producer-slots`.",
    ),
    _row("producers-file-loaded", _INFO, has="listener file", meaning="The mirrors' producer ids of the last run."),
    _row("producers-file-new", _INFO, has="listener file", meaning="A new file of the mirrors' producer ids."),
    _row(
        "producers-file-discarded",
        _WARNING,
        has="listener file kept_as error",
        meaning="The file cannot be used: exactly-once mirrors abort their transactions once.",
    ),
    _row(
        "producers-file-not-written",
        _ERROR,
        has="listener file error",
        meaning="A restart of Shoal makes exactly-once mirrors abort their transactions.",
        do=_STATE,
    ),
    _row(
        "state-file-not-written",
        _WARNING,
        has="file error",
        meaning="Batches in doubt may be appended twice after a restart.",
        do=_STATE,
    ),
    _row(
        "state-file-not-read",
        _WARNING,
        has="file error",
        meaning="Batches in doubt may be appended twice.",
    ),
)
_PLAIN = (
    _row(
        "clients-not-joined",
        _ERROR,
        has="listener left_out",
        meaning="Clients log in at the broker, so their produce requests are not joined.",
        do="Let them log in at Shoal (`[listener.sasl]`).",
    ),
    _row(
        "joined-request-failed",
        _WARNING,
        has="listener node_id connections cause detail left_out",
        meaning="The connection of a joined request has failed: the clients in it are disconnected, and retry.",
    ),
    _row("lane-unexpected-error", _ERROR, meaning="An error in Shoal has ended the clients of a lane.", do=_BUG),
    _row(
        "legacy-client",
        _INFO,
        has="listener client_id host like versions",
        meaning="A client uses versions that brokers of Kafka 4 do not support.",
        do="Upgrade it.",
    ),
    _row(
        "legacy-messages-refused",
        _ERROR,
        has="listener client_id topic partition error partitions left_out",
        meaning="An old producer sent messages that cannot be converted: it gets an error.",
    ),
    _row(
        "legacy-records-not-sent",
        _ERROR,
        has="listener topic partition client_id peer offset failure detail left_out",
        meaning="Records cannot be converted for an old consumer: it gets an error.",
        do="See [legacy clients](legacy.md).",
    ),
    _row(
        "legacy-coordinator-failed",
        _ERROR,
        has="listener group broker error left_out",
        meaning="The coordinator of an old consumer's group cannot be asked: the client retries.",
    ),
)
_CAPTURE = (
    _row("index-flow", _INFO, has="written dropped bytes unread", meaning="Rows of the index since the last line."),
    _row("index-total", _INFO, has="written dropped bytes unread", meaning="The same since the start."),
    _row(
        "index-not-written",
        _ERROR,
        has="directory error",
        meaning="The index cannot be written: rows are dropped until it can.",
        do="Make room.",
    ),
    _row("index-written-again", _INFO, has="directory dropped", meaning="The index is written again."),
    _row("index-stopped", _ERROR, meaning="An error in Shoal has ended the index; traffic is not affected.", do=_BUG),
    _row("index-lost-connection", _ERROR, meaning="The index no longer sees one connection.", do=_BUG),
    _row("raw-capture-on", _WARNING, has="directory", meaning="Frames are written, with the records in them."),
    _row("raw-capture-flow", _INFO, has="written bytes lost", meaning="Frames captured since the last line."),
    _row("raw-capture-total", _INFO, has="written bytes lost", meaning="The same since the start."),
    _row("raw-capture-ended", _INFO, has="frames bytes lost", meaning="The raw capture has ended."),
    _row(
        "raw-capture-not-written",
        _ERROR,
        has="directory error",
        meaning="Frames cannot be written, and are lost until they can.",
        do="Make room.",
    ),
    _row("raw-capture-written-again", _INFO, has="directory lost", meaning="Frames are written again."),
    _row("raw-capture-unfinished", _ERROR, has="seconds", meaning="The disk did not take the rest in time."),
    _row("raw-capture-stopped", _ERROR, meaning="An error in Shoal has ended the raw capture.", do=_BUG),
)

SECTIONS: dict[str, tuple[Event, ...]] = {
    "Process": _PROCESS,
    "Workers": _WORKERS,
    "Clusters and brokers": _CLUSTERS,
    "Connections": _CONNECTIONS,
    "Security": _SECURITY,
    "Shallow mirroring": _SHALLOW_EVENTS,
    "Coalescing and legacy clients": _PLAIN,
    "Captures": _CAPTURE,
}
EVENTS: dict[str, Event] = {event.id: event for section in SECTIONS.values() for event in section}
