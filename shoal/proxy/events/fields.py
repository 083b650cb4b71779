"""The fields of events: one name has one kind and one meaning in all events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from shoal.protocol.coalesce.joinable import WhyAlone
from shoal.protocol.legacy.fetch.failure import FailureKind
from shoal.protocol.multibatch.proof import Result
from shoal.protocol.shallow.monitor.gap import GapKind
from shoal.protocol.shallow.unwrap.reconcile import Mismatch
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.proxy.config.settings import Mode
from shoal.proxy.statistics import CloseCause

__all__ = ["FIELDS", "Field", "Kind"]


class Kind(Enum):
    """What JSON has for it."""

    INT = "number"
    SECONDS = "seconds (with fractions)"
    BYTES = "bytes (number)"
    CODE = "code"
    COUNTS = "object: code to number"
    TEXT = "text"
    TEXTS = "texts"  # a list


@dataclass(frozen=True, slots=True)
class Field:
    """`codes`: the enum whose members, in lower case, are the codes of a `CODE`, or the keys of `COUNTS`."""

    kind: Kind
    meaning: str
    codes: type[StrEnum] | None = None

    def fits(self, value: object) -> bool:
        match self.kind:
            case Kind.INT | Kind.BYTES:
                return isinstance(value, int) and not isinstance(value, bool)
            case Kind.SECONDS:
                return isinstance(value, (int, float)) and not isinstance(value, bool)
            case Kind.CODE:
                return isinstance(value, str) and value in self._names()
            case Kind.COUNTS:
                return isinstance(value, dict) and value.keys() <= self._names()
            case Kind.TEXT:
                return isinstance(value, str)
            case Kind.TEXTS:
                return isinstance(value, list) and all(isinstance(item, str) for item in value)

    def _names(self) -> set[str]:
        return set() if self.codes is None else {member.name.lower() for member in self.codes}


class _Signal(StrEnum):
    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"


FIELDS: dict[str, Field] = {
    # where
    "listener": Field(Kind.TEXT, "name of the listener"),
    "cluster": Field(Kind.TEXT, "name of the cluster"),
    "node_id": Field(Kind.INT, "id of the broker; absent: a bootstrap broker"),
    "broker": Field(Kind.TEXT, "address of the broker, host:port"),
    "address": Field(Kind.TEXT, "address of the listener, host:port"),
    "port": Field(Kind.INT, "port at which clients reach the broker"),
    "mode": Field(Kind.CODE, "mode of the listener", Mode),
    "pair": Field(Kind.TEXT, "name of the listener at the other end of the mirror"),
    "advertise": Field(Kind.TEXT, "host that clients get as the brokers' address"),
    "setting": Field(Kind.TEXT, "the setting, as in the configuration file"),
    "pattern": Field(Kind.TEXT, "value of mirror-clients"),
    "endpoint": Field(Kind.TEXT, "URL or file of the issuer's keys"),
    # a reload
    "applied": Field(Kind.TEXTS, "settings that are in force, for open connections too"),
    "new_connections": Field(Kind.TEXTS, "settings that are in force for connections that begin from now on"),
    "reopened": Field(Kind.TEXTS, "settings whose listener is opened again: its former connections drain"),
    "needs_restart": Field(Kind.TEXTS, "settings that are not applied; a listener with one stays as a whole"),
    "untouched": Field(Kind.TEXTS, "clusters and listeners without a change"),
    "findings": Field(Kind.TEXTS, "what must change in the configuration, each with its setting"),
    # a client
    "peer": Field(Kind.TEXT, "address of the client, host:port, with what is known of it"),
    "host": Field(Kind.TEXT, "address of the client, without its port"),
    "client_id": Field(Kind.TEXT, "client id of the request; a client chooses it freely"),
    "principal": Field(Kind.TEXT, "principal of the client, if it has logged in"),
    "mechanism": Field(Kind.TEXT, "SASL mechanism that the client uses"),
    "user": Field(Kind.TEXT, "user name that the client states"),
    "api": Field(Kind.TEXT, "name of the request"),
    "like": Field(Kind.TEXT, "newest Kafka release that the requests of the client are compatible with"),
    "versions": Field(Kind.TEXT, "requests in versions that are translated"),
    "group": Field(Kind.TEXT, "consumer group"),
    # data
    "topic": Field(Kind.TEXT, "name of the topic, or its id if its name is not known; absent: all topics"),
    "partition": Field(Kind.INT, "number of the partition"),
    "mirror": Field(Kind.TEXT, "client id of the mirror's consumers, without the number of the task"),
    "kind": Field(Kind.CODE, "why a mirror passes over records", GapKind),
    "from_offset": Field(Kind.INT, "first offset of the range"),
    "to_offset": Field(Kind.INT, "offset after the range; the same as from_offset if nothing is lost"),
    "name": Field(Kind.TEXT, "topic-partition"),
    "offset": Field(Kind.INT, "offset from which on records cannot be sent"),
    "error_code": Field(Kind.INT, "Kafka's error code, as in the answer to the client"),
    "bytes": Field(Kind.BYTES, "size"),
    # why
    "cause": Field(Kind.CODE, "why a connection has ended", CloseCause),
    "copy": Field(Kind.TEXT, "name of the copy of `topic` in the target"),
    "detail": Field(Kind.TEXT, "more about it, for people"),
    "error": Field(Kind.TEXT, "the error, for people"),
    "mismatch": Field(Kind.CODE, "what does not reconcile", Mismatch),
    "failure": Field(Kind.CODE, "why records cannot be converted", FailureKind),
    "result": Field(Kind.CODE, "what the broker does with several batches per partition and request", Result),
    "signal": Field(Kind.CODE, "the signal", _Signal),
    # files
    "file": Field(Kind.TEXT, "path of the file"),
    "kept_as": Field(Kind.TEXT, "new name of the file, in its directory"),
    "renamed_to": Field(Kind.TEXT, "new name of the file, in its directory"),
    "directory": Field(Kind.TEXT, "path of the directory"),
    "certificates": Field(Kind.TEXT, "subjects and expiry of the certificates"),
    "days": Field(Kind.INT, "the certificate expires within this many days; 0: it has expired"),
    # identity
    "cluster_id": Field(Kind.TEXT, "the cluster's own id, from its metadata"),
    "former_id": Field(Kind.TEXT, "the id that the cluster had before"),
    "version": Field(Kind.TEXT, "version of Shoal"),
    "pid": Field(Kind.INT, "id of the process"),
    "worker": Field(Kind.INT, "number of a worker, from 1; lines that a worker writes have it, too"),
    "ended_by": Field(Kind.TEXT, "exit code or signal of a process, for people"),
    "configuration": Field(Kind.TEXT, "path of the configuration file; `flags`: there is none"),
    "state_dir": Field(Kind.TEXT, "path of the state directory; absent: no state is kept"),
    "python": Field(Kind.TEXT, "version of Python"),
    "trio": Field(Kind.TEXT, "version of trio"),
    # numbers of one line
    "seconds": Field(Kind.SECONDS, "duration"),
    "exit_code": Field(Kind.INT, "exit code of the process"),
    "answers": Field(Kind.INT, "answers of the broker on the last of the connections"),
    "partitions": Field(Kind.INT, "partitions that the line is about"),
    "users": Field(Kind.INT, "users"),
    "keys": Field(Kind.INT, "keys of the issuer in use"),
    "entries": Field(Kind.INT, "entries of the file"),
    "ranges": Field(Kind.INT, "ranges of source offsets whose target offsets are known"),
    "slots": Field(Kind.INT, "value of producer-slots"),
    "frames": Field(Kind.INT, "frames written"),
    "lines": Field(Kind.INT, "lines"),
    "loaded": Field(Kind.INT, "settings whose files are new"),
    "unchanged": Field(Kind.INT, "settings whose files are the same as before"),
    "refused": Field(Kind.INT, "settings whose new files cannot be used: an error before this line says why"),
    "left_out": Field(Kind.INT, "further lines of this kind that were left out since the last one"),
    "clients": Field(Kind.INT, "clients that are still there"),
    "most_seconds": Field(Kind.SECONDS, "time until Shoal drains anyway"),
    "page": Field(Kind.TEXT, "path of the admin page"),
    "task": Field(Kind.TEXT, "name of the task"),
    "tasks": Field(Kind.INT, "tasks with the same stack"),
    "at": Field(Kind.TEXT, "stack, the innermost frame last"),
    # traffic: since the last line (`flow`) or since the start (`total`)
    "connections": Field(Kind.INT, "connections"),
    "in_flight": Field(Kind.INT, "unanswered requests now"),
    "opened": Field(Kind.INT, "connections accepted"),
    "closed": Field(Kind.COUNTS, "connections ended, by cause, without ordinary causes", CloseCause),
    "state_errors": Field(Kind.INT, "files of the state directory that could not be written"),
    "requests": Field(Kind.INT, "requests of clients"),
    "from_client": Field(Kind.BYTES, "from clients"),
    "to_client": Field(Kind.BYTES, "to clients"),
    "envelopes": Field(Kind.INT, "envelopes sent to the mirror"),
    "claim_checks": Field(Kind.INT, "of these, envelopes whose batches stay with Shoal"),
    "wrapped_batches": Field(Kind.INT, "batches in them"),
    "wrapped_records": Field(Kind.INT, "records in them"),
    "wrapped_bytes": Field(Kind.BYTES, "batches in them, compressed"),
    "raw_batches": Field(Kind.COUNTS, "batches sent to the mirror unchanged, by reason", Reason),
    "opened_envelopes": Field(Kind.INT, "envelopes opened"),
    "read_again": Field(Kind.INT, "claim checks whose batches were read from the source again"),
    "unwrapped_batches": Field(Kind.INT, "batches of envelopes that the target has appended"),
    "unwrapped_records": Field(Kind.INT, "records in them"),
    "unwrapped_bytes": Field(Kind.BYTES, "their size, compressed"),
    "produce_requests": Field(Kind.INT, "requests to the target for them"),
    "retries_suppressed": Field(Kind.INT, "batches of retries that were already appended"),
    "partition_errors": Field(Kind.INT, "errors of the target for partitions"),
    "reconciled_envelopes": Field(Kind.INT, "envelopes appended with as many target offsets as records"),
    "mismatches": Field(Kind.COUNTS, "what does not reconcile, by kind", Mismatch),
    "lag_partitions": Field(Kind.INT, "partitions that a mirror is behind in, now"),
    "lag_records": Field(Kind.INT, "offsets that are not mirrored, now"),
    "lag_bytes": Field(Kind.BYTES, "the same, by the average size of the records before"),
    "lag_seconds": Field(Kind.SECONDS, "how long the oldest of them has been in the source's log"),
    "lag_unknown": Field(Kind.INT, "partitions whose lag is unknown"),
    "gaps": Field(Kind.COUNTS, "ranges of records that mirrors passed over, by kind", GapKind),
    "stopped_partitions": Field(Kind.INT, "partitions that are refused to a mirror until a gap is acknowledged"),
    "coalesced_taken": Field(Kind.INT, "produce requests that were joined"),
    "coalesced_batches": Field(Kind.INT, "batches in joined requests"),
    "coalesced_requests": Field(Kind.INT, "joined requests"),
    "coalesced_request_bytes": Field(Kind.BYTES, "joined requests"),
    "coalesced_split_sets": Field(Kind.INT, "sets refused as a whole, and retried batch by batch"),
    "coalesced_errors": Field(Kind.INT, "partitions answered with an error"),
    "coalesced_alone": Field(Kind.COUNTS, "produce requests that were not joined, by reason", WhyAlone),
    "legacy_fetches": Field(Kind.INT, "fetch requests answered"),
    "legacy_conversions": Field(Kind.INT, "record sets converted for old consumers"),
    "legacy_source_bytes": Field(Kind.BYTES, "these sets in the log"),
    "legacy_converted_bytes": Field(Kind.BYTES, "these sets as sent"),
    "legacy_records": Field(Kind.INT, "records in them"),
    "legacy_seconds": Field(Kind.SECONDS, "time of converting"),
    "legacy_chunks": Field(Kind.INT, "pieces in which they were sent"),
    "legacy_padding_bytes": Field(Kind.BYTES, "promised in an answer's size, and not needed"),
    "legacy_dropped_headers": Field(Kind.INT, "record headers that old formats do not have"),
    "legacy_asked_on": Field(Kind.INT, "answers of brokers without records for the client"),
    "legacy_resumed": Field(Kind.INT, "record sets fetched again within an answer"),
    "legacy_fetch_errors": Field(Kind.INT, "partitions whose records could not be sent"),
    "legacy_produces": Field(Kind.INT, "produce requests"),
    "legacy_up_conversions": Field(Kind.INT, "message sets of old producers converted to batches"),
    "legacy_up_source_bytes": Field(Kind.BYTES, "these message sets"),
    "legacy_up_converted_bytes": Field(Kind.BYTES, "their batches"),
    "legacy_up_records": Field(Kind.INT, "records in them"),
    "legacy_up_seconds": Field(Kind.SECONDS, "time of converting them"),
    "legacy_up_errors": Field(Kind.INT, "partitions whose messages could not be read"),
    "legacy_waits": Field(Kind.INT, "waits for the conversion budget"),
    "legacy_waited_seconds": Field(Kind.SECONDS, "time of these waits"),
    "legacy_evictions": Field(Kind.INT, "record sets taken from clients that did not read"),
    "written": Field(Kind.INT, "rows or frames written"),
    "dropped": Field(Kind.INT, "rows that could not be written"),
    "unread": Field(Kind.INT, "frames that could not be read completely"),
    "lost": Field(Kind.INT, "frames that could not be written"),
}
