"""What the proxy is told: plain frozen values, already validated.

`toml.py` and `cli/mirror_flags.py` fill these from TOML and argv; nothing else in `proxy/` reads a file or a flag. A field is a key of
`shoal.toml`, its annotation says how that is written (`schema.py`), and its default is the default. All sizes are bytes, all
times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

__all__ = [
    "DEFAULT_MIRROR_CLIENTS",
    "ENVELOPE_OVERHEAD",
    "KIB",
    "MIB",
    "Address",
    "ApiKey",
    "CaptureSettings",
    "ClusterSettings",
    "CoalesceSettings",
    "Codec",
    "Directory",
    "Isolation",
    "LegacySettings",
    "Limits",
    "ListenerSettings",
    "LogSettings",
    "Mode",
    "MultiBatch",
    "NodePorts",
    "PortMap",
    "PortRange",
    "RawCaptureSettings",
    "Regex",
    "SetCompression",
    "Settings",
    "ShallowSettings",
    "Size",
    "Tags",
    "TopicName",
]

KIB = 1024
MIB = 1024 * 1024

# run-limit is the whole envelope; the producer estimates a little more than it then writes (AbstractRecords).
ENVELOPE_OVERHEAD = 4 * KIB

# The data consumer of a MirrorSourceConnector names itself "<client.id>|source->target|...|replication-consumer"
# (MirrorSourceConfig.sourceConsumerConfig); its offset-sync and admin clients end otherwise.
DEFAULT_MIRROR_CLIENTS = r"\|replication-consumer$"

# Annotations that say how a value is written.
Size = Annotated[int, "size"]  # bytes, or "512KiB"
Regex = Annotated[str, "regular expression"]
TopicName = Annotated[str, "topic"]
ApiKey = Annotated[int, "api"]  # its name
Directory = Annotated[Path, "directory"]  # relative to the file that it is written in
Tags = Mapping[str, str]
Codec = Literal["gzip", "snappy", "lz4", "zstd"]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Mode(StrEnum):
    PLAIN = "plain"  # nothing but addresses is edited
    WRAP = "wrap"  # the source side: fetched batches go out in envelopes
    UNWRAP = "unwrap"  # the target side: produced envelopes are opened


class MultiBatch(StrEnum):
    AUTO = "auto"  # several batches per partition and request where the broker is proven to store them
    NEVER = "never"  # one batch, and nothing is tried


class SetCompression(StrEnum):
    SOURCE = "source"  # the batch's codec
    NONE = "none"


class Isolation(StrEnum):
    READ_COMMITTED = "read-committed"
    READ_UNCOMMITTED = "read-uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRange:
    """Broker ports are taken from `first`..`last` (inclusive) in the order in which brokers are seen.

    With a `state_file` a broker keeps its port across restarts, and its port is bound at start-up.
    """

    first: int
    last: int
    state_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMap:
    """Node id -> listening port. A broker that is not in the map is an error that names it."""

    ports: Mapping[int, int]


NodePorts = PortRange | PortMap


MAX_PRODUCER_SLOTS = 1_000_000  # of an unwrap listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ShallowSettings:
    """Shallow mirroring (KIP-712). A wrap listener uses all of it, an unwrap listener `plain_compression`, `producer_slots`
    and `evidence_*`."""

    mirror_clients: Regex = DEFAULT_MIRROR_CLIENTS  # searched in the client id
    deep_topics: tuple[Regex, ...] = ()  # these topics are never wrapped
    partition_by_key: bool = (
        False  # the mirror chooses partitions by key hash (MirrorMaker 1, Brooklin), MirrorMaker 2 does not
    )
    run_limit: Size = 512 * KIB  # of one envelope; half of the producer's default max.request.size
    min_batch_bytes: Size = 4096  # smaller batches are better re-batched by the mirror itself
    fetch_max_bytes: Size = 8 * MIB  # of a response that may have to be held
    partition_max_bytes: Size = MIB
    tags: Tags = field(default_factory=dict)  # a header `shoal.tag.<name>` in each envelope
    same_cluster: bool = False  # the pair's cluster may be the very cluster that is read
    any_producer: bool = False  # evidence counts by whatever way it comes back (protocol/shallow/interlock/way_back.py)
    unpaired: bool = False  # wrap though no unwrap listener of this process is the pair
    evidence_seconds: float = 60.0  # handed-out envelopes must arrive at the pair within this time
    evidence_bytes: Size = 64 * MIB  # and before this much was handed out
    producer_slots: int = (
        16_384  # (producer id, partition) pairs of idempotent mirrors that are known at a time; 512 bytes each
    )
    plain_compression: Codec | None = None  # for plain batches that the mirror sends uncompressed

    @classmethod
    def of(cls, **written: Any) -> ShallowSettings:
        """A larger `run_limit` raises the defaults of what is fetched: runs cannot become longer than what one fetch brings."""
        made = cls(**written)
        fetched = {
            name: max(getattr(made, name), made.run_limit) for name in ("fetch_max_bytes", "partition_max_bytes")
        }
        return cls(**(fetched | written))

    @property
    def partition_limit(self) -> int:
        """What is asked for of one partition, so that it makes whole envelopes: a run ends before the batch that no longer fits. Of 1 MiB
        a batch or two would be left over each time, for an envelope and a request of their own."""
        whole = self.partition_max_bytes // self.run_limit * self.run_limit
        return whole - self.run_limit // 8 if whole else self.partition_max_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalesceSettings:
    """Joining the produce requests of many clients. Of each lane (broker, and what requests must have in common), if not said otherwise."""

    linger: float = 0.0  # an idle lane waits so long for company; 0 costs a quiet client nothing
    request_bytes: Size = MIB  # of a joined request: a producer's default max.request.size
    request_batches: int = 1000
    set_batches: int = 64  # of one partition in a joined request, where the broker is proven to take them
    in_flight: int = 4  # joined requests without an answer, each on a connection of its own
    patience: float = 0.1  # before a request overtakes one that is not answered
    queue_bytes: Size = 32 * MIB  # of the whole listener, taken from clients and not answered; then no more is read
    ignore_client_ids: bool = False  # join clients of different ids: no quota tells them apart


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySettings:
    """Serving clients of Kafka 0.8-0.10 (KIP-283): what is made for them, and how much of it may lie in memory."""

    chunk_bytes: Size = (
        128 * KIB
    )  # of converted messages, made at a time; LazyDownConversionRecordsSend's MAX_READ_SIZE
    budget_bytes: Size = 64 * MIB  # of all fetched batches and chunks of the listener; who finds it used up waits
    fetch_bytes: Size = MIB  # of one answer of the broker; a larger batch comes whole
    compression: SetCompression = SetCompression.SOURCE  # of converted sets
    isolation: Isolation = Isolation.READ_COMMITTED  # aborted records were never meant to be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    name: str
    bootstrap: tuple[Address, ...]  # tried in turn
    multi_batch: MultiBatch = MultiBatch.AUTO
    probe_topic: TopicName | None = (
        None  # exists, and takes what proves multi-batch; None: a scratch topic is made and deleted
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One named listener: a bootstrap port and a port for every broker of its cluster."""

    name: str
    cluster: str
    host: str = "127.0.0.1"
    port: int = 9092
    nodes: NodePorts = field(default_factory=lambda: PortMap(ports={}))
    advertised_host: str | None = None  # None: `host`; for a wildcard `host`, the address the client connected to
    mode: Mode = Mode.PLAIN
    pair: str | None = None  # wrap: the name of the unwrap listener through which the mirror produces
    shallow: ShallowSettings = field(default_factory=ShallowSettings)
    coalesce: bool = False  # plain: produce requests of several clients are joined
    coalescing: CoalesceSettings = field(default_factory=CoalesceSettings)
    legacy: bool = False  # plain: clients older than the brokers take are served
    legacy_options: LegacySettings = field(default_factory=LegacySettings)
    producers_file: Path | None = None  # unwrap: what is known of idempotent mirrors, over restarts
    max_connections: int = 10_000  # two descriptors and ~40 KiB each


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Named bounds, each with its reason, that hold for every connection."""

    frame_bytes: Size = 100 * MIB  # socket.request.max.bytes of a broker
    held_response_bytes: Size = 32 * MIB  # an edited response is held whole: Metadata of 100,000 partitions is ~10 MiB
    held_request_bytes: Size = 32 * MIB  # a produce request that is unwrapped is held whole
    in_flight: int = 10_000  # requests of one connection without an answer; a client's default is 5
    connect_timeout: float = 10.0  # for one bootstrap address or broker
    frame_timeout: float = 60.0  # a started frame of which nothing arrives for so long is abandoned
    stall_timeout: float = 600.0  # a peer that reads nothing for so long is gone; connections.max.idle.ms of a broker
    idle_timeout: float | None = None  # brokers close idle connections themselves (connections.max.idle.ms)
    drain_seconds: float = 10.0  # after SIGTERM, before connections are cut
    linger_seconds: float = 30.0  # a held request may finish its exchange for so long after its client has gone
    close_seconds: float = 5.0  # half-open: what one side still has to say after the other has closed
    keepalive_idle: int = 60
    keepalive_interval: int = 15
    keepalive_count: int = 4
    stall_report: float = 2.0  # the event loop has not turned for so long: where it stands is logged
    stall_exit: float = 30.0  # then the process ends: request.timeout.ms, each client has given its requests up


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["human", "json"] = "human"
    report_every: float = 5.0  # seconds between lines of what flows; 0 = none


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """The index of what passes (docs/capture.md). It is on where it has a directory."""

    directory: Directory
    max_file_bytes: Size = 128 * MIB
    roll_seconds: float = 300.0  # a file is closed at this age
    max_bytes: Size = 2048 * MIB  # of all index files in the directory, also those of other processes
    flush_seconds: float = 0.25
    has_keys_sample: int = 0  # 1 in so many batches is looked into for its keys; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCaptureSettings:
    """Whole frames into pcapng files. Of the conditions, an empty one is none; a frame meets all of them."""

    directory: Directory
    topics: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()  # client ids
    apis: frozenset[ApiKey] = frozenset()
    max_file_bytes: Size = 128 * MIB
    max_bytes: Size = 2048 * MIB  # of all raw captures in the directory: the oldest are removed
    queue_bytes: Size = 64 * MIB  # frames that wait for the disk: more are lost, and counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    clusters: tuple[ClusterSettings, ...]
    listeners: tuple[ListenerSettings, ...]
    limits: Limits = field(default_factory=Limits)
    log: LogSettings = field(default_factory=LogSettings)
    capture: CaptureSettings | None = None  # None: nothing is written
    tags: Tags = field(default_factory=dict)  # of all listeners, and of what is captured
    raw_capture: RawCaptureSettings | None = None
    state_dir: Directory | None = None  # that somebody has asked for
